"""From texts to documents, so that a file that is no YAML becomes a finding among the others."""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.source import Document, Path, read_documents


@dataclass
class Written(Document):
    """A document whose text is at hand."""

    lines: list[str] = field(default_factory=list)
    """The lines of its file."""

    def plain(self, path: Path) -> str | None:
        """The text of a scalar that stands there without quotes; None for others."""
        if path not in self.texts or (mark := self.values.get(path)) is None:
            return None
        start = self.lines[mark[0] - 1][mark[1] - 1 :]
        return self.texts[path] if start.startswith(self.texts[path]) else None


def documents(texts: Iterable[tuple[str, str]]) -> list[Document]:
    """The documents of (file name, text) pairs, in order. What cannot be read is a document with problems only."""
    found: list[Document] = []
    for file, content in texts:
        try:
            lines = content.splitlines()
            found += [
                Written(read.file, read.data, read.keys, read.values, read.texts, read.problems, lines)
                for read in read_documents(content, file, lenient=True)
            ]
        except SpecError as error:
            found.append(Document(file=file, data=None, problems=list(error.problems)))
    return [document for document in found if not _is_patch(document, found)]


def _is_patch(document: Document, all: list[Document]) -> bool:
    """Whether this is a patch, a part of an object: by its file's name, or by a Kustomization among the documents."""
    if "patch" in posixpath.basename(document.file):
        return True
    for other in all:
        data = other.data
        if not (isinstance(data, dict) and data.get("kind") in ("Kustomization", "Component")):
            continue
        listed = [entry.get("path") if isinstance(entry, dict) else entry for entry in _patches(data)]
        names = {posixpath.normpath(posixpath.join(posixpath.dirname(other.file), name)) for name in listed if name}
        if posixpath.normpath(document.file) in names:
            return True
    return False


def _patches(data: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        found += data[key] if isinstance(data.get(key), list) else []
    return [entry for entry in found if isinstance(entry, dict) or (isinstance(entry, str) and "\n" not in entry)]
