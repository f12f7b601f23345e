"""The verbs as a person calls them: output, exit codes, and what is asked on a terminal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from raytrain_eks.cli.main import main
from raytrain_eks.kube import delete as deleting
from raytrain_eks.kube import transport

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "cluster_specs" / "gpu-a100.yaml")
SMALL = str(ROOT / "cluster_specs" / "cpu-kind.yaml")


@pytest.fixture
def run(kubectl_config, capsys, monkeypatch):
    """`run("apply", FILE)` -> exit code, stdout, stderr."""
    monkeypatch.setenv("KUBECONFIG", str(kubectl_config))
    monkeypatch.setattr(deleting, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(deleting, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)

    def called(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return called


@pytest.fixture
def terminal(monkeypatch):
    """A person at a terminal, whose answers are given."""

    def answers(text):
        import io

        class Terminal(io.StringIO):
            def isatty(self):
                return True

        monkeypatch.setattr(sys, "stdin", Terminal(text))

    return answers


def test_apply_diff_and_delete_from_one_end_to_the_other(run, kube_api):
    code, out, err = run("diff", FILE)
    assert (code, len(out.splitlines())) == (1, len(list(yaml.safe_load_all(render(run)))) - 1)
    assert all(line.startswith("+ ") for line in out.splitlines())
    code, out, err = run("apply", FILE, "--no-wait")
    assert code == 0, err
    assert "created     RayCluster/gpu-a100 in training\n" in out
    assert "double (https://127.0.0.1" in err
    assert "warning: double runs Kubernetes 1.33" not in err
    assert run("diff", FILE)[:2] == (0, "")
    code, out, _ = run("apply", FILE, "--no-wait")
    assert (code, {line.split()[0] for line in out.splitlines()}) == (0, {"unchanged"})
    code, out, _ = run("delete", FILE)
    assert code == 0
    assert "kept        PersistentVolumeClaim/gpu-a100--shared in training: storage stays unless --storage" in out
    code, out, _ = run("delete", "gpu-a100", "--storage")
    assert (code, {line.split()[0] for line in out.splitlines()}) == (0, {"deleted"})
    assert kube_api.objects.names("persistentvolumeclaims", "training") == []
    code, out, err = run("delete", "gpu-a100")
    assert (code, out) == (0, "")
    assert "has nothing of a cluster file called gpu-a100" in err


def render(run):
    return run("render", FILE)[1]


@pytest.mark.slow
def test_what_render_wrote_can_be_applied(run, tmp_path):
    (tmp_path / "all.yaml").write_text(render(run))
    code, out, _ = run("apply", str(tmp_path / "all.yaml"), "--no-wait", "-o", "json")
    assert code == 0
    data = json.loads(out)
    assert data[-1] == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "namespace": "training",
        "name": "gpu-a100",
        "outcome": "created",
        "reason": None,
    }
    assert run("apply", FILE, "--no-wait", "--dry-run", "server")[1].count("unchanged") == len(data)
    assert run("diff", FILE)[0] == 0


@pytest.mark.slow
def test_diff_is_by_meaning_and_leaves_out_what_others_own(run, kube_api, tmp_path):
    run("apply", FILE, "--no-wait")
    live = kube_api.objects.get("rayclusters", "gpu-a100")
    groups = live["spec"]["workerGroupSpecs"]
    groups[0]["replicas"] = 3
    kube_api.objects.patch(live, {"spec": {"workerGroupSpecs": groups}}, manager="python-requests")
    kube_api.objects.patch(live, {"metadata": {"annotations": {"note": "by somebody"}}}, manager="kubectl-annotate")
    assert run("diff", FILE)[:2] == (0, "")
    text = Path(FILE).read_text().replace("max: 16", "max: 8")
    (tmp_path / "smaller.yaml").write_text(text)
    code, out, _ = run("diff", str(tmp_path / "smaller.yaml"))
    assert code == 1
    assert "~ RayCluster/training/gpu-a100  spec.workerGroupSpecs.a100.maxReplicas: 16 -> 8" in out
    assert "+ " not in out.replace("~ ", "")
    # What the file no longer has.
    pool = kube_api.objects.get("nodepools", "gpu-a100--a100", "")
    pool["metadata"] = {"name": "gpu-a100--former", "labels": pool["metadata"]["labels"]}
    kube_api.objects.put({key: value for key, value in pool.items() if key != "status"})
    assert "- NodePool/gpu-a100--former" in run("diff", FILE)[1]


def test_diff_says_whose_fields_would_not_be_taken(run, kube_api):
    run("apply", SMALL, "--no-wait")
    live = kube_api.objects.get("rayclusters", "cpu-kind", "raytrain")
    kube_api.objects.patch(live, {"spec": {"rayVersion": "2.99.0"}}, manager="kubectl-edit")
    code, out, err = run("diff", SMALL)
    assert code == 1
    assert '~ RayCluster/raytrain/cpu-kind  spec.rayVersion: "2.99.0" -> "2.60.0"' in out
    assert ".spec.rayVersion is kubectl-edit" in err


def test_apply_waits_and_says_why_it_is_not_ready(run, kube_api, monkeypatch):
    code, _, err = run("apply", SMALL, "--timeout", "1ms")
    assert code == 5
    assert "RayCluster/cpu-kind is not ready: the KubeRay operator has not taken it up yet; does it run?" in err
    made = kube_api.objects.get("rayclusters", "cpu-kind", "raytrain")
    kube_api.event(made, "InvalidRayClusterSpec", "the spec is bad")
    code, _, err = run("apply", SMALL, "--timeout", "1m")
    assert code == 1
    assert "the spec is bad" in err
    assert "does not get better by waiting" in err


def test_a_file_with_problems_is_not_applied(run, kube_api, tmp_path):
    (tmp_path / "c.yaml").write_text(Path(FILE).read_text().replace("max: 16", "max: -1"))
    before = len(kube_api.requests)
    for dry_run in ((), ("--dry-run", "client"), ("--dry-run", "server")):
        code, _, err = run("apply", str(tmp_path / "c.yaml"), "--no-wait", *dry_run)
        assert code == 3
        assert "nodes.max" in err
    assert run("apply", FILE, "--dry-run", "client")[0] == 0
    assert len(kube_api.requests) == before


def test_objects_that_lint_refuses_are_not_applied(run, kube_api, tmp_path):
    bodies = list(yaml.safe_load_all(render(run)))
    cluster = next(body for body in bodies if body["kind"] == "RayCluster")
    cluster["spec"]["headGroupSpec"]["rayStartParams"]["labels"] = "a=b"
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(bodies))
    before = len(kube_api.requests)
    code, _, err = run("apply", str(tmp_path / "all.yaml"))
    assert code == 3
    assert "so nothing was applied" in err
    assert "all.yaml:" in err
    assert len(kube_api.requests) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Job\nname: x", "raytrain-eks submit FILE"),
        ("just: text", "needs apiVersion, kind and metadata.name"),
        ("", "no Kubernetes object"),
        ("a: [", "problem"),
    ],
)
def test_files_that_are_something_else(run, tmp_path, text, says):
    (tmp_path / "x.yaml").write_text(text)
    for verb in ("apply", "delete", "diff"):
        code, _, err = run(verb, str(tmp_path / "x.yaml"))
        assert code == 3, (verb, err)
        assert says in err


@pytest.mark.parametrize("verb", ["apply", "delete", "diff"])
def test_who_may_not_is_told_so(run, kube_api, verb):
    run("apply", SMALL, "--no-wait")
    kube_api.rbac.deny(verb="get", resource="rayclusters")
    code, out, err = run(verb, SMALL, *(["--no-wait"] if verb == "apply" else []))
    assert code == 4
    assert "not allowed (403): get rayclusters.ray.io cpu-kind in namespace raytrain" in out + err
    assert "verbs: [get]" in out + err


def test_a_file_that_is_not_there(run):
    for verb in ("apply", "delete", "diff"):
        code, _, err = run(verb, "nowhere/cluster.yaml")
        assert (code, "nowhere/cluster.yaml" in err) == (2, True)
        assert run(verb, "")[0] == 2
    assert run("delete", "a,b!=c")[0] == 2
    assert run("apply", SMALL, "--context", "other")[0] == 4


def test_jobs_that_run_keep_a_cluster_from_being_deleted(run, kube_api):
    run("apply", FILE, "--no-wait")
    spec = {"entrypoint": "python train.py", "clusterSelector": {"ray.io/cluster": "gpu-a100"}}
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "j", "namespace": "training"},
        "spec": spec,
    }
    kube_api.objects.put(job)
    code, out, err = run("delete", FILE, "-y")
    assert (code, out) == (1, "")
    assert "training/j still run on it, nothing was deleted" in err
    assert run("delete", FILE, "--dry-run")[0] == 0
    assert kube_api.objects.get("rayclusters", "gpu-a100")
    assert run("delete", FILE, "--force")[0] == 0
    assert kube_api.objects.names("rayclusters", "training") == []


# At a terminal


@pytest.mark.slow
def test_a_person_is_shown_what_would_change_and_asked(run, kube_api, terminal):
    terminal("n\n")
    code, out, err = run("apply", FILE, "--no-wait")
    assert (code, out) == (130, "")
    assert "created     RayCluster/gpu-a100" in err
    assert kube_api.objects.names("rayclusters") == []
    terminal("y\n")
    assert run("apply", FILE, "--no-wait")[0] == 0
    terminal("")
    assert run("apply", FILE, "--no-wait")[0] == 0, "where nothing would change, nothing is asked"
    terminal("n\n")
    code, out, err = run("delete", FILE, "--storage")
    assert (code, out) == (130, "")
    assert "deletes     PersistentVolumeClaim/gpu-a100--shared in training" in err
    terminal("")
    assert run("delete", FILE, "--storage", "-y")[0] == 0


def test_reasons_are_explained(run):
    code, out, _ = run("explain", "InsufficientCapacityError")
    assert (code, "AWS has no such instance free now" in out) == (0, True)
    assert json.loads(run("explain", "OOMKilled", "-o", "json")[1])[0]["severity"] == "error"


@pytest.mark.parametrize("verb", ["apply", "delete", "diff"])
def test_help_needs_no_client_library(verb):
    program = (
        "import sys, atexit\n"
        "from raytrain_eks.cli.main import main\n"
        "atexit.register(lambda: print(sorted({'lightkube', 'httpx2', 'kubernetes', 'pydantic'} & set(sys.modules))))\n"
        f"main(['{verb}', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--context" in done.stdout
