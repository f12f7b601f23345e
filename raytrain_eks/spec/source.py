"""Reading YAML 1.2 with the place of every key and value.

Scalars follow the YAML 1.2 core schema (chapter 10.3): `on`, `yes` and `12:30` are strings, `0o17` is 15, `2e-5` is a
number. Duplicate keys, foreign tags, merge keys and anything that is not a tree are problems with a place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.spec.problem import Problem, SpecError

Path = tuple[str | int, ...]
Mark = tuple[int, int]
"""Line and column, both 1-based."""

_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_SPECIAL |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(nan|NaN|NAN)\Z")
_CORE_TAGS = "tag:yaml.org,2002:"


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar under the YAML 1.2 core schema."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.match(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text[2:] if base != 10 else text, base)
    if _FLOAT.match(text):
        return float(text)
    if infinite := _INFINITE.match(text):
        return float(f"{infinite.group(1)}inf")
    return float("nan") if _NAN.match(text) else text


@dataclass
class Document:
    """One YAML document: plain data, and where each part of it stands."""

    file: str
    data: Any
    keys: dict[Path, Mark] = field(default_factory=dict)
    """Path of a mapping entry or a list item -> place of its key (of the item itself in a list)."""
    values: dict[Path, Mark] = field(default_factory=dict)
    """Path -> place of the value."""
    texts: dict[Path, str] = field(default_factory=dict)
    """Path of a scalar -> its text as written."""

    def place(self, path: Path, *, key: bool = False) -> Mark | None:
        """Line and column of `path`, or of its nearest ancestor that is in the file."""
        for length in range(len(path), -1, -1):
            marks = self.keys if key and length == len(path) else self.values
            if (mark := marks.get(path[:length])) is not None:
                return mark
        return None


def read_documents(text: str, file: str) -> list[Document]:
    """Every non-empty document of a YAML stream.

    Raises SpecError with the place when the text is not YAML, or uses what this reader refuses.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        nodes = [node for node in YAML(typ="rt", pure=True).compose_all(text) if node is not None]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        rule = " ".join(str(part) for part in (error.context, error.problem) if part)
        problem = Problem(path="(file)", rule=f"not valid YAML: {rule}", fix="check indentation, colons, quotes there")
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise SpecError([problem.at(file, line, column)]) from None
    except (YAMLError, ValueError) as error:
        raise SpecError([Problem(path="(file)", rule=f"not valid YAML: {error}".splitlines()[0], file=file)]) from None
    documents: list[Document] = []
    problems: list[Problem] = []
    for node in nodes:
        document = Document(file=file, data=None)
        document.data = _build(node, (), document, problems, frozenset())
        documents.append(document)
    if problems:
        raise SpecError(problems)
    return [document for document in documents if document.data is not None]


def _build(node: Any, path: Path, document: Document, problems: list[Problem], above: frozenset[int]) -> Any:
    mark = (node.start_mark.line + 1, node.start_mark.column + 1)
    document.values[path] = mark
    if id(node) in above:
        problems.append(_refusal(path, "an alias to its own ancestor has no end", "write it out", document, mark))
        return None
    above = above | {id(node)}
    tag = str(node.tag or "")
    if tag and not tag.startswith(_CORE_TAGS):
        problems.append(_refusal(path, f"the tag {tag} is not known here", "leave the tag out", document, mark))
        return None
    if node.id == "scalar":
        document.texts[path] = node.value
        return scalar(node.value) if node.style is None else node.value
    if node.id == "sequence":
        items = []
        for index, item in enumerate(node.value):
            document.keys[(*path, index)] = (item.start_mark.line + 1, item.start_mark.column + 1)
            items.append(_build(item, (*path, index), document, problems, above))
        return items
    return dict(_entries(node, path, document, problems, above))


def _entries(
    node: Any, path: Path, document: Document, problems: list[Problem], above: frozenset[int]
) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        mark = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if key_node.id != "scalar":
            problems.append(_refusal(path, "a key must be a plain word", "write a word as the key", document, mark))
            continue
        key = key_node.value
        here = (*path, key)
        if key in seen:
            fix = f"keep one of the two; the first is on line {seen[key]}"
            problems.append(_refusal(here, "this key stands twice in one mapping", fix, document, mark))
            continue
        if key == "<<":
            problems.append(_refusal(here, "merge keys are not YAML 1.2", "write the keys out", document, mark))
            continue
        seen[key] = mark[0]
        document.keys[here] = mark
        yield key, _build(value_node, here, document, problems, above)


def _refusal(path: Path, rule: str, fix: str, document: Document, mark: Mark) -> Problem:
    return Problem(path=".".join(map(str, path)) or "(file)", rule=rule, fix=fix).at(document.file, *mark)
