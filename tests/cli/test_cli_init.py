"""`raytrain-eks init`, through the door that people use; on a real terminal where it asks."""

import os
import pty
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.spec.load import load


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    return tmp_path


CLUSTER = ["init", "cluster", "--zone", "us-west-2a"]
EXISTING = ["init", "cluster", "--existing-nodes"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "job"],
        [
            "init",
            "job",
            "--model",
            "org/model",
            "--data",
            "s3://bucket/x",
            "--format",
            "parquet",
            "--batch-tokens",
            "1M",
        ]
        + ["--sequence-length", "4000", "--learning-rate", "2e-5", "--steps", "9", "--cluster", "c.yaml"]
        + ["--group", "a", "--nodes", "2", "--engine", "deepspeed", "--name", "sft"],
        ["init", "job", "--sequence-length", "1024"],
        [*CLUSTER, "--gpus", "H100:8"],
        [*CLUSTER, "--instance", "p4d.24xlarge", "--capacity", "spot", "--queue", "volcano", "--image", "a.b/c:d"],
        [*CLUSTER, "--instance", "trn1.32xlarge", "--queue", "kueue", "--nodes", "0:3", "--image", "a.b/c:neuron"],
        ["init", "cluster", "--existing-nodes", "--nodes", "2"],
    ],
)
def test_what_is_written_is_valid_and_has_comments(capsys, arguments):
    code, shown, said = run(capsys, *arguments)
    assert code == 0, said
    path = shown.strip()
    model = load(path)
    text = Path(path).read_text()
    assert "# A training" in text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 120
    assert path in text
    assert f"next: raytrain-eks {'submit' if type(model).__name__ == 'Job' else 'render'} {path}" in said
    if type(model).__name__ == "Cluster":
        assert run(capsys, "render", path)[0] == 0
        assert "FILL IN" not in text


def test_the_flags_are_what_is_written(capsys):
    run(capsys, "init", "job", "x.yaml", "--name", "sft", "--model", "org/m", "--learning-rate", "1e-5", "--steps", "7")
    job = load("x.yaml")
    assert (job.name, job.model.name, job.optimizer.learning_rate, job.stop.steps) == ("sft", "org/m", 1e-5, 7)
    run(capsys, *CLUSTER, "y.yaml", "--gpus", "H100:8", "--nodes", "1:3", "--region", "us-west-2")
    (group,) = load("y.yaml").workers
    assert (group.gpus, group.nodes.min, group.nodes.max) == ("H100:8", 1, 3)


def test_the_usual_folder_is_used_where_there_is_one(capsys, folder):
    (folder / "jobs").mkdir()
    assert run(capsys, "init", "job", "--name", "a")[1] == "jobs/a.yaml\n"
    assert run(capsys, "init", "cluster", "--name", "a", "--existing-nodes")[1] == "a.yaml\n"


