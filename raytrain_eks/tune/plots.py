"""The plots of a sweep's report, each a pure function of its history; None where there is nothing to show."""

from collections.abc import Mapping, Sequence

from raytrain_eks.tune.history import BAD, History, Trial, number
from raytrain_eks.tune.importance import Importance
from raytrain_eks.tune.svg import (
    BLUE,
    BOTTOM,
    GREEN,
    GREY,
    LEFT,
    ORANGE,
    RED,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Point,
    Scale,
    thin,
)
from raytrain_eks.tune.table import objective, short, shown

POINTS = 80
"""Points of a curve that are drawn at most."""
MOST_AXES = 10
"""Parallel axes that are legible side by side."""
MOST_ROWS = 60
"""Trials of a lineage diagram."""
Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Trial -> (step, value), in the order of the steps."""


def cut(drawn: int, all_of_them: int, what: str) -> str:
    """The sentence about what is not drawn; empty when everything is."""
    return f"Only the first {drawn} of {all_of_them} {what} are drawn." if drawn < all_of_them else ""


def marks(trial: Trial) -> tuple[str, str]:
    """Colour and shape of a trial's state: what ended badly is a cross, what was stopped early a ring."""
    if trial.state in BAD:
        return RED, "cross"
    return (GREY, "ring") if trial.state in ("stopped", "cancelled") else (BLUE, "disc")


def tips(history: History) -> dict[str, str]:
    """Trial -> its tooltip."""
    named = short(history.parameters())
    found = {}
    for trial in history.trials:
        best = trial.best(history.mode)
        reached = f", {history.metric} {objective(best[1])} at step {best[0]}" if best else ""
        values = [f"{named[name]} = {shown(value)}" for name, value in trial.parameters.items()]
        found[trial.id] = "\n".join([f"{trial.id} {trial.state}{reached}", *values])
    return found


def optimisation(history: History) -> Chart | None:
    """The last objective of each trial in the order of creation, and the best so far as a staircase."""
    seen = [(trial, trial.value) for trial in history.trials if trial.value is not None]
    if not seen:
        return None
    better = max if history.mode == "max" else min
    most = objective(better(value for _, value in seen))
    chart = Chart("Optimisation history", f"{len(seen)} trials; the best {history.metric} is {most}")
    told, leader = tips(history), history.best
    values = [value for _, value in seen]
    x, y = chart.horizontal([trial.number for trial, _ in seen]), chart.vertical(values, log=None)
    chart.axes(x, y, across="trial, in the order of creation", up=history.metric, whole=True)
    stairs: list[Point] = []
    so_far = values[0]
    for trial, value in seen:
        stairs.append((x(trial.number), y(so_far)))
        so_far = better(so_far, value)
        stairs.append((x(trial.number), y(so_far)))
    chart.path(stairs, colour=ORANGE, width=2, tip="best so far")
    for trial, value in seen:
        colour, shape = (BLUE, "star") if trial is leader else marks(trial)
        chart.dot(x(trial.number), y(value), colour=colour, shape=shape, tip=told[trial.id])
    return chart


def curves(history: History, lines: Curves, *, title: str, what: str) -> Chart | None:
    """A curve for each trial over its steps; the best trial's is drawn last and thick."""
    drawn = {trial.id: thin([(float(x), y) for x, y in lines.get(trial.id, ())], POINTS) for trial in history.trials}
    points = [point for line in drawn.values() for point in line]
    if not points:
        return None
    best, told = history.best, tips(history)
    chart = Chart(title, f"{what} of {sum(map(bool, drawn.values()))} trials over their optimizer steps")
    x, y = chart.horizontal([step for step, _ in points]), chart.vertical([value for _, value in points], log=None)
    chart.axes(x, y, across="optimizer step", up=what, whole=True)
    # Many curves are a crowd; few are told apart.
    faint = max(0.25, min(0.8, 8 / len(history.trials)))
    for trial in sorted(history.trials, key=lambda trial: trial is best):
        line = [(x(step), y(value)) for step, value in drawn[trial.id]]
        colour, _ = marks(trial)
        mine = trial is best
        colour, width, opacity = (ORANGE, 2.5, 1.0) if mine else (colour, 1.2, faint)
        chart.path(line, colour=colour, width=width, opacity=opacity, tip=told[trial.id])
        if mine and line:
            chart.text(min(line[-1][0] + 4, WIDTH - 48), line[-1][1] - 5, trial.id, css="b")
    return chart


