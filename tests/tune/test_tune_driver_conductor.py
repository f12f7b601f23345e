"""What a sweep decides: which legs run, when it ends, and that a killed driver is followed by one that decides on."""

import json
import math

import pytest
from world import JOB, STEPS, Killed, World, sweep

from raytrain_eks.checkpoint.run import Fenced
from raytrain_eks.tune.folder import Journal, SweepFolder

ASHA = {"scheduler": {"kind": "asha", "first": 10}}


def states(world: World) -> dict[str, str]:
    return {name: trial.state for name, trial in world.folder.record().trials.items()}


def test_every_trial_runs_to_its_end_without_a_scheduler(tmp_path):
    world = World(tmp_path, sweep())
    conductor = world.run()
    assert conductor.ending is None
    assert set(states(world).values()) == {"completed"}
    assert world.trained == 6 * STEPS
    body = world.folder.summary()
    assert [trial["trial"] for trial in body["trials"]] == [f"t{number:04d}" for number in range(1, 7)]
    best = min(body["trials"], key=lambda trial: trial["value"])
    assert body["best"] == best["trial"]
    assert body["objective"] == {"metric": "eval_loss", "mode": "min"}


def test_asha_stops_trials_at_rungs_and_the_journal_says_against_what(tmp_path):
    world = World(tmp_path, sweep(trials=9, **ASHA))
    world.run()
    found = states(world)
    assert set(found.values()) == {"completed", "stopped"}
    assert world.trained < 9 * STEPS * 0.7
    rungs = [line for line in world.folder.lines("trials.jsonl") if line["event"] == "rung"]
    assert {line["step"] for line in rungs} == {10, 30}
    for line in rungs:
        assert line["kept"] == (line["cutoff"] is None or line["value"] <= line["cutoff"])
    stopped = [line for line in world.folder.lines("trials.jsonl") if line.get("state") == "stopped"]
    assert all("against" in line["reason"] for line in stopped)


@pytest.mark.parametrize(("at", "search"), [(1, "random"), (251, "random"), (140, "optuna")])
def test_a_killed_driver_changes_nothing_but_some_steps(tmp_path, at, search):
    # One at a time: then the order of events is the same, and so must every decision be.
    spec = sweep(trials=9, search={"kind": search, **({"startup": 3} if search == "optuna" else {})}, **ASHA)
    clean = World(tmp_path / "clean", spec, most=1)
    clean.run()
    killed = World(tmp_path / "killed", spec, most=1)
    with pytest.raises(Killed):
        killed.run(kill_after=at)
    killed.run()

    def facts(world: World) -> list[tuple]:
        record = world.folder.record()
        return [(t.name, t.parameters, t.state, t.step, t.rungs, t.value) for t in record.trials.values()]

    assert facts(killed) == facts(clean)
    assert clean.trained <= killed.trained <= clean.trained + 5


def test_killed_again_and_again_it_still_finishes_within_five_per_cent(tmp_path):
    spec = sweep(trials=6)
    world, deaths = World(tmp_path, spec), 0
    while True:
        try:
            world.run(kill_after=130)
            break
        except Killed:
            deaths += 1
    assert deaths >= 3
    assert set(states(world).values()) == {"completed"}
    assert world.trained <= 6 * STEPS * 1.05
    assert [line["trial"] for line in world.folder.lines("trials.jsonl") if line["event"] == "created"] == [
        f"t{number:04d}" for number in range(1, 7)
    ]


def test_population_based_training_copies_the_best_and_keeps_its_lineage(tmp_path):
    spec = sweep(trials=4, scheduler={"kind": "pbt", "every": 30}, seed=3)
    world = World(tmp_path, spec)
    world.run()
    record = world.folder.record()
    assert record.exchanged == {0, 1}
    assert set(states(world).values()) == {"completed"}
    clones = [(trial.name, clone) for trial in record.trials.values() for clone in trial.clones]
    assert len(clones) == 2
    assert all(clone.copied and clone.donor_step in (30, 60) for _, clone in clones)
    assert len(world.clones) == 2
    for name, clone in clones:
        assert clone.parameters["optimizer.learning_rate"] != record.trials[clone.donor].parameters
        assert record.trials[name].parameters["optimizer.learning_rate"] > 0


@pytest.mark.parametrize("at", [119, 121, 200])
def test_population_based_training_does_not_depend_on_kills_nor_on_speed(tmp_path, at):
    spec = sweep(trials=4, scheduler={"kind": "pbt", "every": 30}, seed=3)
    clean, killed = World(tmp_path / "clean", spec, most=4), World(tmp_path / "killed", spec, most=2)
    clean.run()
    with pytest.raises(Killed):
        killed.run(kill_after=at)
    killed.run()

    def facts(world: World) -> dict:
        return {
            trial.name: (trial.parameters, [(each.donor, each.donor_step) for each in trial.clones], trial.value)
            for trial in world.folder.record().trials.values()
        }

    assert facts(killed) == facts(clean)


def test_a_donor_is_held_until_its_clone_has_spoken(tmp_path):
    from raytrain_eks.checkpoint.retention import reading

    spec = sweep(trials=4, scheduler={"kind": "pbt", "every": 30}, seed=3)
    world = World(tmp_path, spec)
    with pytest.raises(Killed):
        world.run(kill_after=121)
    (clone,) = [clone for trial in world.folder.record().trials.values() for clone in trial.clones]
    assert reading(world.folder.trial(clone.donor)) == {clone.donor_step}
    world.run()
    assert all(not reading(world.folder.trial(name)) for name in world.folder.record().trials)