def test_a_file_is_not_overwritten_unless_told(capsys, folder):
    (folder / "x.yaml").write_text("mine")
    code, shown, said = run(capsys, "init", "job", "x.yaml")
    assert (code, shown) == (2, "")
    assert "x.yaml exists; nothing written" in said
    assert (folder / "x.yaml").read_text() == "mine"
    assert run(capsys, "init", "job", "x.yaml", "--force")[0] == 0
    assert load("x.yaml").name == "first-run"
    assert [path.name for path in folder.iterdir()] == ["x.yaml"], "nothing else stays behind"
    assert stat.S_IMODE((folder / "x.yaml").stat().st_mode) == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_to_stdout(capsys, folder):
    code, shown, _ = run(capsys, "init", "job", "-")
    assert code == 0
    assert "kind: Job" in shown
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["init", "job", "--name", "X Y"], 3, "write x-y"),
        (["init", "job", "--batch-tokens", "1000"], 3, "write 768 or 1024"),
        (["init", "job", "--learning-rate", "fast"], 2, "positive number such as 3e-4"),
        (["init", "job", "--learning-rate", "nan"], 2, "positive number such as 3e-4"),
        (["init", "job", "--group", "a"], 2, "add --cluster"),
        (["init", "job", "--sequence-length", "3"], 2, "x>=8"),
        (["init", "cluster"], 2, "--instance TYPE, --gpus H100:8, or --existing-nodes"),
        (["init", "cluster", "--gpus", "H100:8", "--existing-nodes"], 2, "give one of"),
        (["init", "cluster", "--instance", "p4d.24xlarg"], 3, "did you mean `p4d.24xlarge`"),
        (["init", "cluster", "--existing-nodes", "--nodes", "3:1"], 2, "MIN:MAX"),
        (["init", "cluster", "--existing-nodes", "--nodes", "0"], 2, "MIN:MAX"),
        (["init", "cluster", "--gpus", "H100:8"], 2, "add --zone, such as us-west-2a"),
        ([*EXISTING, "--storage", "fsx-lustre"], 2, "one availability zone: add --zone, such as us-west-2a"),
        (
            [*EXISTING, "--filesystem", "fs-0123456789abcdef0"],
            2,
            "--filesystem is of a shared folder: say which by --storage",
        ),
        ([*EXISTING, "--storage", "efs", "--mount-name", "abcdefgh"], 2, "--mount-name is not of --storage efs"),
        ([*EXISTING, "--claim", "data", "--bucket", "s3://b/x"], 2, "--bucket is not of --storage claim"),
        ([*EXISTING, "--capacity", "spot"], 2, "--capacity is of nodes that are made, and these exist already"),
        ([*EXISTING, "--efa", "none"], 2, "--efa is of nodes that are made, not of --existing-nodes"),
        (
            [*EXISTING, "--subnet", "subnet-0a1b2c3d"],
            2,
            "is of nodes that are made, or of a new FSx file",
        ),
        ([*EXISTING, "--queue-name", "ml"], 2, "--queue-name is of a queue: say which kind by --queue"),
        (
            [*EXISTING, "--storage", "fsx-lustre", "--mount-name", "m", "--throughput", "125"],
            2,
            "is of a new file system",
        ),
        ([*EXISTING, "--storage", "efs", "--filesystem", "fs-mine"], 3, "must look like fs-0123456789abcdef0"),
        ([*EXISTING, "--gitops", "mine"], 3, "must be a URL such as https://github.com/me/clusters"),
        ([*CLUSTER, "--instance", "p4d.24xlarge", "--capacity", "capacity-block"], 3, "the time when it ends"),
        ([*CLUSTER, "--instance", "p4d.24xlarge", "--ends", "2026-12-24T11:30:00Z"], 3, "only a capacity block ends"),
        ([*CLUSTER, "--instance", "g6e.4xlarge", "--efa", "required"], 3, "has no EFA"),
        (["init", "cluster", "--existing-nodes", ""], 2, "the empty name is no file to write"),
        (["init", "cluster", "--existing-nodes", "--force", "."], 2, ". is no file to write"),
        (["init", "cluster", "--existing-nodes", "--region", "mars"], 3, "must be a region"),
    ],
)
def test_a_mistake_writes_nothing(capsys, folder, arguments, code, words):
    ended, shown, said = run(capsys, *arguments)
    assert (ended, shown) == (code, "")
    assert words in said
    assert not list(folder.iterdir())


