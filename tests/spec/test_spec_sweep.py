"""A sweep file: what is wrong in it is named at its line, also what is wrong only together with the job."""

from pathlib import Path

import pytest

from raytrain_eks.spec.check import located
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load, of_document, read_document
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.spec.sweep_job import problems, resolved, steps_of, trial_job, with_parameters
from raytrain_eks.spec.write import to_yaml

HEAD = "kind: Sweep\nname: lr\njob: job.yaml\n"
JOB = """\
kind: Job
name: base
model: {config: {model_type: llama, hidden_size: 64}}
tokenizer: {train: {vocab_size: 512}}
data: {train: ./texts, sequence_length: 32}
batch: {sequences: 4}
optimizer: {learning_rate: 1.0e-3, betas: [0.9, 0.95]}
schedule: {kind: wsd, warmup: 10%}
stop: {steps: 90}
"""
RATE = "space: {optimizer.learning_rate: {kind: loguniform, low: 1.0e-4, high: 1.0e-2}}\n"


@pytest.fixture
def found(tmp_path: Path):
    """`found(text)`: the problems of a sweep file beside `job.yaml`, as `line path: rule`."""
    (tmp_path / "job.yaml").write_text(JOB)

    def check(text: str) -> list[str]:
        (tmp_path / "sweep.yaml").write_text(HEAD + text)
        document = read_document(tmp_path / "sweep.yaml")
        try:
            every = located(problems(of_document(document), tmp_path), document)
        except SpecError as error:
            every = error.problems
        return [f"{each.line} {each.path}: {each.rule}" + (f" | {each.fix}" if each.fix else "") for each in every]

    return check


