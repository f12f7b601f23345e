"""The JSON Schema (draft 2020-12) of a kind of file, so that editors complete and check it while a person writes."""

from typing import Any

from pydantic import BaseModel, TypeAdapter

from raytrain_eks.spec.fields import all_models, field_docs


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of what may be written for `model`: each field with its docstring, its default and its values.

    What needs more than one field (exactly one of two, a multiple of another) is not in it; `validate` checks that.
    """
    schema = TypeAdapter(model).json_schema(by_alias=True)
    by_title = {found.__name__: found for found in all_models(model)}
    for title, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        docs = field_docs(by_title[title]) if title in by_title else {}
        names = {info.alias or name: name for name, info in by_title[title].model_fields.items()} if docs else {}
        for written, entry in part.get("properties", {}).items():
            entry.pop("x-aside", None)
            entry.pop("title", None)
            if isinstance(entry.get("default"), dict):
                del entry["default"]  # an editor would write all of it into the file
            if (doc := docs.get(names.get(written, written))) is not None:
                entry["description"] = doc
    if "kind" in schema.get("properties", {}):
        schema["required"] = ["kind", *schema.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
