"""Sweeps for tests, made of the same lines that a driver writes."""

import json
import math
from pathlib import Path
from typing import Any

SPACE = ("optimizer.learning_rate", "schedule.warmup", "model.config.hidden_size")


def created(trial: str, number: int, parameters: dict[str, Any], attempt: int = 1) -> dict[str, Any]:
    told = {"event": "created", "trial": trial, "number": number, "parameters": parameters, "seed": 1}
    return told | {"time": 100.0 + number, "attempt": attempt}


def told(event: str, trial: str, attempt: int = 1, time: float = 200.0, **fields: Any) -> dict[str, Any]:
    usual = {
        "progress": {"step": 0, "tokens": fields.get("step", 0) * 512, "trained": fields.get("step", 0)},
        "ended": {"step": 0, "tokens": fields.get("step", 0) * 512, "reason": ""},
        "cloned": {"gate": 0, "tokens": 0},
    }
    return {"event": event, "trial": trial, "attempt": attempt, "time": time} | usual.get(event, {}) | fields


def whole(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines, with those that a driver would have written before them: each trial is created and started first."""
    found: list[dict[str, Any]] = []
    known: set[tuple[str, str]] = set()
    for line in lines:
        name = line["trial"]
        if line["event"] != "created" and (name, "created") not in known:
            found.append(created(name, len({each for each, _ in known}) + 1, {}))
        if line["event"] not in ("created", "started") and (name, "started") not in known:
            found.append({"event": "started", "trial": name, "step": 0, "attempt": line["attempt"], "time": 150.0})
            known.add((name, "started"))
        known |= {(name, "created"), (name, line["event"])}
        found.append(line)
    return found


def halving(trials: int = 8, steps: int = 40, every: int = 10) -> list[dict[str, Any]]:
    """Lines of a sweep over three parameters with rungs at a quarter and a half of the steps; t0003 fails."""
    found = []
    for number in range(1, trials + 1):
        name = f"t{number:04d}"
        rate, warmup, width = 10 ** (-4 + 3 * (number * 7 % trials) / trials), number % 5, (64, 128, 256)[number % 3]
        found.append(created(name, number, dict(zip(SPACE, (rate, warmup, width), strict=True))))
        found.append(told("started", name, step=0))
        if number == 3:
            found.append(told("ended", name, state="failed", reason="RuntimeError: out of memory", step=0, tokens=0))
            continue
        final = 2 + abs(math.log10(rate) + 2.5) + warmup / 50
        for step in range(every, steps + 1, every):
            value = final + 4 * math.exp(-step / 15)
            found.append(told("progress", name, step=step, tokens=step * 512, value=value))
            if step in (steps // 4, steps // 2):
                rung, cutoff = (0, final + 2) if step == steps // 4 else (1, 3.2)
                kept = value <= cutoff or number <= 2
                found.append(told("rung", name, rung=rung, step=step, value=value, cutoff=cutoff, kept=kept))
                if not kept:
                    found.append(
                        told("ended", name, 1, 250, state="stopped", reason=f"rung {rung}", step=step, value=value)
                    )
                    break
        else:
            found.append(told("ended", name, 1, 300, state="completed", step=steps, tokens=steps * 512, value=value))
    return found


def population() -> list[dict[str, Any]]:
    """Lines of a population of two; t0001 takes over t0002 at step 20."""
    rate = "optimizer.learning_rate"
    found = [created("t0001", 1, {rate: 1e-2}), created("t0002", 2, {rate: 1e-3})]
    found += [told("started", each, step=0) for each in ("t0001", "t0002")]
    for step in (10, 20):
        found += [told("progress", "t0001", step=step, value=5.0), told("progress", "t0002", step=step, value=4.0)]
    found.append(told("cloned", "t0001", donor="t0002", donor_step=20, parameters={rate: 1.2e-3}))
    found += [told("progress", "t0001", step=30, value=3.5), told("progress", "t0002", step=30, value=3.6)]
    found += [told("ended", each, 1, 260, state="completed", step=30) for each in ("t0001", "t0002")]
    return found


def write(storage: Path, name: str, lines: list[dict[str, Any]], summary: dict[str, Any] | None = None) -> Path:
    """The folder of a sweep; each trial with a run folder whose metrics are its objective."""
    folder = storage / name
    folder.mkdir(parents=True)
    (folder / "sweep.yaml").write_text("kind: Sweep\nname: x\nobjective: {metric: held_out_loss, mode: min}\n")
    (folder / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if summary is not None:
        (folder / "sweep.json").write_text(json.dumps(summary))
    for line in lines:
        run = folder / "trials" / line["trial"]
        run.mkdir(parents=True, exist_ok=True)
        if line["event"] == "progress":
            with (run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": line["step"], "loss": line["value"] + 0.1, "attempt": 1}) + "\n")
    return folder