def parallel(history: History) -> Chart | None:
    """An axis for each parameter and one for the objective; a line for each trial, the best fifth in colour."""
    ranked = [trial for trial in history.ranked() if trial.points]
    every = [name for name in history.parameters() if any(name in trial.parameters for trial in ranked)]
    names = every[:MOST_AXES]
    if len(ranked) < 2 or not names:
        return None
    over = f"{len(ranked)} trials over {len(names)} parameters and {history.metric}"
    chart = Chart("Parallel coordinates", over, height=360, cut=cut(len(names), len(every), "parameters"))
    told = tips(history)
    axes = [_axis(chart, [trial.parameters.get(name) for trial in ranked]) for name in names]
    results = [trial.value for trial in ranked]
    axes.append(_axis(chart, list(results)))
    gap = (WIDTH - RIGHT - 56 - LEFT) / len(names)
    top = max(len(ranked) // 5, 1)
    for rank in reversed(range(len(ranked))):
        trial = ranked[rank]
        cells = [axis[0].get(_word(trial.parameters.get(name))) for name, axis in zip(names, axes, strict=False)]
        cells.append(axes[-1][0].get(_word(results[rank])))
        line = [(LEFT + column * gap, at) for column, at in enumerate(cells) if at is not None]
        colour, opacity = (ORANGE, 0.9) if rank < top else (GREY, 0.45)
        chart.path(line, colour=colour, width=2.5 if rank == 0 else 1.2, opacity=opacity, tip=told[trial.id])
    named = short(history.parameters())
    for column, title in enumerate([*(named[name] for name in names), history.metric]):
        across = LEFT + column * gap
        chart.path([(across, TOP), (across, chart.bottom)], colour="currentColor")
        for text, at in axes[column][1]:
            chart.text(across + 5, at + 4, text, css="h")
        chart.text(across, chart.height - 12 - 14 * (column % 2), title[:28], anchor="middle", css="n")
    return chart


def _axis(chart: Chart, values: Sequence[object]) -> tuple[dict[str, float], list[tuple[str, float]]]:
    """Value (as a word) -> pixel, and the marks of the axis. Numbers lie on a scale, everything else evenly."""
    present = [value for value in values if value is not None]
    numbers = [found for value in present if (found := number(value)) is not None]
    if present and len(numbers) == len(present):
        scale = chart.vertical(numbers, log=None)
        spread = scale.ticks(5) if len(set(numbers)) > 5 else sorted(set(numbers))
        return {_word(value): scale(float(value)) for value in numbers}, [(shown(each), scale(each)) for each in spread]
    words = sorted({_word(value) for value in present})
    scale = Scale(-0.5, len(words) - 0.5, chart.bottom, TOP)
    places = {word: scale(index) for index, word in enumerate(words)}
    return places, [(shown(word), at) for word, at in places.items()]


def _word(value: object) -> str:
    as_number = number(value)
    return repr(as_number) if as_number is not None else shown(value)


def importances(found: Importance) -> Chart | None:
    """A bar for each parameter's share."""
    if not found.shares:
        return None
    shares = list(found.shares.items())[:MOST_AXES]
    named = short(list(found.shares))
    as_words = ", ".join(f"{named[name]} {share:.0%}" for name, share in shares)
    chart = Chart("Parameter importance", as_words, height=24 * len(shares) + 16, left=190)
    chart.cut = cut(len(shares), len(found.shares), "parameters")
    for row, (name, share) in enumerate(shares):
        at = 8 + row * 24
        chart.text(182, at + 14, named[name][:26], anchor="end")
        chart.bar(190, at + 3, share * (WIDTH - 190 - 60), 15, colour=BLUE, tip=f"{name}: {share:.1%}")
        chart.text(196 + share * (WIDTH - 190 - 60), at + 14, f"{share:.0%}")
    return chart


def rungs(history: History) -> Chart | None:
    """The scheduler's decisions: at each rung the trials' objectives, kept ones filled, the cut-off as a line."""
    seen = [(trial, rung) for trial in history.trials for rung in trial.rungs if rung.value is not None]
    if not seen:
        return None
    steps = sorted({rung.step for _, rung in seen})
    stopped = sum(not rung.kept for _, rung in seen)
    chart = Chart(
        "Rungs", f"{len(seen)} decisions at steps {', '.join(map(str, steps))}; {stopped} trials were stopped"
    )
    values = [value for _, rung in seen for value in (rung.value, rung.cutoff) if value is not None]
    y = chart.vertical(values, log=None)
    places = Scale(-0.5, len(steps) - 0.5, chart.left, WIDTH - RIGHT)
    for value in y.ticks():
        chart.text(chart.left - 6, y(value) + 4, f"{value:.4g}", anchor="end")
        chart.path([(chart.left, y(value)), (WIDTH - RIGHT, y(value))], css="g")
    width = (WIDTH - RIGHT - chart.left) / len(steps)
    for place, step in enumerate(steps):
        here = [(trial, rung) for trial, rung in seen if rung.step == step]
        kept = sum(rung.kept for _, rung in here)
        chart.text(places(place), chart.bottom + 16, f"step {step}", anchor="middle")
        chart.text(places(place), chart.bottom + 32, f"{kept} of {len(here)} kept", anchor="middle", css="n")
        for index, (trial, rung) in enumerate(here):
            across = places(place) + (index + 0.5 - len(here) / 2) * min(width * 0.8 / len(here), 14)
            if rung.cutoff is not None:
                chart.path([(across - 5, y(rung.cutoff)), (across + 5, y(rung.cutoff))], colour=ORANGE, width=2)
            colour, shape = (GREEN, "disc") if rung.kept else (GREY, "ring")
            verdict = "kept" if rung.kept else "stopped"
            tip = f"{trial.id} {verdict}: {objective(rung.value)}, cut-off {objective(rung.cutoff) or 'none yet'}"
            chart.dot(across, y(rung.value or 0.0), colour=colour, shape=shape, tip=tip)
    return chart


def lineage(history: History) -> Chart | None:
    """Population based training: a row for each trial over its steps, and from whom it took over when."""
    if not any(trial.clones for trial in history.trials):
        return None
    trials = history.trials[:MOST_ROWS]
    rows = {trial.id: TOP + 10 + index * 20 for index, trial in enumerate(trials)}
    count = sum(len(trial.clones) for trial in trials)
    chart = Chart(
        "Lineage", f"{count} times a trial went on from another one's state", height=len(rows) * 20 + TOP + BOTTOM
    )
    last = max([0, *(trial.step or 0 for trial in trials), *(each.step for trial in trials for each in trial.clones)])
    x = chart.horizontal([0, last])
    for value in x.ticks(8):
        if value >= 0 and value == int(value):
            chart.text(x(value), chart.bottom + 16, f"{value:.0f}", anchor="middle")
            chart.path([(x(value), TOP), (x(value), chart.bottom)], css="g")
    chart.text((LEFT + WIDTH) / 2, chart.height - 8, "optimizer step", anchor="middle", css="n")
    chart.cut = cut(len(trials), len(history.trials), "trials")
    told, leader = tips(history), history.best
    for trial in trials:
        at = rows[trial.id]
        chart.text(LEFT - 6, at + 4, trial.id, anchor="end", css="b" if trial is leader else "")
        colour = ORANGE if trial is leader else BLUE
        furthest = max([trial.step or 0, *(clone.step for clone in trial.clones)])
        chart.path([(x(0), at), (x(furthest), at)], colour=colour, width=2, tip=told[trial.id])
        for clone in trial.clones:
            changed = ", ".join(f"{name} = {shown(value)}" for name, value in clone.parameters.items())
            tip = f"{trial.id} at step {clone.step} from {clone.donor} at step {clone.donor_step}: {changed}"
            if clone.donor in rows:
                ends = [(x(clone.donor_step), rows[clone.donor]), (x(clone.step), at)]
                chart.path(ends, colour=GREY, width=1.5, tip=tip, dashed=True)
            chart.dot(x(clone.step), at, colour=colour, tip=tip)
    return chart
