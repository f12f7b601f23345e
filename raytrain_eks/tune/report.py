"""The HTML report of a sweep: one file that opens with no network and holds no script.

Pure but for `write`: the same sweep gives the same bytes. Whatever came from a person's files or from a failure's text
is escaped, and the page forbids itself to load or run anything.
"""

import contextlib
from collections.abc import Mapping, Sequence

from raytrain_eks.checkpoint.run import METRICS, RunFolder
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.train.progress import duration
from raytrain_eks.tune import plots
from raytrain_eks.tune.history import BAD, RUNS, History, Trial, number
from raytrain_eks.tune.importance import EVALUATOR, Importance, importance
from raytrain_eks.tune.svg import Chart, escape
from raytrain_eks.tune.table import objective, short, shown

REPORT = "report.html"
REASON = 600
"""Characters of a failure's reason that are shown; the whole of it is in `sweep.json` and in the trial's run folder."""

STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--line:#d0d0d0;--soft:#5a5a5a;--bad:#b3261e;--wash:#f4f4f4}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--paper:#16181b;--line:#44484d;--soft:#a8adb3;--bad:#ff8a80;
--wash:#1f2226}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}p{margin:.4rem 0}
.soft,figcaption{color:var(--soft);font-size:.9rem}.bad{color:var(--bad)}figure{margin:0}
svg{width:100%;height:auto;color:var(--ink)}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .n{fill:var(--soft)}svg .b{font-weight:bold}svg .h{paint-order:stroke;stroke:var(--paper);stroke-width:3px}
svg .g{stroke:var(--line);stroke-width:.6}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.r{text-align:right}thead th{border-bottom:2px solid var(--soft)}tr.best{background:var(--wash);font-weight:600}
td.why{min-width:14rem;max-width:28rem;overflow-wrap:anywhere;white-space:pre-line;font-weight:400}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.6rem 0}dt{color:var(--soft)}dd{margin:0}
"""


def html(history: History, losses: plots.Curves | None = None) -> str:
    """The report. `losses`: training loss of each trial over its steps, where their run folders could be read."""
    found = importance(history)
    title = f"Sweep {history.name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _facts(history),
        _figure(plots.optimisation(history), _OPTIMISATION) or "<p>No trial has an objective yet.</p>",
        _figure(plots.rungs(history), _RUNGS),
        _figure(plots.lineage(history), _LINEAGE),
        _figure(plots.curves(history, objectives(history), title="Learning curves", what=history.metric), _CURVES),
        _figure(plots.curves(history, losses or {}, title="Training loss", what="training loss"), _CURVES),
        _figure(plots.parallel(history), _PARALLEL),
        _importance(found, history),
        _trials(history),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
    ]
    return "\n".join([*head, *(part for part in body if part), "</main></body></html>\n"])


_OPTIMISATION = """The last objective of each trial. The line is the best so far; a disc ran to its end, a ring was
stopped early, a cross failed or diverged, the large disc is the best."""
_RUNGS = """Each trial at each rung. A filled mark went on, a ring was stopped; the short line is what it was held
against when it came, so an early arrival met another bar than a late one."""
_LINEAGE = "A dashed line leads from the donor's checkpoint to the trial that went on from it, with its new parameters."
_CURVES = "The thick line is the best trial."
_PARALLEL = "Each line is a trial; the best fifth is in colour, the best one thick."


def objectives(history: History) -> plots.Curves:
    """Trial -> its objective over the steps."""
    return {trial.id: sorted(trial.points.items()) for trial in history.trials}


def _facts(history: History) -> str:
    best = history.best
    facts: dict[str, object | None] = {
        "state": history.state + (f": {history.reason}" if history.reason else ""),
        "objective": f"{history.metric}, the {'greatest' if history.mode == 'max' else 'least'} is best",
        "best": f"{best.id}: {objective(best.value)} at step {best.step}" if best is not None else None,
        "trials": ", ".join(f"{count} {state}" for state, count in history.counts().items()) or "none yet",
        "steps trained": history.trained_steps,
        "time": duration(history.seconds) if history.seconds is not None else None,
        "seed": history.seed,
        "best model": history.export,
    }
    parts = [f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text is not None]
    return f"<dl>{''.join(parts)}</dl>"


def _figure(chart: Chart | None, caption: str) -> str:
    """A section with a chart; nothing without one."""
    if chart is None:
        return ""
    told = f"{caption} {chart.cut}".strip()
    figure = f"<figure>{chart.render()}<figcaption>{escape(told)}</figcaption></figure>"
    return f"<section><h2>{escape(chart.title)}</h2>{figure}</section>"


def _importance(found: Importance, history: History) -> str:
    named = short(history.parameters())
    parts = ["<section><h2>Parameter importance</h2>"]
    chart = plots.importances(found)
    if chart is not None:
        where = f"{EVALUATOR} over {found.trials} trials, compared at step {found.step}. {chart.cut}"
        parts.append(f"<figure>{chart.render()}<figcaption>{escape(where)}</figcaption></figure>")
    else:
        parts.append(f"<p>Not computed: {escape(found.why_not)}.</p>")
    if found.correlations:
        told = ", ".join(f"{named[name]} {value:+.2f}" for name, value in found.correlations.items())
        parts.append(
            f"<p>Spearman's rank correlation with {escape(history.metric)} over {found.trials} trials at step "
            f"{escape(found.step)}: {escape(told)}.</p>"
        )
    if found.left_out:
        parts.append(f'<p class="soft">Left out, the same or absent in some: {escape(", ".join(found.left_out))}.</p>')
    return "".join([*parts, "</section>"])


def _trials(history: History) -> str:
    named = short(history.parameters())
    headings = ["trial", "state", history.metric, "steps", "best", *named.values(), "why"]
    heads = "".join(f'<th scope="col">{escape(each)}</th>' for each in headings)
    ranked, best = history.ranked(), history.best
    rows = "\n".join(_row(trial, history, list(named), trial is best) for trial in ranked)
    return (
        f'<section><h2>Trials</h2><div class="wide"><table><caption>Best first.</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div></section>"
    )


def _row(trial: Trial, history: History, names: Sequence[str], is_best: bool) -> str:
    best = trial.best(history.mode)
    cells = [objective(trial.value), trial.step, objective(best[1]) if best else None]
    parts = [f'<th scope="row">{escape(trial.id)}</th>']
    parts.append(f"<td{' class=bad' if trial.state in BAD else ''}>{escape(trial.state)}</td>")
    parts += [f'<td class="r">{escape(cell) if cell is not None else "–"}</td>' for cell in cells]
    for name in names:
        value = trial.parameters.get(name)
        side = ' class="r"' if number(value) is not None else ""
        parts.append(f"<td{side}>{escape(shown(value)) if name in trial.parameters else '–'}</td>")
    parts.append(f'<td class="why">{_why(trial)}</td>')
    return f"<tr{' class=best' if is_best else ''}>{''.join(parts)}</tr>"


def _why(trial: Trial) -> str:
    told = [trial.reason] if trial.reason else []
    told += [f"from {each.donor} at step {each.donor_step}" for each in trial.clones]
    if trial.starts > 1:
        told.append(f"started {trial.starts} times")
    text = "\n".join(told)
    # The end of a traceback says what went wrong, its beginning where.
    return escape(text if len(text) <= REASON else f"{text[: REASON // 3]}\n…\n{text[-REASON * 2 // 3 :]}")


def losses(storage: Storage, history: History) -> Mapping[str, list[tuple[int, float]]]:
    """Training loss of each trial, from its run folder; trials whose folder cannot be read are left out."""
    found = {}
    for trial in history.trials:
        with contextlib.suppress(OSError):
            run = RunFolder(storage.child(history.name, RUNS), trial.id)
            if run.storage.exists(METRICS):
                points = [(line["step"], number(line.get("loss"))) for line in run.metrics()]
                found[trial.id] = [(step, loss) for step, loss in points if loss is not None]
    return found


def write(storage: Storage | str, name: str) -> str:
    """Write `report.html` into the sweep's folder; its place. Raises FileNotFoundError where there is no sweep."""
    place = Storage.of(storage)
    history = History.read(place, name)
    if history is None:
        raise FileNotFoundError(2, "no sweep here (no trials.jsonl)", place.child(name).url)
    place.child(name).write(REPORT, html(history, losses(place, history)).encode())
    return f"{place.child(name).url}/{REPORT}"
