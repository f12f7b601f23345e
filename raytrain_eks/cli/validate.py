"""`raytrain-eks validate`: check files, each on its own and against what it names."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.meant import meant
from raytrain_eks.cli.outcome import NO_NAME, Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.spec.problem import Problem
    from raytrain_eks.spec.source import Document

ENDINGS = (".yaml", ".yml")


@click.command(help="Check job, sweep and cluster files: files, folders, or - for standard input. Nothing is started.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@out.option()
def command(files: tuple[str, ...], output: str) -> int:
    from raytrain_eks.spec.problem import counted

    results = [examined(name) for name in dict.fromkeys(_names(files))]
    foreign = [result for result in results if result["foreign"] and result["file"] not in files]
    results = [result for result in results if result not in foreign]
    if foreign:
        click.echo(
            f"{counted(len(foreign), 'Kubernetes manifest')} left out; `raytrain-eks lint` checks those", err=True
        )
    problems = sum(len(result["problems"]) for result in results)
    for result in results:
        del result["foreign"]
    out.write(output, results, table=lambda: "\n".join(map(_shown, results)))
    if problems:
        wrong = sum(not result["valid"] for result in results)
        click.echo(f"{counted(problems, 'problem')} in {counted(wrong, 'file')} of {len(results)}", err=True)
        return Outcome.FINDINGS
    if len(results) > 1:
        click.echo(f"{counted(len(results), 'file')}, all valid", err=True)
    return Outcome.DONE


def examined(name: str) -> dict[str, Any]:
    """One file as plain data: `file`, `kind`, `name`, `valid`, and `problems` with path, place, value, rule, fix.

    `foreign` tells whether it is a Kubernetes manifest.
    """
    from raytrain_eks.spec.load import of_document, read_document
    from raytrain_eks.spec.problem import Problem, SpecError

    shown = "(stdin)" if name == "-" else name
    kind = called = None
    foreign = False
    problems: list[Problem] = []
    try:
        document = read_document(name)
        if isinstance(document.data, dict):
            foreign = "apiVersion" in document.data
            kind, called = (_text(document.data.get(key)) for key in ("kind", "name"))
        problems = list(_around(of_document(document), document))
    except SpecError as error:
        problems = list(error.problems)
    except OSError as error:
        fix = meant(name) if isinstance(error, FileNotFoundError) else None
        problems = [Problem(path="(file)", rule=f"cannot be read: {error.strerror}", fix=fix, file=shown)]
    return {
        "file": shown,
        "kind": kind,
        "name": called,
        "valid": not problems,
        "foreign": foreign,
        "problems": [_data(problem) for problem in problems],
    }


def _around(model: Any, document: "Document") -> "Iterator[Problem]":
    """What is wrong with a valid file in its surroundings: files that it names, instances that cannot give so much."""
    from raytrain_eks.spec.check import located

    if type(model).__name__ == "Cluster":
        from raytrain_eks.cli import bundles

        yield from bundles.problems(document)
        return
    from raytrain_eks.spec import nearby, sweep_job

    around = sweep_job.problems if type(model).__name__ == "Sweep" else nearby.problems
    yield from located(around(model, Path.cwd()), document)


def _names(files: tuple[str, ...]) -> Iterator[str]:
    for name in files:
        if not name:
            raise Failure(NO_NAME, Outcome.USAGE)
        folder = Path(name)
        if name == "-" or not folder.is_dir():
            yield name
            continue
        found = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and not _hidden(path, folder))
        if not found:
            raise Failure(f"{name}: no file in this folder ends in {' or '.join(ENDINGS)}", Outcome.USAGE)
        yield from map(str, found)


def _hidden(path: Path, folder: Path) -> bool:
    return not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _data(problem: "Problem") -> dict[str, Any]:
    keys = ("path", "line", "column", "value", "rule", "fix")
    return {"file": problem.file, **{key: getattr(problem, key) for key in keys}}


def _shown(result: dict[str, Any]) -> str:
    from raytrain_eks.spec.problem import Problem

    if result["valid"]:
        return f"{result['file']}: {result['kind']} {result['name']}, valid"
    return "\n".join(str(Problem(**problem)) for problem in result["problems"])
