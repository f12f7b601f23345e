"""A sweep from Python: results as a frame, the metrics of a trial, what lies in a storage."""

import pytest
import sweep_lines

from raytrain_eks.tune.results import Results, as_data, list_sweeps


@pytest.fixture
def sweep(tmp_path):
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving())
    return Results(str(tmp_path), "lr")


def test_a_row_for_each_trial(sweep):
    frame = sweep.frame()
    assert list(frame.index) == [f"t{number:04d}" for number in range(1, 9)]
    assert list(frame.columns[:5]) == ["number", "state", "reason", "step", "tokens"]
    assert set(sweep_lines.SPACE) <= set(frame.columns)
    failed = frame.loc["t0003"]
    assert (failed["state"], failed["reason"]) == ("failed", "RuntimeError: out of memory")
    best = frame["best_value"].idxmin()
    assert best == sweep.history.best.id
    assert frame.loc[best, "seconds"] == 100.0


def test_a_parameter_that_a_trial_has_not_is_missing(tmp_path):
    lines = [sweep_lines.created("t0001", 1, {"lora.rank": 8}), sweep_lines.created("t0002", 2, {})]
    sweep_lines.write(tmp_path, "lr", lines)
    frame = Results(str(tmp_path), "lr").frame()
    assert frame["lora.rank"].isna().tolist() == [False, True]


def test_a_sweep_that_has_just_begun_is_an_empty_frame(tmp_path):
    sweep_lines.write(tmp_path, "lr", [])
    assert len(Results(str(tmp_path), "lr").frame()) == 0


def test_the_metrics_of_a_trial(sweep):
    frame = sweep.metrics("t0001")
    assert list(frame.index) == [10, 20, 30, 40]
    assert frame["loss"].is_monotonic_decreasing
    assert len(sweep.metrics("t0003")) == 0


def test_a_running_sweep_is_read_anew(sweep):
    before = sweep.frame().loc["t0001", "state"]
    file = sweep.storage.child("lr").folder / "trials.jsonl"
    with file.open("a") as stream:
        stream.write('{"event": "started", "trial": "t0001", "attempt": 2, "step": 40}\n')
    assert (before, sweep.frame().loc["t0001", "state"]) == ("completed", "running")


def test_no_sweep_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no sweep here"):
        Results(str(tmp_path), "lr").frame()


def test_as_data_agrees_with_the_frame(sweep):
    data, frame = as_data(sweep.history), sweep.frame()
    assert data["best"] == "t0002"
    assert [trial["best_value"] for trial in data["trials"] if trial["best_value"]] == frame[
        "best_value"
    ].dropna().tolist()


def test_sweeps_of_a_storage_are_found_among_runs(tmp_path):
    sweep_lines.write(tmp_path, "b", sweep_lines.halving())
    sweep_lines.write(tmp_path, "a", sweep_lines.population())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / ".data").mkdir()
    (tmp_path / "file").write_text("")
    assert [each.name for each in list_sweeps(str(tmp_path))] == ["a", "b"]


def test_the_sweep_in_python_has_its_results(tmp_path, monkeypatch):
    import raytrain_eks

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving())
    space = {"optimizer.learning_rate": {"kind": "loguniform", "low": 1e-4, "high": 1e-2}}
    sweep = raytrain_eks.Sweep(name="lr", job="jobs/quickstart.yaml", space=space, trials=8, storage=str(tmp_path))
    assert len(sweep.results()) == 8
    assert sweep.outcome(tmp_path).leaderboard(1).splitlines()[1].split()[1] == "t0002"
    with pytest.raises(FileNotFoundError):
        sweep.results(tmp_path / "elsewhere")


@pytest.mark.parametrize("line", ['{"event": "created"}', '{"event": "created", "trial": "t0001", "number": {}}'])
def test_a_damaged_sweep_does_not_hide_the_others(tmp_path, line):
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "trials.jsonl").write_text(f"{line}\n")
    told = []
    (found,) = list_sweeps(str(tmp_path), damaged=lambda *words: told.append(words))
    assert found.name == "lr"
    ((name, reason),) = told
    assert name == "bad"
    assert "not those of a run" in reason
