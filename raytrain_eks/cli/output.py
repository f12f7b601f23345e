"""Machine output on stdout: `-o table|yaml|json`, always in the same order, without timestamps.

A table is for people: aligned columns, headings in bold on a terminal unless NO_COLOR is set (no-color.org). YAML and
JSON are for programs: the same keys in the same order each time. Talk never goes through here; it belongs to stderr.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

FORMATS = ("table", "yaml", "json")
Command = TypeVar("Command", bound=Callable[..., Any])


def option(default: str = "table") -> Callable[[Command], Command]:
    """The option `-o`/`--output` of a verb; the function gets it as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default=default,
        show_default=True,
        help="How the result is written to stdout.",
    )


def write(output: str, data: Any, *, table: Callable[[], str]) -> None:
    """`data` (plain data) to stdout as YAML or JSON, or `table()` when a table is asked for."""
    if output == "json":
        import json

        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif output == "yaml":
        click.echo(as_yaml(data), nl=False)
    elif text := table():
        click.echo(text)


def as_yaml(data: Any) -> str:
    """YAML 1.2 of plain data in its own order; texts that some reader would take for something else are quoted."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def quoted(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: quoted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [quoted(item) for item in value]
        return DoubleQuotedScalarString(value) if isinstance(value, str) and _ambiguous(value) else value

    yaml = YAML(typ="rt", pure=True)
    yaml.width = 10**6
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.allow_unicode = True
    stream = io.StringIO()
    yaml.dump(quoted(data), stream)
    return stream.getvalue()


def _ambiguous(text: str) -> bool:
    """Whether some YAML reader takes the bare text for a number, a truth value, a date or nothing."""
    import re

    number = r"[-+]?\.?[0-9][0-9_.:xobeE+\-a-fA-FTZ ]*"
    word = r"(?i:y|n|yes|no|on|off|true|false|null|~|[-+]?\.(inf|nan))|=|<<"
    return bool(re.fullmatch(rf"{number}|{word}|", text))


def colored() -> bool:
    """Whether stdout is a terminal that may be given colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bold(text: str) -> str:
    """The text in bold where colours are welcome."""
    return click.style(text, bold=True) if colored() else text


def aligned(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> str:
    """A table of plain columns two blanks apart; headings named in `right` are of columns aligned to the right.

    None is shown as `-`. Without rows it is empty.
    """
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(line[column]) for line in [list(headings), *cells]) for column in range(len(headings))]
    flush_right = [heading in set(right) for heading in headings]

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, flush_right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([bold(line(list(headings))), *map(line, cells)])


def pairs(facts: Mapping[str, object]) -> str:
    """Facts one below the other: name, then value; None is left out."""
    shown = {name: str(value) for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    return "\n".join(f"{bold(name.ljust(width))}  {value}".rstrip() for name, value in shown.items())
