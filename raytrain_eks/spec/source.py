"""Reading YAML 1.2 with the place of every key and value.

Scalars follow the YAML 1.2 core schema (chapter 10.3): `on`, `yes` and `12:30` are strings, `0o17` is 15, `2e-5` is a
number. Duplicate keys, foreign tags, merge keys and anything that is not a tree are problems with a place.
Nothing in a file can make the reader hang, recurse without end or raise anything but SpecError.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.yaml_nodes import Node, compose

Path = tuple[str | int, ...]
Mark = tuple[int, int]
"""Line and column, both 1-based."""

_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_SPECIAL |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(nan|NaN|NAN)\Z")
_CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""What an escape in double quotes can write, and no file name, environment variable or UTF-8 text can hold."""
_LONGEST_NUMBER = 400
"""Digits of an integer; a longer run of digits stays text, since Python refuses to convert more than 4300."""
EXPANDED = 100_000
"""Values that aliases may add to a document; more than that is a mistake or an attack."""


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar under the YAML 1.2 core schema."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.match(text) and len(text) <= _LONGEST_NUMBER:
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
    """Path of a scalar -> its text as written, without quotes."""
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with the tree itself (keys that stand twice, foreign tags); empty unless read leniently."""

    def place(self, path: Path, *, key: bool = False) -> Mark | None:
        """Line and column of `path`, or of its nearest ancestor that is in the file."""
        for length in range(len(path), -1, -1):
            marks = self.keys if key and length == len(path) else self.values
            if (mark := marks.get(path[:length])) is not None:
                return mark
        return None


def read_documents(text: str, file: str, *, lenient: bool = False) -> list[Document]:
    """Every non-empty document of a YAML stream.

    Raises SpecError with the place when the text is not YAML. What this reader refuses in a tree (keys that stand
    twice, tags, merge keys) raises SpecError as well, or with `lenient` lies in `Document.problems`, so that a caller
    can report it together with what else is wrong.
    """
    documents = []
    for node in compose(text, file):
        document = Document(file=file, data=None)
        document.data = _Tree(document).build(node, (), frozenset())
        documents.append(document)
    problems = [problem for document in documents for problem in document.problems]
    if problems and not lenient:
        raise SpecError(problems)
    return [document for document in documents if document.data is not None or document.problems]


@dataclass
class _Tree:
    """Turns the nodes of one document into plain data; aliases are written out, within a budget."""

    document: Document
    expanded: int = 0
    aliased: int = 0

    def build(self, node: Node, path: Path, above: frozenset[int]) -> Any:
        document = self.document
        document.values[path] = node.mark
        if node.tag and node.tag != "!" and node.tag not in _CORE_TAGS:
            return self._refuse(path, node.mark, f"the tag {node.tag} is not known here", "leave the tag out")
        if _UNUSABLE.search(node.text):
            return self._refuse(path, node.mark, "the text holds a NUL or half of a surrogate pair", "leave it out")
        above = above | {id(node)}
        if node.kind == "scalar":
            document.texts[path] = node.text
            text_by_tag = node.tag in ("!", "tag:yaml.org,2002:str")
            typed = node.tag is not None and not text_by_tag
            return scalar(node.text) if typed or (node.plain and not text_by_tag) else node.text
        if node.kind == "sequence":
            return [self._child(item, (*path, index), above) for index, item in enumerate(node.children)]
        return dict(self._entries(node, path, above))

    def _child(self, node: Node, path: Path, above: frozenset[int], mark: Mark | None = None) -> Any:
        """One value of a collection; what an alias repeats is counted, and too much of it is refused once."""
        self.document.keys[path] = mark or node.mark
        if id(node.alias_of) in above:
            return self._refuse(path, node.mark, "an alias to its own ancestor has no end", "write it out")
        if not node.alias_of and not self.aliased:
            return self.build(node, path, above)
        self.expanded += 1
        if self.expanded > EXPANDED:
            if self.expanded == EXPANDED + 1:
                self._refuse(path, node.mark, f"aliases expand to more than {EXPANDED} values", "write less of them")
            return None
        self.aliased += 1
        value = self.build(node.alias_of or node, path, above)
        self.aliased -= 1
        self.document.values[path] = node.mark
        return value

    def _entries(self, node: Node, path: Path, above: frozenset[int]) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in zip(node.children[::2], node.children[1::2], strict=True):
            key_node, mark = key_node.alias_of or key_node, key_node.mark
            key, here = key_node.text, (*path, key_node.text)
            if key_node.kind != "scalar":
                self._refuse(path, mark, "a key must be a plain word", "write a word as the key")
            elif not key:
                self._refuse(path, mark, "a key is missing in front of the colon", "write `key: value`")
            elif _UNUSABLE.search(key):
                self._refuse(path, mark, "a key holds a NUL or half of a surrogate pair", "leave it out")
            elif key in seen:
                fix = f"keep one of the two; the first is on line {seen[key]}"
                self._refuse(here, mark, "this key stands twice in one mapping", fix)
            elif key == "<<":
                self._refuse(here, mark, "merge keys are not YAML 1.2", "write the keys out")
            else:
                seen[key] = mark[0]
                yield key, self._child(value_node, here, above, mark)

    def _refuse(self, path: Path, mark: Mark, rule: str, fix: str) -> None:
        problem = Problem(path=".".join(map(str, path)) or "(file)", rule=rule, fix=fix)
        self.document.problems.append(problem.at(self.document.file, *mark))
