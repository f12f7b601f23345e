"""`raytrain-eks diff OLD NEW`: what changed between two cluster files or two bundles, by meaning.

Each side is a cluster file, a file of Kubernetes objects, or a folder of such files. Two cluster files are compared as
files, or as what they render to with `--rendered`; a cluster file against a bundle is rendered first.
Exit codes: 0 no difference, 1 differences, 2 wrong usage or a file that cannot be read, 3 problems in a file.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import bundles
from raytrain_eks.cli import output as out

if TYPE_CHECKING:
    from raytrain_eks.manifests.compare import Change
    from raytrain_eks.spec.source import Document

DIFFERENT = 1
"""As diff(1) and `kubectl diff` say it; 3 is taken by files with problems."""
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}


@click.command(help="Compare two cluster files or bundles by meaning: 1024Mi equals 1Gi. Exit 1: they differ.")
@click.argument("old", type=click.Path(exists=True))
@click.argument("new", type=click.Path(exists=True))
@click.option("--rendered", is_flag=True, help="Compare what two cluster files render to, instead of the files.")
@out.option()
def command(old: str, new: str, rendered: bool, output: str) -> int:
    from raytrain_eks.manifests import compare

    before, after = _documents(Path(old)), _documents(Path(new))
    specs = [_is_spec(side) for side in (before, after)]
    if all(specs) and not rendered:
        changes = compare.trees(_spec(before[0]), _spec(after[0]))
    else:
        changes = compare.bundles(_objects(before), _objects(after))
    _write(output, changes)
    return DIFFERENT if changes else 0


def _documents(path: Path) -> "list[Document]":
    """Every YAML document of a file, or of a folder's files in the order of their names. Raises SpecError, OSError."""
    from raytrain_eks.spec.load import text_of
    from raytrain_eks.spec.source import read_documents

    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml", ".json"))
    return [found for file in files for found in read_documents(text_of(file.read_bytes(), str(file)), str(file))]


def _is_spec(documents: "list[Document]") -> bool:
    data = documents[0].data if len(documents) == 1 else None
    return isinstance(data, dict) and data.get("kind") == "Cluster" and "apiVersion" not in data


def _spec(document: "Document") -> Any:
    """The cluster file as plain data with every default filled in."""
    from raytrain_eks.spec.load import of_document

    return of_document(document, expect="Cluster").model_dump(mode="json")


def _objects(documents: "list[Document]") -> list[dict[str, Any]]:
    if _is_spec(documents):
        return bundles.from_document(documents[0])[1].bodies
    found: list[dict[str, Any]] = []
    for document in documents:
        data = document.data
        if isinstance(data, dict) and data.get("kind") == "List":
            found += [item for item in data.get("items") or [] if isinstance(item, dict)]
        elif isinstance(data, dict) and data.get("kind") != "Kustomization":
            found.append(data)
    return found


def _write(form: str, changes: "list[Change]") -> None:
    data = [
        {"object": each.subject, "path": each.path, "change": each.verb, "old": each.old, "new": each.new}
        for each in changes
    ]
    out.write(form, data, table=lambda: "\n".join(map(_line, changes)))


def _line(change: "Change") -> str:
    sign = _SIGNS[change.verb]
    where = "  ".join(part for part in (change.subject, change.path) if part)
    if not change.path and change.subject:
        return f"{sign} {where}"
    sides = {"added": [change.new], "removed": [change.old]}.get(change.verb, [change.old, change.new])
    return f"{sign} {where}: " + " -> ".join(_short(side) for side in sides)


def _short(value: Any) -> str:
    """A value on one line; fields without a value are left out."""
    return json.dumps(_given(value), ensure_ascii=False)


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _given(inner) for key, inner in value.items() if inner not in (None, {}, [])}
    return [_given(inner) for inner in value] if isinstance(value, list) else value
