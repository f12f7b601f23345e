"""`sweep ls`, `results` and `report`, `status` of a sweep, and the table under a log that is followed."""

import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from raytrain_eks.cli.main import main
from raytrain_eks.cli.sweep_report import VERBS
from raytrain_eks.cli.sweep_screen import SweepScreen

sys.path.insert(0, str(Path(__file__).parent.parent / "tune"))
import sweep_lines


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYTRAIN_STORAGE", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "runs").mkdir()
    sweep_lines.write(tmp_path / "runs", "lr", sweep_lines.halving(), {"state": "completed", "seconds": 12.0})
    sweep_lines.write(tmp_path / "runs", "pbt", sweep_lines.population())
    return tmp_path / "runs"


def call(verb, *arguments):
    return CliRunner().invoke(VERBS[verb], [str(argument) for argument in arguments], catch_exceptions=False)


def test_sweeps_are_listed(storage):
    found = json.loads(call("ls", "-o", "json").stdout)
    assert [(row["sweep"], row["state"], row["trials"], row["best"]) for row in found] == [
        ("lr", "completed", 8, "t0002"),
        ("pbt", "running", 2, "t0001"),
    ]
    assert call("ls").stdout.splitlines()[0].split()[:2] == ["SWEEP", "STATE"]


def test_an_empty_storage_is_said_on_stderr(tmp_path):
    done = call("ls", "--storage", tmp_path)
    assert (done.stdout, done.exit_code) == ("", 0)
    assert "no sweeps in" in done.stderr


def test_results_are_best_first_and_say_what_failed(storage):
    text = call("results", "lr").stdout
    assert text.splitlines()[2].split()[:2] == ["1", "t0002"]
    assert "t0003 failed: RuntimeError: out of memory" in text
    data = json.loads(call("results", "lr", "--top", 2, "-o", "json").stdout)
    assert [trial["trial"] for trial in data["trials"]] == ["t0002", "t0001"]
    assert data["objective"] == {"metric": "objective", "mode": "min"}


@pytest.mark.parametrize(
    ("name", "said"), [("pb", "did you mean `pbt`?"), ("..", "sweeps there: lr, pbt"), ("", "no sweep")]
)
def test_a_name_that_is_none_is_told(storage, capsys, name, said):
    from raytrain_eks.cli.outcome import Failure

    with pytest.raises(Failure, match=r"no sweep") as refused:
        call("results", name)
    assert said in str(refused.value)
    assert refused.value.code == 2


def test_a_report_is_written_where_it_is_asked_for(storage, tmp_path):
    assert call("report", "lr").stdout.strip() == f"{storage}/lr/report.html"
    assert call("report", "lr", "--to", tmp_path / "x.html").stdout.strip() == f"{tmp_path}/x.html"
    assert (tmp_path / "x.html").read_text() == (storage / "lr" / "report.html").read_text()


def test_status_of_a_sweep_is_its_table(storage, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["status", "lr"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "completed"
    assert lines[1].startswith("sweep lr: 2 completed")
    assert len(lines) == 3 + 8
    with pytest.raises(SystemExit):
        main(["status", "lr", "-o", "json"])
    assert json.loads(capsys.readouterr().out)["trials"][2]["state"] == "failed"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_table_stays_below_the_log(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = SweepScreen("lr", Terminal())
    screen.line("preparing data")
    screen.line("trial t0001  step 0  running  optimizer.learning_rate=0.001")
    screen.line("trial t0001  step 10  eval_loss 5.5000  running")
    screen.line("a warning")
    screen.line("trial t0002  pending")
    shown = _as_seen(screen.stream.getvalue())
    assert shown == [
        "preparing data",
        "a warning",
        "sweep lr: 1 running, 1 pending of 2 trials, best t0001 5.5000 at step 10",
        "TRIAL   STATE    STEP  EVAL_LOSS    BEST  learning_rate",
        "t0001*  running    10     5.5000  5.5000          0.001",
        "t0002   pending     -          -       -              -",
    ]
    screen.close()
    screen.line("done")
    assert _as_seen(screen.stream.getvalue()) == [*shown, "done"]


def test_without_a_terminal_every_line_stays_as_it_is():
    screen = SweepScreen("lr", io.StringIO())
    lines = ["preparing", "trial t0001  step 10  eval_loss 5.5000  running", "done"]
    for text in lines:
        screen.line(text)
    assert screen.stream.getvalue().splitlines() == lines


def _as_seen(written: str) -> list[str]:
    """The lines that a terminal shows in the end: it knows moving up and clearing below."""
    seen: list[str] = []
    for index, part in enumerate(written.split("\x1b[")):
        if index:
            if part[0] == "J":
                part = part[1:]
            else:
                count, _, part = part.partition("A")
                seen, part = seen[: len(seen) - int(count)], part.lstrip("\r")
        seen += part.split("\n")[:-1]
    return seen
