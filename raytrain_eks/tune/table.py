"""A sweep as text: the table that a person watches, the leaderboard at the end, and lines where nobody watches.

Pure: a history in, text out. A driver's progress line has the fixed form
`trial t0003  step 40  held_out_loss 6.1234  running  optimizer.learning_rate=0.001  batch.sequences=8`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from raytrain_eks.tune.history import STATES, History, Trial
from raytrain_eks.tune.record import ENDS

SHORTEST = 6
"""Characters that a column keeps at least when the terminal is narrow."""
FIXED = ("TRIAL", "STATE", "STEP")
"""Columns that keep their width; they are short."""
WIDEST = 24
"""Characters of a parameter's value at most."""
REASON = 48
"""Characters of a reason in a table; the report has all of it."""


def shown(value: Any) -> str:
    """A value in few characters and on one line: `0.001234`, `3e-05`, `adamw`; a control character is escaped."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return clipped(plain(value if isinstance(value, str) else json.dumps(value, default=str)), WIDEST)


def plain(text: str) -> str:
    """The text on one line and safe for a terminal: what cannot be printed is escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def objective(value: float | None) -> str | None:
    """An objective as the tables have it, `6.1234`; very large and very small ones with an exponent."""
    if value is None:
        return None
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.3e}"


def clipped(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def short(names: Sequence[str]) -> dict[str, str]:
    """Path -> its shortest end that no other path has: `optimizer.learning_rate` is `learning_rate` if that is one."""
    found = {}
    for name in names:
        parts = name.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        found[name] = next((end for end in ends if sum(_ends(other, end) for other in names) == 1), name)
    return found


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def table(history: History, columns: int | None = None, most: int | None = None) -> str:
    """The sweep as it is now: a line of counts, then a row for each trial in the order of creation.

    `columns` is the terminal's width; no line is wider. None: as wide as it has to be. Of more than `most` trials those
    that run and the best of the others are shown.
    """
    named = short(history.parameters())
    headings = ["TRIAL", "STATE", "STEP", history.metric.upper(), "BEST", *named.values(), "WHY"]
    trials = history.trials
    if most is not None and len(trials) > most:
        by_interest = sorted(history.ranked(), key=lambda trial: trial.state != "running")
        chosen = {trial.id for trial in by_interest[:most]}
        trials = [trial for trial in trials if trial.id in chosen]
    leader = history.best
    rows = [_row(trial, history, list(named), "*" if trial is leader else "") for trial in trials]
    text = [summary(history), *_aligned(headings, rows, columns)]
    if len(trials) < len(history.trials):
        text.append(f"and {len(history.trials) - len(trials)} more")
    return "\n".join(clipped(line, columns or 10**6) for line in text)


def summary(history: History) -> str:
    """`sweep lr: 3 completed, 1 running of 4 trials, best t0002 6.1234 at step 40`."""
    counts = ", ".join(f"{count} {state}" for state, count in history.counts().items()) or "no trial yet"
    total = f" of {len(history.trials)} trials" if len(history.counts()) > 1 else ""
    return f"sweep {plain(history.name)}: {counts}{total}{_best(history)}"


def _best(history: History) -> str:
    best = history.best
    return f", best {best.id} {objective(best.value)} at step {best.step}" if best is not None else ""


def _row(trial: Trial, history: History, names: list[str], star: str) -> list[str | None]:
    best = trial.best(history.mode)
    values = [shown(trial.parameters[name]) if name in trial.parameters else None for name in names]
    why = clipped(shown_reason(trial), REASON) or None
    return [
        trial.id + star,
        trial.state,
        str(trial.step) if trial.step is not None else None,
        objective(trial.value),
        objective(best[1] if best else None),
        *values,
        why,
    ]


def shown_reason(trial: Trial) -> str:
    """Why a trial is where it is, on one line; the last decision or the last clone where it has no other reason."""
    if trial.reason:
        return plain(" ".join(trial.reason.split()))
    if trial.clones and trial.state == "running":
        last = trial.clones[-1]
        return f"from {last.donor} at step {last.donor_step}"
    return ""


def leaderboard(history: History, most: int = 10) -> str:
    """The best trials first, with rank; empty without any objective."""
    named = short(history.parameters())
    ranked = [trial for trial in history.ranked() if trial.points]
    rows: list[list[str | None]] = []
    for rank, trial in enumerate(ranked[:most], start=1):
        best = trial.best(history.mode)
        values = [shown(trial.parameters[name]) if name in trial.parameters else None for name in named]
        numbers = [objective(trial.value), str(trial.step or 0), objective(best[1] if best else None)]
        rows.append([str(rank), trial.id, trial.state, *numbers, *values])
    headings = ["RANK", "TRIAL", "STATE", history.metric.upper(), "STEP", "BEST", *named.values()]
    text = _aligned(headings, rows, None) if rows else []
    left = len(ranked) - most
    return "\n".join([*text, *([f"and {left} more"] if left > 0 else [])])


def _aligned(headings: list[str], rows: list[list[str | None]], columns: int | None) -> list[str]:
    """Lines of columns two blanks apart; a column that is empty everywhere is left out, the widest give way first."""
    kept = [column for column in range(len(headings)) if any(row[column] is not None for row in rows)]
    if not rows or not kept:
        return []
    cells = [[plain(headings[column]) for column in kept]] + [[row[column] or "-" for column in kept] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(kept))]
    elastic = [index for index in range(len(kept)) if cells[0][index] not in FIXED]
    while columns is not None and elastic and sum(widths) + 2 * (len(widths) - 1) > columns:
        widest = max(elastic, key=lambda index: widths[index])
        if widths[widest] <= SHORTEST:
            break
        widths[widest] -= 1
    numeric = [all(_number(line[column]) for line in cells[1:]) for column in range(len(kept))]
    return ["  ".join(map(_cell, line, widths, numeric)).rstrip() for line in cells]


