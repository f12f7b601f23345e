"""How help is laid out: whole sentences behind sub-verbs, and many options in sections of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

WHOLE = 1000
"""More letters than any first sentence has: click cuts it off at the edge of the screen by itself."""


class Subverbs(click.Group):
    """A verb with verbs of its own; their first sentences are wrapped, not cut off."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = {name: self.get_command(context, name) for name in self.list_commands(context)}
        rows = [(name, verb.get_short_help_str(WHOLE)) for name, verb in verbs.items() if verb and not verb.hidden]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


class Sectioned(click.Command):
    """A verb with so many options that they stand in sections: heading -> names of its options, in order."""

    def __init__(self, *words: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*words, **more)
        self.sections = sections

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        options = [each for each in self.get_params(context) if isinstance(each, click.Option)]
        records = {each.name: each.get_help_record(context) for each in options}
        named = {name for names in self.sections.values() for name in names}
        rest = [str(name) for name in records if name not in named]
        for heading, names in {**self.sections, "Options": rest}.items():
            rows = [record for name in names if (record := records[name])]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