def test_a_good_one_has_no_problem(found):
    assert found(RATE + "trials: 4\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "space:\n  optimizer.learning_rat: {kind: uniform, low: 0.1, high: 0.2}\ntrials: 4\n",
            "5 space.optimizer.learning_rat: the job has no field `learning_rat` in `optimizer` | "
            "did you mean `optimizer.learning_rate`?",
        ),
        (
            "trials: 4\nspace:\n  optimizer.weight_decay:\n    kind: uniform\n    low: 0.5\n    high: 0.1\n",
            "9 space.optimizer.weight_decay.high: the range is empty: low is 0.5 and high is 0.1 | swap the two",
        ),
        (
            "trials: 4\nspace:\n  schedule.warmup: {kind: choice, values: [3%, fast]}\n",
            "6 space.schedule.warmup.values.1: must be a number of steps, such as 100, or a share of the run",
        ),
        (
            "trials: 4\nspace:\n  optimizer.learning_rate: {kind: uniform, low: -1, high: 1}\n",
            "6 space.optimizer.learning_rate.low: must be greater than 0",
        ),
        (
            "trials: 4\nspace:\n  optimizer: {kind: choice, values: [1]}\n",
            "6 space.optimizer: is a section, not a value | "
            "search one of its fields: learning_rate, weight_decay, betas, eps, clip",
        ),
        (
            "trials: 4\nspace:\n  workers.count: {kind: choice, values: [1, 2]}\n",
            "6 space.workers.count: `workers` is the same for all trials, or the sweep's own | "
            "take it out of the space; the job file sets it",
        ),
        (
            "trials: 4\nspace:\n  batch.tokens: {kind: choice, values: [100]}\n",
            "6 space.batch.tokens.values.0: must be a multiple of data.sequence_length, which is 32",
        ),
        (
            "trials: 4\nspace:\n  schedule.decay: {kind: choice, values: [95%]}\n",
            "6 space.schedule.decay.values.0: warm-up (10%) and decay are more than the whole run",
        ),
        (RATE + "search: {kind: grid}\n", "4 space.optimizer.learning_rate.kind: a grid needs values that can be"),
        (RATE, "1 trials: how many trials? | for example `trials: 16`"),
        (
            "space: {optimizer.eps: {kind: choice, values: [1.0e-8, 1.0e-6]}}\nsearch: {kind: grid}\ntrials: 3\n",
            "6 trials: the grid has only 2 combinations | write at most 2",
        ),
        (
            RATE + "trials: 4\nscheduler: {kind: asha, rungs: [30, 90]}\n",
            "6 scheduler.rungs.1: no trial comes there before it ends: the job has 90 steps | write less than 90",
        ),
        (
            RATE + "trials: 4\nscheduler: {kind: asha, clock: tokens, first: 1M}\n",
            "6 scheduler.first: no trial comes there before it ends: the job has 90 steps | write less than 11520",
        ),
        (RATE + "trials: 4\nscheduler: {kind: asha, rungs: [30, 20]}\n", "6 scheduler.rungs: must ascend, each once"),
        (
            "trials: 4\nspace: {seed: {kind: int, low: 0, high: 3}}\nscheduler: {kind: pbt}\n",
            "6 scheduler: nothing of the space can change in flight",
        ),
        (
            RATE + "trials: 4\nscheduler: {kind: pbt, mutate: [optimizer.learning_rte]}\n",
            "6 scheduler.mutate.0: is no parameter of this space | did you mean `optimizer.learning_rate`?",
        ),
        (
            RATE + "trials: 8\nscheduler: {kind: pbt}\nbudget: {trials: 2}\n",
            "7 budget.trials: a population of 8 trials cannot be had with 2",
        ),
        (RATE + "trials: 4\nscheduler: {kind: ash}\n", "6 scheduler.kind: must be none, asha, median or pbt"),
        (RATE + "trials: 4\nbudget: {time: 2 hours}\n", "6 budget.time: must be a duration"),
        (RATE + "trials: 4\nsearch: {kind: bohb}\n", "6 search.kind: must be random, grid or optuna"),
    ],
)
def test_a_mistake_is_named_at_its_line(found, text, expected):
    every = found(text)
    assert any(each.startswith(expected) for each in every), every
    assert len(every) == 1, every


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("{schedule.knd: wsd}", "is no parameter of this space"),
        ("{schedule.kind: cosin}", "`schedule.kind` is never 'cosin': its values are cosine, wsd"),
        ("{schedule.decay: 5%}", "depends on itself"),
    ],
)
def test_conditions_name_parameters_and_their_values(found, when, expected):
    space = "space:\n  schedule.kind: {kind: choice, values: [cosine, wsd]}\n"
    space += f"  schedule.decay: {{kind: choice, values: [5%, 10%], when: {when}}}\n"
    assert any(
        expected in each and each.startswith("6 space.schedule.decay.when") for each in found(space + "trials: 3\n")
    )


def test_values_that_fit_only_with_others_of_the_space_are_not_refused(found):
    fitting = "  schedule.decay: {kind: choice, values: [95%]}\n  schedule.warmup: {kind: choice, values: [2%, 4%]}\n"
    assert found(f"trials: 4\nspace:\n{fitting}") == []
    (problem,) = found(f"trials: 4\nspace:\n{fitting.replace('4%', '8%')}")
    assert problem.startswith("6 space.schedule.decay: does not fit together in the job: schedule.decay: warm-up (8%)")
    assert "for schedule.decay: 95%, schedule.warmup: 8%" in problem


def test_a_conditional_value_is_tried_where_it_exists(found):
    space = "space:\n  schedule.kind: {kind: choice, values: [cosine, wsd]}\n"
    space += "  schedule.decay: {kind: choice, values: [5%, 10%], when: {schedule.kind: [wsd]}}\n"
    assert found(space + "trials: 3\n") == []


def test_a_job_file_that_is_missing_or_broken_is_said(tmp_path):
    sweep = Sweep.parse(
        {
            "kind": "Sweep",
            "name": "lr",
            "job": "gone.yaml",
            "space": {"seed": {"kind": "int", "low": 0, "high": 9}},
            "trials": 2,
        }
    )
    (problem,) = problems(sweep, tmp_path)
    assert (problem.path, problem.value) == ("job", "gone.yaml")
    (tmp_path / "gone.yaml").write_text(JOB.replace("schedule:", "shedule:").replace("stop:", "stp:"))
    (problem,) = problems(sweep, tmp_path)
    assert "has 2 problems itself" in problem.rule
    with pytest.raises(SpecError):
        resolved(sweep, tmp_path)


