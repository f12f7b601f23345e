"""What a FILE argument holds: a cluster file, or Kubernetes objects that were rendered already.

A folder stands for all YAML and JSON files in it, `-` for standard input.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raytrain_eks.cli import bundles
from raytrain_eks.cli.outcome import NO_NAME, Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.manifests.bundle import Bundle
    from raytrain_eks.plan.cluster import ClusterPlan
    from raytrain_eks.spec.source import Document

Bodies = list[dict[str, Any]]
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Given:
    """Objects, and what is to be said about them."""

    bodies: Bodies
    cluster: str | None = None
    """The name of the cluster file; None for objects."""
    kubernetes: str | None = None
    """The version that the cluster file is for."""
    remarks: tuple[str, ...] = ()
    """Warnings of lint and notes of the bundle."""


def documents(path: str | Path) -> "list[Document]":
    """Every YAML document of a file, of a folder's files in the order of their names, or of standard input.

    Raises SpecError, OSError, Failure for no name at all.
    """
    from raytrain_eks.spec.source import read_documents

    if not str(path):
        raise Failure(NO_NAME, Outcome.USAGE)
    files: list[str | Path] = [path]
    if Path(path).is_dir():
        files = list(manifests_in(Path(path)))
    return [found for file in files for found in read_documents(*reversed(manifest(file)))]


def manifests_in(folder: Path) -> list[Path]:
    """Every YAML and JSON file below a folder, in the order of names; what is hidden, and what is no file, is left.

    Raises Failure where there is none.
    """

    def wanted(found: Path) -> bool:
        hidden = any(part.startswith(".") for part in found.relative_to(folder).parts)
        return found.suffix in ENDINGS and found.is_file() and not hidden

    found = sorted(filter(wanted, folder.rglob("*")))
    if not found:
        raise Failure(f"{folder}: no file in this folder ends in {', '.join(ENDINGS)}", Outcome.USAGE)
    return found


def manifest(path: str | Path) -> tuple[str, str]:
    """The name and the text of a file of manifests, `-` for standard input. Raises SpecError, OSError."""
    from raytrain_eks.spec.load import LARGEST_BUNDLE, content_of, text_of

    name = "(stdin)" if str(path) == "-" else str(path)
    return name, text_of(content_of(path, LARGEST_BUNDLE), name, LARGEST_BUNDLE)


def is_spec(found: "list[Document]") -> bool:
    """Whether this is a cluster file."""
    data = found[0].data if len(found) == 1 else None
    return isinstance(data, dict) and data.get("kind") == "Cluster" and "apiVersion" not in data


def objects(found: "list[Document]") -> Bodies:
    """The objects of documents; of a cluster file those that it renders to. Raises SpecError, Failure."""
    if is_spec(found):
        return bundles.from_document(found[0])[1].bodies
    bodies: Bodies = []
    for document in found:
        data = document.data
        if isinstance(data, dict) and data.get("kind") == "List":
            items = data.get("items") or []
            if not isinstance(items, list):
                raise Failure(f"{document.file}: `items` of a List must be a list of objects", Outcome.FINDINGS)
            bodies += [item for item in items if isinstance(item, dict)]
        elif isinstance(data, dict) and is_run(data):
            raise Failure(f"{document.file}: {_something_else(data)}", Outcome.FINDINGS)
        elif isinstance(data, dict) and data.get("kind") != "Kustomization":
            bodies.append(data)
    return bodies


def read(found: "list[Document]", path: str) -> Given:
    """What documents hold, checked for its form alone. Raises Failure (exit 3), SpecError."""
    if is_spec(found):
        return _of_cluster(*bundles.from_document(found[0]))
    bodies = objects(found)
    for body in bodies:
        metadata = body.get("metadata")
        named = isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and bool(metadata["name"])
        if not (isinstance(body.get("apiVersion"), str) and isinstance(body.get("kind"), str) and named):
            raise Failure(f"{path}: {_something_else(body)}", Outcome.FINDINGS)
    if not bodies:
        raise Failure(f"{path}: no Kubernetes object is in it", Outcome.FINDINGS)
    return Given(bodies)


def _of_cluster(plan: "ClusterPlan", bundle: "Bundle") -> Given:
    notes = tuple(f"note: {note}" for note in bundle.notes)
    return Given(bundle.bodies, plan.cluster.name, plan.cluster.kubernetes, notes)


def is_run(body: dict[str, Any]) -> bool:
    """Whether this is a job or sweep file."""
    return body.get("kind") in ("Job", "Sweep") and "apiVersion" not in body


def _something_else(body: dict[str, Any]) -> str:
    if is_run(body):
        return f"a {str(body['kind']).lower()} file\n  it is run, not applied: raytrain-eks submit FILE --on eks"
    what = "a document of it is neither a cluster file nor a Kubernetes object with a name"
    return f"{what}\n  it needs apiVersion, kind and metadata.name"


def given(path: str, consequence: str) -> Given:
    """What a file holds, linted. Raises Failure (exit 3), SpecError, OSError."""
    found = documents(path)
    if is_spec(found):
        plan, bundle = bundles.from_document(found[0])
        remarks = bundles.refuse_what_cannot_run(plan, bundle, consequence)
        unchecked = _of_cluster(plan, bundle)
    else:
        unchecked = read(found, path)
        remarks = bundles.refuse_findings(found, consequence)
    return replace(unchecked, remarks=(*remarks, *unchecked.remarks))
