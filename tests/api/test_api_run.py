"""A run from Python: submitted, followed, read, cancelled and resumed, and never a word that nobody asked for."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from raytrain_eks import Job, Run, SpecError, Sweep, TargetError
from raytrain_eks.api import html
from raytrain_eks.api.result import Lines, RunFailed
from raytrain_eks.checkpoint.run import EVENTS, METRICS, SUMMARY, RunFolder
from raytrain_eks.submit.errors import Busy, Incompatible, NotAllowed, NotFound, Unreachable

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd):
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def job(fields) -> Job:
    return Job(**fields)


@pytest.fixture
def storage(tmp_path) -> Path:
    return tmp_path / "runs"


def trained(storage: Path, job: Job, *, steps: int, status: str | None = None, loss: float = 5.0) -> RunFolder:
    """A run folder as an attempt leaves it after some steps."""
    folder = RunFolder(storage, job.name)
    attempt = folder.claim(job)
    lines = [
        {"attempt": attempt.number, "step": step, "loss": loss - step / 10, "tokens": 64, "step_seconds": 0.5}
        for step in range(1, steps + 1)
    ]
    folder.storage.write(METRICS, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    folder.storage.write(EVENTS, b'{"attempt": 1, "event": "start"}\n')
    if status is not None:
        folder.write_summary({"status": status, "steps": steps, "attempt": attempt.number})
    return folder


def state(server, run: Run, **about: object) -> None:
    server.jobs[run.id] |= about


def test_a_job_is_submitted_and_read(server, job, storage):
    server.log = [b"step 1/20  loss 5.1000  lr 1.0e-03  128 tok/s  eta 10s\nhalf a ", b"line\nend"]
    run = job.submit(on=server.url, storage=storage)
    (sent,) = server.jobs.values()
    assert run.id == sent["submission_id"]
    assert sent["metadata"] == {"raytrain_run": "small", "raytrain_storage": str(storage)}
    assert run.storage == str(storage)
    assert run.folder == f"{storage}/small"
    assert run.wait(timeout=300)
    assert run.logs() == ["step 1/20  loss 5.1000  lr 1.0e-03  128 tok/s  eta 10s", "half a line", "end"]
    assert list(run.logs(follow=True)) == list(run.logs())
    assert str(run.logs()).endswith("half a line\nend")
    again = Run.get("small")
    assert (again.id, again.storage, again.target.name) == (run.id, run.storage, server.url)


def test_what_is_sent_is_the_file_or_the_fields(server, job, storage, person):
    text = f"# mine\n{job.to_yaml()}"
    (person / "job.yaml").write_text(text)
    (person / ".rayignore").write_text("*.pt\n")
    (person / "weights.pt").write_text("large")
    for each, name in ((Job.load("job.yaml"), "job.yaml"), (job.changed(name="other"), ".raytrain/job.yaml")):
        run = each.submit(on=server.url, storage=storage)
        sent = server.jobs[run.id]
        assert sent["entrypoint"].endswith(f" {name}")
        package = server.packages[sent["runtime_env"]["working_dir"].removeprefix("gcs://")]
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            assert archive.read(name).decode() == (text if name == "job.yaml" else each.to_yaml())
            assert "weights.pt" not in archive.namelist()


def test_a_sweep_is_submitted_with_its_job_in_place(server, storage, person, monkeypatch):
    monkeypatch.chdir(ROOT)
    loaded = Sweep.load("jobs/quickstart_sweep.yaml")
    for sweep in (loaded, Sweep(**loaded.written())):
        run = sweep.submit(on=server.url, storage=storage, working_dir=person)
        sent = server.jobs[run.id]
        assert run.name == loaded.name
        assert "raytrain_eks.tune" in sent["entrypoint"]
        package = server.packages[sent["runtime_env"]["working_dir"].removeprefix("gcs://")]
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            travels = Sweep.read(archive.read(".raytrain/job.yaml").decode())
        assert travels.job.name == "quickstart"
        server.jobs.clear()


def test_folder_read_as_tables(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    with pytest.raises(NotFound, match="a run that has just begun has no folder yet"):
        run.metrics()
    trained(storage, job, steps=4, status="complete")
    metrics = run.metrics()
    assert list(metrics.index) == [1, 2, 3, 4]
    assert metrics["loss"].tolist() == [4.9, 4.8, 4.7, 4.6]
    assert run.events()["event"].tolist() == ["start"]
    assert run.summary() == {"status": "complete", "steps": 4, "attempt": 1}
    assert run.checkpoints() == []
    assert run.checkpoints()._repr_html_() == "<i>none</i>"
    assert run.status().step == 4
    page = run._repr_html_()
    assert "complete, 4 steps" in page
    assert "<polyline" in page


@pytest.mark.parametrize(
    ("about", "summary", "expected"),
    [
        ({"status": "SUCCEEDED"}, "complete", ("complete", 0)),
        ({"status": "FAILED", "driver_exit_code": 1}, None, ("failed", 1)),
        ({"status": "FAILED", "driver_exit_code": 3}, None, ("failed", 3)),
        ({"status": "FAILED", "driver_exit_code": -9}, None, ("failed", 1)),
        ({"status": "STOPPED"}, "stopped", ("stopped", 1)),
    ],
)
def test_how_a_run_ended(server, job, storage, about, summary, expected):
    run = job.submit(on=server.url, storage=storage)
    trained(storage, job, steps=2, status=summary)
    state(server, run, **about)
    found = run.wait(timeout=300)
    assert (found.state, found.code) == expected
    assert bool(found) == (expected[1] == 0)
    if found:
        assert found.check() is found
    else:
        with pytest.raises(RunFailed, match=r"^small: ") as raised:
            run.wait(check=True)
        assert raised.value.result == found
        assert raised.value.code == expected[1]


def test_a_run_that_goes_on_is_waited_for_no_longer_than_asked(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    state(server, run, status="RUNNING")
    assert run.result is None
    with pytest.raises(TimeoutError, match="small is not over after 0s; it goes on"):
        run.wait(timeout=0.1)
    with pytest.raises(Busy, match="runs already"):
        job.submit(on=server.url, storage=storage)
    with pytest.raises(TimeoutError, match="has not stopped"):
        run.cancel(timeout=0.1)
    assert any(path.endswith("/stop") for _, path, *_ in server.seen)
    assert run.cancel(wait=False).state == "running"


def test_a_cancelled_run_stays_as_it_is(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    trained(storage, job, steps=2, status="stopped")
    state(server, run, status="STOPPED")
    assert run.cancel().state == "stopped"
    assert not any(path.endswith("/stop") for _, path, *_ in server.seen)


def test_a_run_is_resumed_from_its_folder(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    trained(storage, job, steps=2)
    on = run.resume()
    assert on.id != run.id
    assert on.storage == run.storage
    assert server.jobs[on.id]["metadata"] == server.jobs[run.id]["metadata"]
    with pytest.raises(NotFound, match="no run `other`"):
        Run("other", lambda: run.target, storage=str(storage)).resume()


def test_runs_are_listed(server, job, storage):
    assert Run.list(storage) == []
    trained(storage, job, steps=2, status="complete")
    submitted = job.changed(name="second").submit(on=server.url, storage=storage)
    trained(storage, job.changed(name="second"), steps=3)
    found = Run.list(storage)
    assert [run.name for run in found] == ["second", "small"]
    assert found[0].id == submitted.id
    assert found[0].target.name == server.url
    assert found[1].target.name == "local"
    assert "<td>second</td><td>-</td><td>3</td><td>4.7000</td>" in found._repr_html_()


def test_an_unknown_run_is_no_run(person):
    with pytest.raises(NotFound, match="no run `nobody`"):
        Run.get("nobody")


def test_errors_are_the_command_lines(server, job, storage, tmp_path):
    with pytest.raises(SpecError, match=r"(?s)storage = here.*must be absolute"):
        job.submit(on=server.url, storage="here")
    with pytest.raises(TargetError, match="--on nowhere: not a target"):
        job.submit(on="nowhere")
    with pytest.raises(TargetError, match=r"limit is 0\.0 MiB"):
        job.submit(on=server.url, storage=storage, max_upload="1")
    server.ray = "2.9.3"
    with pytest.raises(Incompatible, match=r"Ray is 2\.9\.3 there"):
        job.submit(on=server.url, storage=storage)
    assert job.submit(on=server.url, storage=storage, any_version=True).id in server.jobs
    server.token = "secret"
    with pytest.raises(NotAllowed, match="wants a token"):
        Run.get("small").logs()
    (tmp_path / "token").write_text("secret")
    assert Run.get("small", on=server.url, token_file=str(tmp_path / "token")).target.name == server.url


def test_a_cluster_that_is_away_is_told_in_the_notebook(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    trained(storage, job, steps=2)
    server.close()
    with pytest.raises(Unreachable, match="is not reachable"):
        run.logs()
    assert "by its folder it is at step 2" in run._repr_html_()


def test_nothing_of_a_run_becomes_a_script(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    state(server, run, status="FAILED", message=HOSTILE, driver_exit_code=None)
    trained(storage, job, steps=3)
    pages = [run._repr_html_(), Lines([HOSTILE])._repr_html_(), html.table([{HOSTILE: HOSTILE}])]
    pages += [html.facts(HOSTILE, {HOSTILE: HOSTILE, "link": f"http://x/'{HOSTILE}"})]
    assert all("<script" not in page and "'<" not in page for page in pages)


def test_a_curve_needs_no_finite_values(job, storage):
    assert html.curve([(1, float("nan")), (2, 1.0)]) == ""
    assert "inf" not in html.curve([(1, float("inf")), (2, 2.0), (3, 1.0), (4, 1.0)])
    assert html.curve([(step, 1.0) for step in range(100_000)]).count(",") < 1000


def test_a_view_follows_a_run_to_its_end(server, job, storage):
    pytest.importorskip("ipywidgets")
    run = job.submit(on=server.url, storage=storage)
    trained(storage, job, steps=2)
    state(server, run, status="RUNNING")
    view = run.watch(every=0.05)
    assert not view.wait(timeout=0.2)
    trained(storage, job, steps=4, status="complete")
    state(server, run, status="SUCCEEDED")
    assert view.wait(timeout=300)
    assert "complete, 4 steps" in view.widget.value
    assert "text/plain" in view._repr_mimebundle_()
    other = run.watch(every=60)
    other.stop()
    assert other.wait(timeout=300)


def test_without_widgets_a_view_is_the_picture_of_now(server, job, storage, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    run = job.submit(on=server.url, storage=storage)
    view = run.watch()
    assert view.widget is None
    assert view.wait(timeout=0)
    assert "complete" in view._repr_mimebundle_()["text/html"]


def test_tables_need_pandas_and_say_so(server, job, storage, monkeypatch):
    import sys

    trained(storage, job, steps=2)
    run = job.submit(on=server.url, storage=storage)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TargetError, match=r"pip install 'raytrain-eks\[notebook\]'"):
        run.metrics()


def test_a_summary_is_none_while_there_is_none(server, job, storage):
    run = job.submit(on=server.url, storage=storage)
    folder = trained(storage, job, steps=1)
    assert run.summary() is None
    folder.storage.write(SUMMARY, b"not json")
    with pytest.raises(OSError, match="damaged"):
        run.summary()
