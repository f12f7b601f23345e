"""What a notebook shows: small pieces of HTML without scripts, styles of a page, or anything from a network.

Every text of a run (its messages, its name) is escaped; a log may hold anything.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 320, 80
"""Of a curve, in pixels."""
POINTS = 400
"""A curve is drawn with so many points at most."""
MONO = "font-family:monospace;white-space:pre-wrap"


def facts(title: str, about: Mapping[str, object]) -> str:
    """Names and values, one pair to a row; None is left out."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{linked(value)}</td></tr>"
        for name, value in about.items()
        if value is not None
    )
    return f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>{rows}</table>"


def linked(value: object) -> str:
    """A value as HTML; an address of the web as a link."""
    text = escape(str(value))
    if isinstance(value, str) and value.startswith(("http://", "https://")) and " " not in value:
        return f"<a href='{text}' target='_blank' rel='noopener'>{text}</a>"
    return text


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows that all have the keys of the first, with a heading."""
    if not rows:
        return "<i>none</i>"
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell(value: object) -> str:
    """One value of a table."""
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else linked(value)


def log(lines: Iterable[str]) -> str:
    """Lines of a log."""
    return f"<div style='{MONO}'>{escape(chr(10).join(lines))}</div>"


def curve(values: Sequence[tuple[int, float]]) -> str:
    """(step, value) as a line, the lowest and the highest value beside it; nothing for fewer than two of them."""
    known = [(step, value) for step, value in values if math.isfinite(value)]
    known = known[:: max(len(known) // POINTS, 1)] + known[-1:]
    if len(known) < 3:
        return ""
    low, high = min(value for _, value in known), max(value for _, value in known)
    first, last = known[0][0], known[-1][0]
    wide, tall = max(last - first, 1), max(high - low, 1e-12)
    points = " ".join(
        f"{(step - first) / wide * WIDTH:.1f},{HEIGHT - (value - low) / tall * HEIGHT:.1f}" for step, value in known
    )
    return (
        f"<svg width='{WIDTH + 60}' height='{HEIGHT + 8}' role='img' aria-label='training loss'>"
        f"<polyline transform='translate(0,4)' fill='none' stroke='currentColor' points='{points}'/>"
        f"<text x='{WIDTH + 4}' y='12' font-size='11' fill='currentColor'>{high:.3f}</text>"
        f"<text x='{WIDTH + 4}' y='{HEIGHT + 4}' font-size='11' fill='currentColor'>{low:.3f}</text></svg>"
    )
