"""From YAML text to nodes with marks, by the parser of ruamel.yaml; what is not YAML becomes one clear problem.

The parser's events are put together here and not by its own composer, which recurses without a limit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.spec.problem import Problem, SpecError

LINE_BREAK = re.compile("\r\n|[\n\r]")
"""What ends a line to the parser."""
DEPTH = 64
"""Levels of nesting. The deepest Kubernetes object has about 15."""


@dataclass(eq=False)
class Node:
    """A scalar, a sequence, a mapping (keys and values in turn), or an alias to another node."""

    kind: str
    mark: tuple[int, int]
    text: str = ""
    tag: str | None = None
    plain: bool = False
    children: list["Node"] = field(default_factory=list)
    alias_of: "Node | None" = None


def compose(text: str, file: str) -> list[Node]:
    """The root node of every document. Raises SpecError, with line and column, when the text is not YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return list(_roots(YAML(typ="safe", pure=True).parse(text), file))
    except SpecError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        rule, fix = _explained(error, text)
        place = _inside(mark.line, mark.column, text) if mark else (None, None)
        raise SpecError([Problem(path="(file)", rule=rule, fix=fix).at(file, *place)]) from None
    except YAMLError as error:
        position = getattr(error, "position", None)
        place = place_of(text, position) if isinstance(position, int) else (None, None)
        rule = f"not valid YAML: {error}".splitlines()[0]
        problem = Problem(path="(file)", rule=rule, fix="control characters are not text; is this the right file?")
        raise SpecError([problem.at(file, *place)]) from None
    except (ValueError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # The parser's own slips on broken input (`%YAML x`, a surrogate in an escape) are no bug of ours to show.
        problem = Problem(path="(file)", rule=f"not valid YAML: {error}".splitlines()[0], file=file)
        raise SpecError([problem]) from None


def place_of(text: str, position: int) -> tuple[int, int]:
    """Line and column, 1-based, of a position in a text."""
    *before, last = LINE_BREAK.split(text[:position])
    return len(before) + 1, len(last) + 1


def _inside(line: int, column: int, text: str) -> tuple[int, int]:
    """A parser's 0-based mark as line and column; the end of the text counts as the end of its last line."""
    lines = LINE_BREAK.split(text)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return (line + 1, column + 1) if line < len(lines) else (len(lines), len(lines[-1]) + 1)


def _roots(events: Any, file: str) -> Iterator[Node]:
    stack: list[Node] = []
    anchors: dict[str, Node] = {}
    for event in events:
        name = type(event).__name__
        if name == "DocumentStartEvent":
            stack, anchors = [Node(kind="document", mark=(1, 1))], {}
        elif name == "DocumentEndEvent":
            yield from stack.pop().children
        elif name in ("SequenceEndEvent", "MappingEndEvent"):
            stack.pop()
        elif name in ("ScalarEvent", "SequenceStartEvent", "MappingStartEvent", "AliasEvent"):
            mark = (event.start_mark.line + 1, event.start_mark.column + 1)
            node = _alias(event, mark, anchors, file) if name == "AliasEvent" else _node(event, name, mark)
            stack[-1].children.append(node)
            if name != "AliasEvent" and event.anchor:
                anchors[event.anchor] = node
            if node.kind in ("sequence", "mapping") and name != "AliasEvent":
                stack.append(node)
            if len(stack) > DEPTH:
                problem = Problem(path="(file)", rule=f"nested deeper than {DEPTH} levels", fix="write it flatter")
                raise SpecError([problem.at(file, *mark)])


def _node(event: Any, name: str, mark: tuple[int, int]) -> Node:
    tag = str(event.tag) if event.tag else None
    if name == "ScalarEvent":
        return Node(kind="scalar", mark=mark, text=event.value, tag=tag, plain=not event.style)
    return Node(kind="sequence" if name == "SequenceStartEvent" else "mapping", mark=mark, tag=tag)


def _alias(event: Any, mark: tuple[int, int], anchors: dict[str, Node], file: str) -> Node:
    target = anchors.get(event.anchor)
    if target is None:
        rule = f"`*{event.anchor}` is an alias in YAML, and nothing has the anchor `&{event.anchor}`"
        problem = Problem(path="(file)", rule=rule, fix=f'for the text, write quotes: "*{event.anchor}"')
        raise SpecError([problem.at(file, *mark)])
    return Node(kind=target.kind, mark=mark, text=target.text, alias_of=target)


def _explained(error: Any, text: str) -> tuple[str, str]:
    """Rule and fix of a syntax error, in words of the person who writes and not of the parser."""
    problem, context = str(error.problem or ""), str(error.context or "")
    if "'\\t'" in problem:
        return "a tab cannot indent YAML", "indent with spaces"
    if "cannot start any token" in problem:
        character = problem.split("character ", 1)[-1].split(" that", 1)[0].strip("'")
        return f"a value cannot start with `{character}`", f'put the value in quotes: "{character}..."'
    if "mapping values are not allowed" in problem:
        fix = "indent it like the keys beside it, or quote a value that holds `: `"
        return "a colon here would start a mapping inside a value, or the line is indented too far", fix
    if "<stream end>" in problem or "end of stream" in problem:
        opened = error.context_mark
        where = f" that opens on line {opened.line + 1}" if opened else ""
        what = "quoted text" if "quoted" in context else "list" if "sequence" in context else "mapping"
        return f"the file ends inside the {what}{where}", "close it: a bracket, a brace or a quote is missing"
    if "expected <block end>" in problem:
        return "this does not line up with the lines above it", "indent the entries of one mapping or list alike"
    if "expected ':'" in problem:
        return "a line that is neither `key: value` nor `- item`", "write a colon and a space after the key"
    if "escape character" in problem:
        return f"{problem} in double quotes", "write the backslash twice, or use single quotes"
    rule = " ".join(part for part in (context, problem) if part)
    return f"not valid YAML: {rule}", "check indentation, colons and quotes there"