def test_a_resolved_sweep_needs_no_other_file_and_is_the_same(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "sweep.yaml").write_text(HEAD + RATE + "trials: 4\n")
    whole = resolved(load(tmp_path / "sweep.yaml"), tmp_path)
    again = Sweep.read(to_yaml(whole), "again.yaml")
    assert again.identity() == whole.identity()
    assert again.job_data() == Job.read(JOB, "job.yaml").written()


def test_where_a_sweep_runs_and_how_long_is_no_part_of_what_it_is(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)

    def identity(text: str) -> dict:
        (tmp_path / "sweep.yaml").write_text(HEAD + RATE + text)
        return resolved(load(tmp_path / "sweep.yaml"), tmp_path).identity()

    first = identity("trials: 4\n")
    assert identity("trials: 9\nconcurrency: 2\nbudget: {time: 2h}\nkeep: 1\nmax_failures: 2\nstorage: /x\n") == first
    assert identity("trials: 4\nseed: 1\n") != first
    assert identity("trials: 4\nscheduler: {kind: asha}\n") != first


def test_a_trial_is_the_job_with_other_values():
    job = Job.read(JOB, "job.yaml").written()
    made = trial_job(
        job, "t0007", {"optimizer.learning_rate": 0.5, "model.config.rope_theta": 10.0, "optimizer.betas.1": 0.99}
    )
    assert (made.name, made.optimizer.learning_rate, made.optimizer.betas) == ("t0007", 0.5, (0.9, 0.99))
    assert made.model.config == {"model_type": "llama", "hidden_size": 64, "rope_theta": 10.0}
    assert with_parameters({}, {"lora.rank": 8}) == {"lora": {"rank": 8}}
    assert job["optimizer"]["learning_rate"] == 1.0e-3


@pytest.mark.parametrize(
    ("stop", "steps"),
    [("{steps: 90}", 90), ("{tokens: 1280}", 10), ("{tokens: 1281, steps: 99}", 11), ("{epochs: 1}", None)],
)
def test_the_length_of_a_job_as_far_as_its_file_says(stop, steps):
    assert steps_of(Job.read(JOB.replace("{steps: 90}", stop), "job.yaml")) == steps


def test_the_example_is_valid(root):
    document = read_document(root / "jobs" / "quickstart_sweep.yaml")
    sweep = of_document(document)
    assert list(problems(sweep, root)) == []
    assert sweep.number == 8


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("{kind: int, low: 0, high: 4294967295}", None),
        ("{kind: int, low: 0, high: 4294967295}\nsearch: {kind: grid}", "these are 4,294,967,296"),
        ("{kind: int, low: 0, high: 1" + "0" * 300 + "}", "less than or equal to 9007199254740992"),
        ("{kind: uniform, low: 0.1, high: 1.0, step: 1.0e-300}", "more than 100,000 values"),
        ("{kind: uniform, low: -1.0e308, high: 1.0e308, step: 1.0}", "more than 100,000 values"),
    ],
)
def test_long_ranges_are_not_counted_through(found, space, expected):
    text = f"space:\n  seed: {space}\ntrials: 3\n"
    if "uniform" in space:
        text = text.replace("seed", "optimizer.weight_decay")
    problems = found(text)
    assert any(expected in each for each in problems) if expected else problems == []


def test_a_condition_on_a_long_range_is_answered_at_once(found):
    space = "space:\n  seed: {kind: int, low: 0, high: 4294967295}\n"
    space += "  optimizer.weight_decay: {kind: uniform, low: 0, high: 1, when: {seed: 0.5}}\ntrials: 3\n"
    assert any("never 0.5: its values are 0, 1, ... 4294967295" in each for each in found(space))