def take(terminal):
    """In a new process: make it the controlling terminal, and let Ctrl-C interrupt, which a runner may ignore."""
    os.login_tty(terminal)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def converse(arguments, answers, folder):
    """Run on a terminal of its own; each answer is typed after its question. What was shown, and the exit code."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from raytrain_eks.cli.main import main; main()", *arguments]
    process = subprocess.Popen(
        command,
        cwd=folder,
        pass_fds=[theirs],
        preexec_fn=lambda: take(theirs),
    )
    os.close(theirs)
    shown, seen, pending = "", 0, list(answers)
    try:
        for turn in range(600):
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 4096).decode()
                except OSError:  # Linux: the other side has closed
                    break
            elif process.poll() is not None:
                break
            elif turn % 30 == 29 and answers and not pending and answers[-1][1] == "\x03":
                os.write(ours, b"\x03")  # as a person would: readline misses one that comes while it sets itself up
            if pending and pending[0][0] in shown[seen:]:
                seen = len(shown)
                os.write(ours, pending.pop(0)[1].encode())
        process.wait(timeout=300)
    finally:
        process.kill()
        os.close(ours)
    assert not pending, f"{pending[0][0]!r} was never asked; shown: {shown}"
    return shown, process.returncode


def test_on_a_terminal_it_asks_and_asks_again(folder):
    answers = [
        ("Name of the run", "My Run"),
        ("Name of the run", "my-run"),
        ("Pretrained model", ""),
        ("Training data", ""),
    ]
    answers += [("Tokens of a sequence", "4"), ("Tokens of a sequence", "128"), ("Tokens of the global batch", "2048")]
    answers += [("Peak learning rate", "1e-3"), ("Optimizer steps", "")]
    shown, code = converse(["init", "job"], [(question, f"{answer}\n") for question, answer in answers], folder)
    assert code == 0, shown
    job = load(folder / "my-run.yaml")
    assert (job.data.sequence_length, job.optimizer.learning_rate, job.stop.steps) == (128, 1e-3, 150)
    assert "write my-run" in shown


def test_on_a_terminal_a_cluster(folder):
    answers = [("Name of the cluster", ""), ("AWS region", "us-east-2"), ("Workers", "H100:8")]
    answers += [("Nodes", "2"), ("EKS cluster's name", "ml"), ("Availability zone", ""), ("one availability zone", "x")]
    answers[4:4] = [
        ("Shared folder", "lustre"),
        ("must be fsx-lustre or efs", "fsx-lustre"),
        ("existing file system", ""),
    ]
    answers += [("must be a zone", "us-east-2b"), ("Queue", "kueue"), ("JupyterHub", ""), ("Argo CD", "https://g.it/c")]
    shown, code = converse(["init", "cluster"], [(question, f"{answer}\n") for question, answer in answers], folder)
    assert code == 0, shown
    made = load(folder / "first.yaml")
    assert (made.workers[0].gpus, made.eks, made.zone) == ("H100:8", "ml", "us-east-2b")
    assert (made.storage.shared.kind, made.queue.kind, made.jupyterhub) == ("fsx-lustre", "kueue", None)
    assert made.gitops.repository == "https://g.it/c"


def test_on_a_terminal_trainium_is_asked_for_its_image(folder):
    answers = [("Name of the cluster", "trn"), ("AWS region", "us-east-2"), ("Workers", "trn1.32xlarge")]
    answers += [("Nodes", "1"), ("Shared folder", "claim"), ("existing claim", "data"), ("EKS cluster's name", "")]
    answers += [("Availability zone", ""), ("Image", "r i"), ("no image name", "r/i:1"), ("Queue", "")]
    answers += [("JupyterHub", "r/hub:1"), ("Argo CD", "")]
    shown, code = converse(["init", "cluster"], [(question, f"{answer}\n") for question, answer in answers], folder)
    assert code == 0, shown
    made = load(folder / "trn.yaml")
    assert (made.ray.image, made.storage.shared.claim) == ("r/i:1", "data")
    assert "fill in neuron_image" in shown


def test_yes_asks_nothing_on_a_terminal(folder):
    shown, code = converse(["init", "job", "--yes"], [], folder)
    assert code == 0, shown
    assert "Name of the run" not in shown


def test_an_interruption_writes_nothing(folder):
    shown, code = converse(["init", "job"], [("Name of the run", "\x03")], folder)
    assert code == 130, shown
    assert not list(folder.iterdir())
