"""What a sweep's lines fold into: states, steps, decisions, and what a crash leaves."""

import json

import pytest
import sweep_lines
from sweep_lines import created, told

from raytrain_eks.tune.history import History, lines

RATE = {"optimizer.learning_rate": 1e-3}


def of(*events, **fields):
    return History.of(sweep_lines.whole(list(events)), name="s", **fields)


@pytest.mark.parametrize(
    ("events", "state", "step", "value"),
    [
        ([], "pending", None, None),
        ([told("started", "t0001", step=0)], "running", 0, None),
        ([told("started", "t0001"), told("progress", "t0001", step=5, value=3.0)], "running", 5, 3.0),
        ([told("progress", "t0001", step=5, value=None)], "running", 5, None),
        (
            [told("progress", "t0001", step=5, value=3.0), told("progress", "t0001", step=6, value="nan")],
            "running",
            6,
            3.0,
        ),
        ([told("ended", "t0001", state="diverged", step=7, value="inf")], "diverged", 7, None),
        ([told("ended", "t0001", state="completed", step=9, value=2)], "completed", 9, 2.0),
        ([told("ended", "t0001", state="failed"), told("started", "t0001", attempt=2, step=4)], "running", 0, None),
        # A progress line that was on its way when the trial ended changes nothing about its state.
        (
            [told("ended", "t0001", state="stopped", step=8), told("progress", "t0001", step=8, value=1.0)],
            "stopped",
            8,
            1.0,
        ),
        ([told("something new", "t0001", step=3)], "running", 0, None),
    ],
)
def test_a_trial_is_what_its_lines_say(events, state, step, value):
    trial = of(created("t0001", 1, RATE), *events).trials[0]
    assert (trial.state, trial.step, trial.value) == (state, step, value)
    assert trial.parameters == RATE


def test_lines_of_a_fenced_driver_are_ignored():
    late = told("ended", "t0001", attempt=1, state="failed", reason="I was killed")
    found = of(created("t0001", 1, RATE), told("started", "t0001", attempt=2, step=3), late)
    assert found.trials[0].state == "running"
    assert found.attempt == 2


def test_a_trial_that_the_new_driver_has_not_come_to_waits():
    first = [created("t0001", 1, RATE), created("t0002", 2, RATE), told("started", "t0001"), told("started", "t0002")]
    found = of(*first, told("started", "t0002", attempt=2, step=3))
    assert [trial.state for trial in found.trials] == ["interrupted", "running"]
    assert found.trials[1].starts == 2


def test_a_rung_that_is_reached_again_counts_once():
    rung = {"step": 10, "value": 3.0, "cutoff": 2.0, "rung": 0}
    found = of(told("rung", "t0001", **rung, kept=True), told("rung", "t0001", attempt=2, **rung, kept=False))
    assert [each.kept for each in found.trials[0].rungs] == [False]


def test_a_clone_goes_on_from_its_donor():
    trial = of(*sweep_lines.population()).trials[0]
    assert trial.parameters == {"optimizer.learning_rate": 1.2e-3}
    assert [(each.step, each.donor, each.donor_step) for each in trial.clones] == [(20, "t0002", 20)]
    assert trial.points == {10: 4.0, 20: 4.0, 30: 3.5}


@pytest.mark.parametrize(
    ("mode", "best", "order"), [("min", "t0003", [3, 1, 4, 2, 5, 6]), ("max", "t0001", [1, 3, 2, 4, 5, 6])]
)
def test_completed_trials_rank_by_their_last_objective_others_by_how_far_they_came(mode, best, order):
    values = {"t0001": [1.0, 5.0], "t0002": [9.0], "t0003": [4.0, 4.0], "t0004": [2.0], "t0005": [0.0, 9.9]}
    events = [
        told("progress", name, step=step, value=value) for name in values for step, value in enumerate(values[name])
    ]
    events.append(created("t0006", 6, RATE))
    events += [told("ended", name, state="completed") for name in ("t0001", "t0003")]
    events += [told("ended", "t0002", state="stopped"), told("ended", "t0005", state="diverged")]
    found = of(*events, mode=mode)
    assert found.best is not None
    assert found.best.id == best
    assert [trial.number for trial in found.ranked()] == order


def test_what_failed_is_never_the_best():
    found = of(told("progress", "t0001", step=1, value=2.0), told("ended", "t0001", state="failed", step=1))
    assert found.best is None


def test_of_equals_the_earlier_is_best():
    found = of(told("progress", "t0001", step=1, value=2.0), told("progress", "t0002", step=1, value=2.0))
    assert found.best is found.trials[0]


@pytest.mark.parametrize("cut", range(0, 200, 17))
def test_half_a_line_is_left_out(cut):
    text = b"".join(json.dumps(line).encode() + b"\n" for line in sweep_lines.halving(2))
    found = lines(text[:cut])
    assert found == lines(text)[: len(found)]
    assert len(found) == text[:cut].count(b"\n")


def test_a_folder_is_read_with_what_its_driver_summed_up(tmp_path):
    summary = {"state": "completed", "seconds": 61.5, "seed": 7, "export": "trials/t0002/export", "reason": None}
    summary["objective"] = {"metric": "loss", "mode": "max"}
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving(), summary)
    found = History.read(str(tmp_path), "lr")
    assert found is not None
    assert (found.state, found.seconds, found.seed, found.export) == ("completed", 61.5, 7, "trials/t0002/export")
    assert (found.metric, found.mode, len(found.trials)) == ("loss", "max", 8)


def test_the_objective_of_a_sweep_that_runs_is_in_its_file(tmp_path):
    folder = sweep_lines.write(tmp_path, "lr", [])
    (folder / "sweep.yaml").write_text("objective: {metric: bits_per_byte, mode: max}\n")
    found = History.read(str(tmp_path), "lr")
    assert found is not None
    assert (found.metric, found.mode, found.trials, found.best) == ("bits_per_byte", "max", [], None)


@pytest.mark.parametrize("damaged", ["", "[1, 2]", "{", "a: b: c"])
def test_a_damaged_file_beside_the_lines_hides_no_trial(tmp_path, damaged):
    folder = sweep_lines.write(tmp_path, "lr", sweep_lines.halving())
    (folder / "sweep.yaml").write_text(damaged)
    (folder / "sweep.json").write_text(damaged)
    found = History.read(str(tmp_path), "lr")
    assert found is not None
    assert len(found.trials) == 8


def test_no_folder_is_no_sweep(tmp_path):
    assert History.read(str(tmp_path), "lr") is None
