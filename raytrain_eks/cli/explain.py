"""`raytrain-eks explain`: what a field, a rendered object or a lint rule is about; the JSON Schema for editors."""

import re
from typing import TYPE_CHECKING

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.spec.explain import Explanation

_RULE = re.compile(r"[A-Za-z]{2}\d{1,4}")
EXAMPLES = """\
A field, by its path:            raytrain-eks explain job.data.sequence_length
Everything in a file:            raytrain-eks explain cluster
A lint rule, by its id:          raytrain-eks explain RT101
A rendered object or its part:   raytrain-eks explain -f cluster.yaml RayCluster/NAME.spec.headGroupSpec
The JSON Schema for an editor:   raytrain-eks explain --schema job"""


@click.command(help="Say what a field, a rendered object or a lint rule is about.", epilog="\b\n" + EXAMPLES)
@click.argument("target", required=False, metavar="[PATH | RULE | KIND/NAME]")
@click.option("-f", "--file", type=click.Path(dir_okay=False), help="The cluster file that the object comes from.")
@click.option(
    "--schema", type=click.Choice(["job", "cluster"]), help="Print the JSON Schema (2020-12) of a kind of file."
)
@out.option()
def command(target: str | None, file: str | None, schema: str | None, output: str) -> None:
    if sum(each is not None for each in (target, schema)) != 1:
        raise click.UsageError(f"give one thing to explain\n\n{EXAMPLES}")
    if schema is not None:
        _schema(schema, output)
    elif file is not None:
        _object(file, str(target), output)
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
    return "\n\n".join(parts)


def _first(text: str) -> str:
    """The first sentence of a documentation, on one line."""
    line = " ".join(text.split())
    sentence = re.match(r"(.*?\.)( [A-Z`(]|\Z)", line)
    return sentence.group(1) if sentence else line
