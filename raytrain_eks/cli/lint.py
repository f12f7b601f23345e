"""`raytrain-eks lint`: what cannot work in any Kubernetes manifests."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.given import is_run, manifest, manifests_in
from raytrain_eks.cli.outcome import NO_NAME, Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.lint import Report
    from raytrain_eks.spec.source import Document


@click.command(help="Find what cannot work in any Kubernetes manifests: files, folders, or - for standard input.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--kubernetes", default="1.33", show_default=True, metavar="VERSION", help="Version of the cluster.")
@click.option("--operator-version", default="1.7.0", show_default=True, metavar="VERSION", help="KubeRay's version.")
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Gates of that operator.")
@click.option("--external", multiple=True, metavar="KIND/NAME", help="What exists outside of the files; * for all.")
@out.option()
def command(
    files: tuple[str, ...],
    kubernetes: str,
    operator_version: str,
    feature_gates: str,
    external: tuple[str, ...],
    output: str,
) -> None:
    from raytrain_eks.lint import Settings, examine
    from raytrain_eks.lint.files import documents

    settings = Settings(
        kubernetes=_version(kubernetes, "--kubernetes"),
        operator=_version(operator_version, "--operator-version"),
        gates=dict(_gates(feature_gates)),
        external=frozenset(map(_declared, external)),
    )
    read = documents(_texts(files))
    report = examine(read, settings)
    data = {"findings": [finding.as_data() for finding in report.findings], "silenced": report.silenced}
    out.write(output, data, table=lambda: "\n".join(map(str, report.findings)))
    for line in filter(None, map(_left_out, read)):
        click.echo(line, err=True)
    click.echo(_summary(report), err=True)
    if report.findings:
        raise SystemExit(Outcome.FINDINGS)


def _left_out(document: "Document") -> str | None:
    """What is said of a document that is no Kubernetes object; None for objects, for nothing at all, and for what is a
    finding."""
    from raytrain_eks.lint.rules.objects import faults

    data = document.data
    fields = data if isinstance(data, dict) else {}
    listed = isinstance(data, list) and (not data or any(map(_is_object, data)))
    if data is None or _is_object(data) or listed or faults(document):
        return None
    if fields.get("kind") == "Cluster":
        return f"{document.file} is a cluster file: `raytrain-eks render` lints what it becomes"
    if is_run(fields):
        return f"{document.file} is a {fields['kind'].lower()} file: `raytrain-eks validate` checks it"
    return f"{document.file}: a document without apiVersion and kind was not looked at"


def _is_object(data: Any) -> bool:
    return isinstance(data, dict) and "apiVersion" in data and "kind" in data


def _version(value: str, name: str) -> str:
    if not re.fullmatch(r"v?\d+\.\d+(\.\d+)?", value):
        raise click.BadParameter(f"{value!r} is not a version such as 1.33", param_hint=name)
    return value.removeprefix("v")


def _gates(value: str) -> Iterator[tuple[str, bool]]:
    from raytrain_eks.manifests.rules import GATES
    from raytrain_eks.spec.problem import nearest

    for entry in filter(None, value.split(",")):
        name, _, state = entry.strip().partition("=")
        if state not in ("true", "false"):
            raise click.BadParameter(f"{entry!r} is not NAME=true or NAME=false", param_hint="--feature-gates")
        if name not in GATES:
            guess = nearest(name, GATES)
            hint = f"did you mean {guess}?" if guess else f"known: {', '.join(GATES)}"
            raise click.BadParameter(f"KubeRay has no gate {name}; {hint}", param_hint="--feature-gates")
        yield name, state == "true"


def _declared(value: str) -> str:
    if not re.fullmatch(r"[^/\s]+/\S+", value):
        raise click.BadParameter(f"{value!r} is not KIND/NAME or KIND/NAMESPACE/NAME", param_hint="--external")
    return value.lower()


def _texts(files: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of every file; of a folder every YAML and JSON file below it, in the order of names."""
    for name in files:
        if not name:
            raise Failure(NO_NAME, Outcome.USAGE)
        if Path(name).is_dir():
            yield from map(manifest, manifests_in(Path(name)))
        else:
            yield manifest(name)


def _summary(report: "Report") -> str:
    def counted(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    if not report.objects and not report.findings:
        return "no Kubernetes object is in these files"
    parts: list[Any] = [counted(report.objects, "object"), counted(errors, "error"), counted(warnings, "warning")]
    if report.silenced:
        each = ", ".join(f"{rule} {number}" for rule, number in sorted(report.silenced.items()))
        parts.append(f"{sum(report.silenced.values())} silenced ({each})")
    shown = ", ".join(parts)
    return shown + ("; `raytrain-eks explain RULE` tells more" if report.findings else "")