def _cell(text: str, width: int, right: bool) -> str:
    text = clipped(text, width)
    return text.rjust(width) if right else text.ljust(width)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True


class Lines:
    """Turns a history that grows into lines, for a log: one for each trial that has news since the last call."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Any, ...]] = {}

    def of(self, history: History) -> list[str]:
        """The news."""
        found = []
        for trial in history.trials:
            news = (trial.state, trial.step, trial.value, len(trial.clones), trial.starts)
            if self._told.get(trial.id) != news:
                found.append(line(trial, history.metric, parameters=trial.id not in self._told or bool(trial.clones)))
                self._told[trial.id] = news
        return found


def line(trial: Trial, metric: str, *, parameters: bool) -> str:
    """One trial on one line, its parts two blanks apart; with its parameters where they are news."""
    parts = [f"trial {trial.id}"]
    if trial.step is not None:
        parts.append(f"step {trial.step}")
    if trial.value is not None:
        parts.append(f"{plain(metric)} {objective(trial.value)}")
    parts.append(trial.state)
    if parameters and trial.state not in ENDS:
        parts += [" ".join(f"{plain(name)}={shown(value)}".split()) for name, value in trial.parameters.items()]
    why = shown_reason(trial)
    if why and (trial.state in ENDS or trial.clones):
        parts.append(f"({clipped(why, 200)})")
    return "  ".join(parts)


_LINE = re.compile(
    r"trial (?P<id>\S+)(?:  step (?P<step>\d+))?(?:  (?P<metric>\S+) (?P<value>\S+))?  (?P<state>[a-z]+)"
)


def parse(text: str) -> tuple[Trial, str | None] | None:
    """A trial and the metric's name, as a progress line tells them; None for every other line.

    Parameters are texts there, and only the newest objective is known.
    """
    match = _LINE.match(text)
    if match is None or match["state"] not in STATES:
        return None
    rest = text[match.end() :].strip()
    body, _, why = rest.partition("(") if rest.endswith(")") else (rest, "", "")
    told = dict(part.split("=", 1) for part in body.split("  ") if "=" in part)
    trial = Trial(id=match["id"], parameters=told, state=match["state"], reason=why.removesuffix(")") or None)
    trial.step = int(match["step"]) if match["step"] else None
    if match["value"] and trial.step is not None and _number(match["value"]):
        trial.points[trial.step] = float(match["value"])
    return trial, match["metric"]
