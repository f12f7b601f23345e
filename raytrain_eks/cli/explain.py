"""`raytrain-eks explain`: what a field, an object, a lint rule or a reason code is about; the schema for editors."""

import re
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.spec.explain import Explanation

_RULE = re.compile(r"[A-Za-z]{2}\d{1,4}")
EXAMPLES = """\
A field, by its path:            raytrain-eks explain job.data.sequence_length
The fields of a file:            raytrain-eks explain cluster
A lint rule, by its id:          raytrain-eks explain RT101
A reason code of Kubernetes:     raytrain-eks explain InsufficientCapacityError
A rendered object or its part:   raytrain-eks explain -f cluster.yaml RayCluster/NAME.spec.headGroupSpec
The JSON Schema for an editor:   raytrain-eks explain --schema job"""


@click.command(
    help="Say what a field, a rendered object, a lint rule or a reason code is about.", epilog="\b\n" + EXAMPLES
)
@click.argument("target", required=False, metavar="[PATH | RULE | REASON | KIND/NAME]")
@click.option("-f", "--file", type=click.Path(dir_okay=False), help="The cluster file that the object comes from.")
@click.option(
    "--schema",
    type=click.Choice(["job", "cluster", "sweep"]),
    help="Print the JSON Schema (2020-12) of a kind of file.",
)
@out.option()
def command(target: str | None, file: str | None, schema: str | None, output: str) -> None:
    if sum(each is not None for each in (target, schema)) != 1:
        raise click.UsageError(f"give one thing to explain\n\n{EXAMPLES}")
    if schema is not None:
        _schema(schema, output)
    elif file is not None:
        _object(file, str(target), output)
    elif _is_reason(str(target)):
        _reason(str(target), output)
    elif "/" in str(target):
        raise click.UsageError(f"an object comes from a cluster file: raytrain-eks explain -f FILE {target}")
    elif _RULE.fullmatch(str(target)):
        _rule(str(target), output)
    else:
        _field(str(target), output)


def _schema(kind: str, output: str) -> None:
    from raytrain_eks.spec.load import model_of
    from raytrain_eks.spec.schema import json_schema

    # A schema is JSON; a table of it would help nobody.
    out.write("yaml" if output == "yaml" else "json", json_schema(model_of(kind.capitalize())), table=str)


def _object(file: str, target: str, output: str) -> None:
    from raytrain_eks.cli import bundles
    from raytrain_eks.manifests.bundle import explain_object

    _, bundle = bundles.read(file)
    if "/" not in target:
        known = ", ".join(each.key for each in bundle.objects)
        raise click.UsageError(f"an object is KIND/NAME; {file} makes {known}")
    try:
        lines = explain_object(bundle, target)
    except KeyError as error:
        raise Failure(str(error.args[0]), Outcome.USAGE) from None
    out.write(output, lines, table=lambda: "\n".join(lines))


def _rule(id: str, output: str) -> None:
    from raytrain_eks.lint.registry import rules
    from raytrain_eks.spec.problem import nearest

    known = rules()
    rule = known.get(id.upper())
    if rule is None:
        guess = nearest(id.upper(), known)
        hint = f"did you mean {guess}?" if guess else f"they run from {min(known)} to {max(known)}"
        raise Failure(f"there is no rule {id}; {hint}", Outcome.USAGE)
    data = {"id": rule.id, "severity": rule.severity, "title": rule.title, "why": rule.why, "fix": rule.fix}
    out.write(output, data, table=rule.explanation)


def _is_reason(target: str) -> bool:
    from raytrain_eks.kube.reasons import about

    # Fields begin with a small letter; finalizers are the only codes that do.
    return (target[:1].isupper() or "/" in target) and bool(about(target))


def _reason(code: str, output: str) -> None:
    from raytrain_eks.kube.reasons import about

    found = about(code)
    data = [
        {
            "codes": list(row.codes),
            "kinds": list(row.kinds),
            "message": row.pattern.pattern if row.pattern else None,
            "severity": row.severity,
            "says": row.says,
            "fix": row.fix or None,
            "source": row.source,
        }
        for row in found
    ]
    parts = [
        out.pairs({"means": row["says"], "severity": row["severity"], "fix": row["fix"]} | _where(row)) for row in data
    ]
    out.write(output, data, table=lambda: "\n\n".join([out.bold(code), *parts]))


def _where(row: dict[str, Any]) -> dict[str, object]:
    """On which kinds, with which message, and who says so."""
    kinds = ", ".join(row["kinds"]) or None
    return {"on": kinds, "where the message has": row["message"], "source": row["source"]}


def _field(path: str, output: str) -> None:
    from raytrain_eks.spec.explain import explain

    try:
        found = explain(path)
    except KeyError as error:
        raise Failure(str(error.args[0]), Outcome.USAGE) from None
    out.write(output, found.as_data(), table=lambda: _shown(found))


def _shown(found: "Explanation") -> str:
    facts = {
        "type": found.type if found.type != "file" else None,
        "values": ", ".join(found.values) or None,
        "default": found.default,
    }
    head = out.bold(found.path) + (" (required)" if found.required and found.type != "file" else "")
    parts = [head, found.text]
    if any(facts.values()):
        parts.append(out.pairs(facts))
    if found.fields:
        rows = [
            (field.path.rpartition(".")[2], "required" if field.required else field.default, _first(field.text))
            for field in found.fields
        ]
        parts.append(out.aligned(("FIELD", "DEFAULT", "WHAT"), rows))
        parts.append(f"More of one: raytrain-eks explain {found.path}.FIELD")
    return "\n\n".join(parts)


def _first(text: str) -> str:
    """The first sentence of a documentation, on one line."""
    line = " ".join(text.split())
    sentence = re.match(r"(.*?\.)( [A-Z`(]|\Z)", line)
    return sentence.group(1) if sentence else line
