"""Where `init` writes its file: checked as any file is, then in its place, whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli.outcome import Failure, Outcome


def common(function: Any) -> Any:
    """The options that every kind of file has."""
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Ask nothing: take the default of what no option says."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
        click.option("--name", metavar="NAME", help="What it is called; FILE is named after it."),
        click.argument("file", required=False),
    ):
        function = option(function)
    return function


def where(folder: str) -> str:
    """The help's sentences about FILE."""
    return f"FILE is {folder}/NAME.yaml unless given, or NAME.yaml where there is no such folder; - is stdout."


def place_for(file: str | None, name: str, folder: str) -> str:
    """Where the file goes: as said, else by its name, in the usual folder where there is one."""
    if file is not None:
        return file
    return str(Path(folder, f"{name}.yaml")) if Path(folder).is_dir() else f"{name}.yaml"


def write(target: str, text: str, *, verb: str, force: bool, check: Callable[[str, str], object]) -> None:
    """Check the text, then put it in its place, whole or not at all, and say what to do with it.

    `check` gets the text and the file's name and raises SpecError; `verb` is the next one that the file is for.
    Raises SpecError, and Failure when the file exists or is none.
    """
    from raytrain_eks.spec.first_cluster import to_fill_in
    from raytrain_eks.spec.problem import SpecError

    try:
        check(text, target)
    except SpecError as error:
        raise error.so("nothing written") from None
    if target == "-":
        click.echo(text, nl=False)
        return
    _put(target, text, force)
    click.echo(target)
    places = to_fill_in(text)
    for number, key in places:
        click.echo(f"{target}:{number}: fill in {key}", err=True)
    then = "once that is filled in" if places else "next"
    click.echo(f"written and valid; {then}: raytrain-eks {verb} {target}", err=True)


def _put(target: str, text: str, force: bool) -> None:
    path = Path(target)
    if not target or (path.exists() and not path.is_file()):
        raise Failure(f"{target or 'the empty name'} is no file to write; give FILE.yaml", Outcome.USAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".init-", delete=False, encoding="utf-8") as made:
        made.write(text)
    try:
        os.chmod(made.name, 0o666 & ~_umask())
        if force:
            os.replace(made.name, path)
        else:
            os.link(made.name, path)
    except FileExistsError:
        raise Failure(f"{target} exists; nothing written\n  give another FILE, or --force", Outcome.USAGE) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made.name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
