"""From texts to documents, so that a file that is no YAML becomes a finding among the others."""

from collections.abc import Iterable

from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.source import Document, read_documents


def documents(texts: Iterable[tuple[str, str]]) -> list[Document]:
    """The documents of (file name, text) pairs, in order. What cannot be read is a document with problems only."""
    found: list[Document] = []
    for file, content in texts:
        try:
            found += read_documents(content, file, lenient=True)
        except SpecError as error:
            found.append(Document(file=file, data=None, problems=list(error.problems)))
    return found
