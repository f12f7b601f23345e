"""The table, the leaderboard and the progress lines of a sweep."""

import pytest
import sweep_lines
from hypothesis import given
from hypothesis import strategies as st
from sweep_lines import created, told

from raytrain_eks.tune.history import History
from raytrain_eks.tune.table import Lines, clipped, leaderboard, objective, parse, short, shown, table

HALVING = History.of(sweep_lines.halving(), name="lr", metric="eval_loss")


def test_the_table_of_a_sweep():
    events = [
        created("t0001", 1, {"optimizer.learning_rate": 1e-3, "schedule.kind": "cosine"}),
        created("t0002", 2, {"optimizer.learning_rate": 3e-5, "schedule.kind": "wsd"}),
        created("t0003", 3, {"optimizer.learning_rate": 0.01}),
        told("progress", "t0001", step=40, value=6.12344),
        told("progress", "t0001", step=50, value=6.5),
        told("ended", "t0002", state="failed", reason="out of memory\n  in step 3", step=3),
    ]
    assert table(History.of(sweep_lines.whole(events), name="lr", metric="eval_loss")).splitlines() == [
        "sweep lr: 1 running, 1 failed, 1 pending of 3 trials, best t0001 6.5000 at step 50",
        "TRIAL   STATE    STEP  EVAL_LOSS    BEST  learning_rate  kind    WHY",
        "t0001*  running    50     6.5000  6.1234          0.001  cosine  -",
        "t0002   failed      3          -       -          3e-05  wsd     out of memory in step 3",
        "t0003   pending     -          -       -           0.01  -       -",
    ]


def test_a_sweep_without_trials_is_one_line():
    assert table(History(name="lr")) == "sweep lr: no trial yet"


@pytest.mark.parametrize("columns", [20, 40, 79, 120])
def test_no_line_is_wider_than_the_terminal(columns):
    assert max(map(len, table(HALVING, columns).splitlines())) <= columns


def test_a_long_sweep_shows_what_runs_and_what_is_best():
    events = [*sweep_lines.halving(30), created("t0031", 31, {}), told("started", "t0031", step=0)]
    text = table(History.of(events, name="lr"), most=5).splitlines()
    assert len(text) == 1 + 1 + 5 + 1
    assert text[-1] == "and 26 more"
    assert text[-2].startswith("t0031")
    assert any(line.startswith("t0002*") for line in text)


def test_the_leaderboard_is_best_first():
    text = leaderboard(HALVING, most=3).splitlines()
    assert text[0].split()[:4] == ["RANK", "TRIAL", "STATE", "EVAL_LOSS"]
    assert [line.split()[0] for line in text[1:4]] == ["1", "2", "3"]
    values = [float(line.split()[3]) for line in text[1:3]]
    assert values == sorted(values)
    assert text[4] == "and 4 more"


def test_a_leaderboard_of_nothing_is_empty():
    assert leaderboard(History(name="lr")) == ""


def test_lines_tell_only_what_is_new():
    lines = Lines()
    events = [created("t0001", 1, {"seed": 3}), created("t0002", 2, {"seed": 4})]
    events.append(told("started", "t0001", step=0))
    assert lines.of(History.of(events, name="s")) == [
        "trial t0001  step 0  running  seed=3",
        "trial t0002  pending  seed=4",
    ]
    assert lines.of(History.of(events, name="s")) == []
    events.append(told("progress", "t0001", step=40, value=6.1234))
    assert lines.of(History.of(events, name="s")) == ["trial t0001  step 40  objective 6.1234  running"]
    events.append(told("ended", "t0001", state="stopped", step=40, reason="rung 0: worse than 6.1"))
    found = lines.of(History.of(events, name="s"))
    assert found == ["trial t0001  step 40  objective 6.1234  stopped  (rung 0: worse than 6.1)"]


def test_a_clone_is_told_with_its_new_parameters():
    lines = Lines()
    events = sweep_lines.population()
    lines.of(History.of(events[:8], name="p"))
    found = lines.of(History.of(events[:9], name="p"))
    assert found == [
        "trial t0001  step 20  objective 4.0000  running  optimizer.learning_rate=0.0012  (from t0002 at step 20)"
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["optimizer.learning_rate"], ["learning_rate"]),
        (["schedule.kind", "engine.kind", "seed"], ["schedule.kind", "engine.kind", "seed"]),
        (["kind", "schedule.kind"], ["kind", "schedule.kind"]),
        (["a.b.c", "x.b.c", "c"], ["a.b.c", "x.b.c", "c"]),
        ([], []),
    ],
)
def test_a_path_is_as_short_as_it_may_be(names, expected):
    assert list(short(names).values()) == expected


@given(st.lists(st.text("ab.", min_size=1, max_size=6), unique=True, max_size=6))
def test_short_names_never_meet(names):
    found = short(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1e-3, "0.001"),
        (3e-05, "3e-05"),
        (0.00123456, "0.001235"),
        (128, "128"),
        (True, "true"),
        (None, "null"),
        ("adamw", "adamw"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        ([1, 2], "[1, 2]"),
        ({"kind": "cosine"}, '{"kind": "cosine"}'),
        ("x" * 50, "x" * 23 + "…"),
    ],
)
def test_a_value_is_short_and_on_one_line(value, expected):
    assert shown(value) == expected


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=40) | st.floats() | st.none(), max_size=4))
def test_no_parameter_breaks_a_table(parameters):
    events = [created("t0001", 1, parameters), told("ended", "t0001", state="failed", reason="a\n\tb", step=1)]
    text = table(History.of(events, name="s"), 60)
    assert len(text.split("\n")) == 3
    assert all(len(line) <= 60 for line in text.split("\n"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (6.12344, "6.1234"), (0.0, "0.0000"), (-2.5, "-2.5000"), (1e-5, "1.000e-05"), (3e7, "3.000e+07")],
)
def test_an_objective_is_short(value, expected):
    assert objective(value) == expected


@given(st.text(), st.integers(1, 20))
def test_clipped_text_fits(text, width):
    assert len(clipped(text, width)) <= width


@pytest.mark.parametrize("events", [sweep_lines.halving(6), sweep_lines.population()], ids=["halving", "population"])
@pytest.mark.parametrize("upto", [3, 8, 15, None])
def test_a_progress_line_is_read_back(events, upto):
    history = History.of(events[:upto], name="s", metric="eval_loss")
    for trial, text in zip(history.trials, Lines().of(history), strict=True):
        found, metric = parse(text) or (None, None)
        assert found is not None
        assert (found.id, found.state, found.step) == (trial.id, trial.state, trial.step)
        assert found.value == (pytest.approx(trial.value, abs=1e-4) if trial.value is not None else None)
        assert metric == ("eval_loss" if trial.value is not None else None)
        if trial.state not in ("stopped", "completed", "failed"):
            assert found.parameters == {name: shown(value) for name, value in trial.parameters.items()}
        assert found.reason in (trial.reason, None, "from t0002 at step 20")


@pytest.mark.parametrize(
    "text", ["", "step 25/150  loss 6.1", "trial", "trial t0001", "trial and error", "trial x  maybe"]
)
def test_other_lines_are_none_of_a_trial(text):
    assert parse(text) is None
