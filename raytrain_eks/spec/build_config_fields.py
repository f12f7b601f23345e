"""Builds `config_fields.csv`, the fields of the configs of common language models, from the package transformers.

Run as `python -m raytrain_eks.spec.build_config_fields`; only developers need that package. Its modules are read and
not imported, since they would bring torch with them. The row without a family holds what every config has. A
field whose values are of one simple type has it behind a colon: `hidden_size:int`.
"""

import ast
import csv
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parent / "config_fields.csv"
_NAMES = """
albert arcee bert bloom codegen cohere cohere2 ctrl deberta deberta-v2 deepseek_v2 deepseek_v3 distilbert electra
ernie exaone4 falcon gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite
granitemoe helium llama mamba mamba2 minimax mistral mixtral modernbert mpt mra nemotron olmo olmo2 olmo3 olmoe opt
persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe roberta roformer seed_oss smollm3 stablelm starcoder2
xlm-roberta xlnet
"""
FAMILIES = frozenset(_NAMES.split())
"""`model_type` of text models that are trained from scratch; of all others the table holds the name alone."""
_KEPT = """
num_labels torch_dtype rope_scaling rope_theta name_or_path attn_implementation output_attentions experts_implementation
use_return_dict _name_or_path
"""
"""What the base class takes beside its fields, old names among them."""


def folder() -> tuple[Path, str]:
    """Where the package lies, and its version."""
    from importlib.metadata import version
    from importlib.util import find_spec

    package = find_spec("transformers")
    if package is None or package.origin is None:
        raise SystemExit("pip install transformers")
    return Path(package.origin).parent, version("transformers")


def table(source: Path) -> dict[str, tuple[str, ...]]:
    """Family -> the fields of its config, sorted, none where they are not looked at; an empty family for the fields of
    all."""
    base = next(found for found in _classes(source / "configuration_utils.py") if found.name == "PreTrainedConfig")
    found = {"": tuple(sorted({*_fields(base), *_KEPT.split()}))}
    for file in sorted((source / "models").glob("*/configuration_*.py")):
        classes = {each.name: each for each in _classes(file)}
        for each in classes.values():
            family = _text(each, "model_type")
            if family:
                found.setdefault(family, ())
            if family in FAMILIES:
                bases = [classes[name] for name in map(_name, each.bases) if name in classes]
                # The last word on a field is the class's own, which has its type.
                fields = [name for one in (*bases, each) for name in (*_renamed(one), *_fields(one))]
                found[family] = tuple(sorted({name.partition(":")[0]: name for name in fields}.values()))
    return dict(sorted(found.items()))


def _classes(file: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _fields(found: ast.ClassDef) -> Iterator[str]:
    """Fields with a type, and what the class takes out of its further arguments."""
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            yield _name(node.target) + _type(ast.unparse(node.annotation))
    if found.name == "PreTrainedConfig":
        return
    for call in ast.walk(found):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _name(call.func.value) == "kwargs":
            yield from (str(word.value) for word in call.args[:1] if isinstance(word, ast.Constant))


def _type(annotation: str) -> str:
    """`:int` for `int | None`, `:float` for a number of either kind, nothing for what is of several types."""
    kinds = {kind.strip() for kind in annotation.split("|")} - {"None"}
    if kinds in ({"float"}, {"int", "float"}):
        return ":float"
    return f":{kinds.pop()}" if kinds in ({"int"}, {"bool"}, {"str"}) else ""


def _renamed(found: ast.ClassDef) -> Iterator[str]:
    """Names that stand for others of the family: `hidden_size` is GPT-2's `n_embd`."""
    for node in found.body:
        if (
            isinstance(node, ast.Assign)
            and _name(node.targets[0]) == "attribute_map"
            and isinstance(node.value, ast.Dict)
        ):
            yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))


def _text(found: ast.ClassDef, name: str) -> str:
    for node in found.body:
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == name and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return ""


def main() -> None:
    """Write the table, one row for each family."""
    source, version = folder()
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("family", "fields", "source"))
        rows.writerows((name, " ".join(fields), f"transformers {version}") for name, fields in table(source).items())


if __name__ == "__main__":
    main()