def test_a_trial_that_fails_or_diverges_is_told_and_the_others_go_on(tmp_path):
    def outcome(name, step):
        if (name, step) == ("t0002", 40):
            return {"state": "failed", "reason": "out of memory: 3 GiB"}
        return None

    def loss(parameters, step):
        return math.nan if parameters["optimizer.learning_rate"] > 0.03 else 1.0

    world = World(tmp_path, sweep(), outcome=outcome, loss=loss)
    world.run()
    record = world.folder.record()
    assert (record.trials["t0002"].state, record.trials["t0002"].reason) == ("failed", "out of memory: 3 GiB")
    others = [trial for trial in record.trials.values() if trial.name != "t0002"]
    for trial in others:
        high = trial.parameters["optimizer.learning_rate"] > 0.03
        assert trial.state == ("diverged" if high else "completed"), trial
        assert trial.step == (30 if high else STEPS)
    assert {trial.state for trial in others} == {"diverged", "completed"}
    json.dumps(world.folder.summary(), allow_nan=False)


def test_first_trials_that_all_fail_alike_end_the_sweep(tmp_path):
    world = World(
        tmp_path, sweep(trials=50), outcome=lambda name, step: {"state": "failed", "reason": f"no file at 0x{step:x}"}
    )
    conductor = world.run()
    assert conductor.failed
    assert conductor.ending.startswith("the first 3 trials all failed alike: no file")
    assert len(world.folder.record().trials) <= 5


def test_too_many_failures_end_it_and_a_resume_bears_as_many_again(tmp_path):
    def outcome(name, step):
        return {"state": "failed", "reason": f"bad luck of {name}"} if int(name[1:]) % 2 and step == 31 else None

    world = World(tmp_path, sweep(trials=8, max_failures=1), outcome=outcome)
    conductor = world.run()
    assert conductor.failed
    assert "max_failures is 1" in conductor.ending
    assert [trial.name for trial in world.folder.record().ended("failed")] == ["t0001", "t0003"]
    world.run()
    record = world.folder.record()
    assert [trial.name for trial in record.ended("failed")] == ["t0001", "t0003", "t0005", "t0007"]
    assert world.folder.summary()["trials"][0]["reason"] == "bad luck of t0001"


def test_a_budget_ends_it_and_a_higher_one_goes_on(tmp_path):
    world = World(tmp_path, sweep(budget={"time": "15s"}))
    conductor = world.run()
    assert not conductor.failed
    assert "budget.time is 15s" in conductor.ending
    before = states(world)
    assert "running" in before.values()
    world.spec = sweep()
    world.run()
    assert set(states(world).values()) == {"completed"}


def test_asked_to_stop_it_leaves_trials_that_go_on(tmp_path):
    world = World(tmp_path, sweep())
    world.asked = "it was asked to stop"
    assert world.run().ending == "it was asked to stop"
    assert states(world) == {}
    world.asked = None
    world.run()
    assert set(states(world).values()) == {"completed"}


def test_raising_trials_extends_a_finished_sweep_and_nothing_runs_again(tmp_path):
    world = World(tmp_path, sweep(trials=2))
    world.run()
    trained = world.trained
    world.run()
    assert world.trained == trained
    world.spec = sweep(trials=3)
    world.run()
    assert world.trained == trained + STEPS


def test_only_the_best_keep_their_checkpoints(tmp_path):
    world = World(tmp_path, sweep(trials=3, keep=1), most=1)
    world.run()
    for name in world.folder.record().trials:
        world.folder.trial(name).storage.write("checkpoints/step-00000090/manifest.json", b"{}")
    world.conductor._tidy()
    kept = [name for name in world.folder.record().trials if world.folder.trial(name).storage.entries("checkpoints")]
    assert kept == [world.folder.summary()["best"]]


def test_a_combination_that_the_job_refuses_is_a_failed_trial(tmp_path):
    space = {
        "schedule.warmup": {"kind": "choice", "values": ["70%", "2%"]},
        "schedule.decay": {"kind": "choice", "values": ["50%"]},
    }
    job = JOB | {"schedule": {"kind": "wsd"}}
    world = World(tmp_path, sweep(job=job, space=space, search={"kind": "grid"}, trials=None), loss=lambda p, s: 1.0)
    world.run()
    first, second = world.folder.record().trials.values()
    assert (first.state, second.state) == ("failed", "completed")
    assert "warm-up (70%) and decay are more than the whole run" in first.reason


def test_a_driver_that_was_replaced_stops_and_changes_nothing(tmp_path):
    world = World(tmp_path, sweep())
    with pytest.raises(Killed):
        world.run(kill_after=50)
    old = world.conductor
    folder = SweepFolder(str(tmp_path), "lr")
    Journal(folder, folder.begin()).close()
    before = states(world)
    with pytest.raises(Fenced):
        old.journal.add("ended", "t0001", state="failed", step=1, tokens=1)
    assert states(world) == before


def test_half_a_line_that_a_crash_left_is_passed_over(tmp_path):
    world = World(tmp_path, sweep(trials=2))
    with pytest.raises(Killed):
        world.run(kill_after=50)
    path = tmp_path / "lr" / "trials.jsonl"
    path.write_bytes(path.read_bytes() + b'{"event": "ended", "trial": "t0001", "st')
    world.run()
    assert set(states(world).values()) == {"completed"}


def test_a_moved_folder_goes_on(tmp_path):
    world = World(tmp_path / "here", sweep())
    with pytest.raises(Killed):
        world.run(kill_after=200)
    (tmp_path / "here").rename(tmp_path / "there")
    world.folder = SweepFolder(str(tmp_path / "there"), "lr")
    world.run()
    assert set(states(world).values()) == {"completed"}
    for path in (tmp_path / "there").rglob("*.json*"):
        assert str(tmp_path) not in path.read_text(), path
