"""`raytrain-eks diff`: what changed, by meaning, between two cluster files or bundles, or between one and a cluster.

A side is a cluster file, a file of Kubernetes objects, or a folder of such files. Two cluster files are compared as
files, or as what they render to with `--rendered`; a cluster file against a bundle is rendered first. One side alone is
compared with what the Kubernetes cluster has: what `apply` would change there, and what it would leave behind.
Exit codes, as of diff(1) and `kubectl diff`: 0 no difference, 1 differences, 2 wrong usage or a file that cannot be
read, 3 problems in a file, 4 the cluster is unreachable or does not allow it.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import given as files
from raytrain_eks.cli import kube_options
from raytrain_eks.cli import output as out

if TYPE_CHECKING:
    from raytrain_eks.manifests.compare import Change
    from raytrain_eks.spec.source import Document

DIFFERENT = 1
"""As diff(1) and `kubectl diff` say it; 3 is taken by files with problems."""
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}


HELP = """Compare two cluster files or bundles by meaning: 1024Mi equals 1Gi. One alone is compared with what the
Kubernetes cluster has. Exit 1: they differ."""


@click.command(help=HELP)
@click.argument("old", metavar="FILE | OLD NEW", type=click.Path())
@click.argument("new", metavar="", type=click.Path(), required=False)
@kube_options.options
@click.option("--rendered", is_flag=True, help="Compare what two cluster files render to, instead of the files.")
@out.option()
def command(old: str, new: str | None, where: dict[str, Any], rendered: bool, output: str) -> int:
    if new is None:
        if rendered:
            raise click.UsageError("--rendered is for two files; one file is always rendered")
        changes = _against_cluster(old, where)
    elif any(where.values()):
        raise click.UsageError("two files are compared without a cluster; leave NEW out to compare OLD with one")
    elif old == new == "-":
        raise click.UsageError("standard input can be one of the two sides, not both")
    else:
        changes = _of_files(old, new, rendered)
    _write(output, changes)
    return DIFFERENT if changes else 0


def _of_files(old: str, new: str, rendered: bool) -> "list[Change]":
    from raytrain_eks.manifests import compare

    before, after = files.documents(old), files.documents(new)
    if files.is_spec(before) and files.is_spec(after) and not rendered:
        return compare.trees(_spec(before[0]), _spec(after[0]))
    return compare.bundles(files.objects(before), files.objects(after))


def _against_cluster(file: str, where: dict[str, Any]) -> "list[Change]":
    from raytrain_eks.kube import compare

    found = files.read(files.documents(file), file)
    with kube_options.client_of(where) as client:
        click.echo(f"{file} against {client.context} ({client.server})", err=True)
        client.version()
        return list(compare.changes(client, found.bodies, found.cluster, lambda text: click.echo(text, err=True)))


def _spec(document: "Document") -> Any:
    """The cluster file as plain data with every default filled in."""
    from raytrain_eks.spec.load import of_document

    return of_document(document, expect="Cluster").model_dump(mode="json")


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
