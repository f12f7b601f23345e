"""What `Job` and `Cluster` have in common in Python: made from fields or a file, checked as a whole, written as YAML.

pydantic alone finds what is wrong with single fields. A file is checked by more: rules over several fields, the
nearest name for an unknown key, all problems at once. An object made in Python gets the same, and the same error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from raytrain_eks.spec.check import check, single
from raytrain_eks.spec.load import content_of, of_document, text_of
from raytrain_eks.spec.model import Model
from raytrain_eks.spec.source import Document, read_documents
from raytrain_eks.spec.source import Path as Steps
from raytrain_eks.spec.write import scalar_text, to_yaml

SOURCE = "_source"
"""Key of an object's `__dict__` that pydantic does not know: the file it was loaded from. Two objects with the same
fields are equal, wherever they came from."""


AnyTree = TypeVar("AnyTree", bound="Tree")


class Tree:
    """Goes before a model of `spec` among the bases of a class."""

    _spec: ClassVar[type[Model]]

    def __init__(self, /, **fields: Any) -> None:
        """Fields as in a file, nested ones as mappings or models. Raises SpecError with every problem."""
        _adopt(self, check(self._spec, document_of(fields)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The object that a file holds. Raises SpecError with every problem and its place, OSError when unreadable."""
        content = content_of(path)
        document = single(read_documents(text_of(content, str(path)), str(path), lenient=True), str(path))
        made = _made(cls, of_document(document, expect=cls._spec.__name__))
        vars(made)[SOURCE] = (Path(path), content, document)
        return made

    @classmethod
    def parse(cls, data: Any) -> Self:
        """The object of plain data. Raises SpecError with every problem."""
        return _made(cls, check(cls._spec, document_of(data)))

    @classmethod
    def read(cls, text: str, file: str = "") -> Self:
        """The object of a YAML text; `file` is how problems call it. Raises SpecError with every problem."""
        return _made(cls, cls._spec.read(text, file))

    def to_yaml(self) -> str:
        """The file that reads back as this object: what was given, without defaults and comments."""
        assert isinstance(self, Model)
        return to_yaml(self)

    def changed(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """A copy with other values, checked again: `job.changed({"optimizer.learning_rate": 1e-3}, name="second")`.

        A path in dots goes through mappings only. Raises SpecError with every problem of the result.
        """
        assert isinstance(self, Model)
        data = self.written()
        for path, value in {**(changes or {}), **fields}.items():
            *above, last = path.split(".")
            place = data
            for step in above:
                inner = place.get(step)
                place[step] = dict(inner) if isinstance(inner, Mapping) else {}
                place = place[step]
            place[last] = _plain(value)
        return type(self)(**data)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; a copy is no longer what its file says."""
        copy: Self = super().model_copy(update=update, deep=deep)  # type: ignore[misc]
        vars(copy).pop(SOURCE, None)
        return copy


def document_of(fields: Any) -> Document:
    """Fields as a document without places, whose scalars are known as a person would write them, for messages."""
    data = _plain(fields)
    return Document(file="", data=data, texts=dict(_texts(data, ())))


def source(tree: Tree) -> tuple[Path, bytes, Document] | None:
    """The file that an object was loaded from: its path, its bytes and where everything stands in it."""
    found: tuple[Path, bytes, Document] | None = vars(tree).get(SOURCE)
    return found


def _plain(value: Any) -> Any:
    """Data as a file would hold it: what models were given, paths as text, lists for other sequences."""
    if isinstance(value, Model):
        return value.written()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _texts(value: Any, path: Steps) -> Iterator[tuple[Steps, str]]:
    if isinstance(value, Mapping | list):
        for step, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts(item, (*path, step))
    elif value is not None:
        yield path, scalar_text(value, flow=False) if isinstance(value, bool | int | float) else str(value)


def _made(cls: type[AnyTree], known: Model) -> AnyTree:
    made = cls.__new__(cls)
    _adopt(made, known)
    return made


def _adopt(made: Any, known: Model) -> None:
    """Take over the fields of a model that was checked. It never changes, so both may hold the same parts."""
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(made, name, dict(vars(known)) if name == "__dict__" else getattr(known, name))
