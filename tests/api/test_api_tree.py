"""Objects of Python are the files' tree: the same fields, the same checks, the same errors."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from raytrain_eks import Cluster, Job, SpecError, Sweep
from raytrain_eks.api.tree import source
from raytrain_eks.spec import job as spec
from raytrain_eks.spec.load import load

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "cluster_specs").glob("*.yaml"), *(ROOT / "jobs").glob("*.yaml")])
KINDS = {"Job": Job, "Cluster": Cluster, "Sweep": Sweep}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_and_its_fields_are_the_same_object(path):
    plain = load(path)
    kind = KINDS[type(plain).__name__]
    loaded = kind.load(path)
    assert loaded.written() == plain.written()
    assert loaded.identity() == plain.identity()
    assert kind(**loaded.written()) == loaded == kind.read(loaded.to_yaml())
    assert kind.parse(loaded.written()) == loaded
    assert pickle.loads(pickle.dumps(loaded)) == loaded


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": {"learning_rat": 1.0}}, ["optimizer.learning_rat", "did you mean `learning_rate`?"]),
        ({"batch": {"tokens": 100}}, ["batch.tokens = 100", "must be a multiple of data.sequence_length"]),
        ({"name": "Bad Name", "seed": -1}, ["write bad-name", "seed = -1", "2 problems"]),
        ({"stop": {}}, ["needs at least one of `steps`, `epochs` and `tokens`"]),
        ({"kind": "Cluster"}, ["kind = Cluster"]),
    ],
)
def test_fields_are_checked_as_a_file_is(fields, changes, words):
    with pytest.raises(SpecError) as raised:
        Job(**fields | changes)
    assert [word for word in words if word not in str(raised.value)] == []


def test_parts_may_be_models_and_paths(fields, tmp_path):
    parts = {"batch": spec.Batch(sequences=2), "stop": spec.Stop(steps=20), "storage": tmp_path}
    assert Job(**fields | parts) == Job(**fields | {"storage": str(tmp_path)})


def test_a_changed_copy_is_checked_and_forgets_its_file():
    job = Job.load(ROOT / "jobs" / "quickstart.yaml")
    other = job.changed({"optimizer.learning_rate": 1e-4, "checkpoint.keep": 2}, name="other")
    assert (other.name, other.optimizer.learning_rate, other.checkpoint.keep) == ("other", 1e-4, 2)
    assert other.checkpoint.every == job.checkpoint.every == 50
    assert (job.name, job.optimizer.learning_rate) == ("quickstart", 3e-3)
    assert source(job) is not None
    assert source(other) is None
    assert source(job.model_copy(update={"name": "third"})) is None
    with pytest.raises(SpecError, match=r"batch\.tokens"):
        job.changed({"batch.tokens": 100})


def test_a_file_that_cannot_be_read_says_where(tmp_path):
    (tmp_path / "job.yaml").write_text("kind: Job\nname: x\nbatches: {}\n")
    with pytest.raises(SpecError, match=r"job\.yaml:3:1  batches\n  unknown field; did you mean `batch`"):
        Job.load(tmp_path / "job.yaml")
    with pytest.raises(FileNotFoundError):
        Job.load(tmp_path / "no.yaml")
    with pytest.raises(SpecError, match="must be Cluster"):
        Cluster.load(ROOT / "jobs" / "quickstart.yaml")


def test_a_cluster_renders_what_the_command_line_does(capsys):
    path = ROOT / "cluster_specs" / "mixed.yaml"
    cluster = Cluster.load(path)
    manifests = cluster.render()
    assert str(manifests) == (ROOT / "tests" / "golden" / "mixed.yaml").read_text()
    assert {each["kind"] for each in cluster.render("RayCluster", "queue")} == {"RayCluster", "Queue"}
    assert "<td>RayCluster</td>" in manifests._repr_html_()
    with pytest.raises(ValueError, match="nothing of this bundle is called 'raycluter'"):
        cluster.render("raycluter")
    assert capsys.readouterr() == ("", "")


def test_a_cluster_that_cannot_run_is_not_rendered():
    cluster = Cluster.load(ROOT / "cluster_specs" / "gpu-a100.yaml")
    with pytest.raises(SpecError, match="is no EC2 type of the catalogue"):
        cluster.changed(head={"instance": "m6i.3xlarge"}).render()
    nodes = [{"name": "a100", "instance": "p4d.24xlarge", "nodes": 2, "cpu": 96}]
    with pytest.raises(SpecError, match=r"workers\.a100\.cpu = 96"):
        cluster.changed(workers=nodes).render()


def test_the_door_is_light_in_python_too():
    program = (
        "import sys; from raytrain_eks import Cluster, Job, Run, Sweep, SpecError, TargetError\n"
        "heavy = {'ray', 'torch', 'pandas', 'numpy', 'pyarrow', 'ipywidgets', 'lightkube', 'boto3', 'click'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert shown.stdout == "[]\n"
