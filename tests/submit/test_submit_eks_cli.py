"""The verbs with `--on eks` as a person types them, each in a process of its own."""

import json

import pytest
import yaml
from double.operator import Operator
from eks_site import NAMESPACE, Site

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path, api) -> Site:
    return Site(tmp_path, api)


def test_a_dry_run_prints_the_rayjob_and_contacts_nobody(site):
    file = site.job(workers="{nodes: 2}")
    shown = site.run("submit", file, "--on", "eks", "--dry-run", KUBECONFIG="/nowhere")
    assert shown.returncode == 0, shown.stderr
    body = yaml.safe_load(shown.stdout)
    assert (body["kind"], body["metadata"]["namespace"]) == ("RayJob", NAMESPACE)
    assert "nothing was made" in shown.stderr
    whole = site.run("submit", file, "--on", "eks", "--dry-run=server", "-o", "json")
    assert whole.returncode == 0, whole.stderr
    assert [each["kind"] for each in json.loads(whole.stdout)["items"]] == ["ConfigMap", "RayJob"]
    assert site.rayjobs() == []


def test_a_run_is_known_on_a_machine_that_did_not_submit_it(site):
    assert site.run("submit", site.job(), "--on", "eks").returncode == 0
    operator = Operator(site.api)
    operator.settle()
    (job,) = site.rayjobs()
    operator.entry(job["metadata"]["name"]).say("step 7/20  loss 5.5000  lr 1.0e-03  100 tok/s  eta 1m30s")
    elsewhere = {"XDG_STATE_HOME": str(site.folder / "other")}
    status = site.run("status", "tiny", "--on", "eks", "-o", "json", **elsewhere)
    found = json.loads(status.stdout)
    assert (found["state"], found["step"]) == ("running", 7)
    assert [pod["role"] for pod in found["pods"]] == ["head", "cpu", "submit"]
    assert "POD" in site.run("status", "tiny", "--on", "eks", **elsewhere).stdout
    assert "step 7/20" in site.run("logs", "tiny", "--on", "eks", "--last", "1", **elsewhere).stdout
    assert "tiny  running" in site.run("ls", "--on", "eks", **elsewhere).stdout
    asked = site.run("cancel", "tiny", "--on", "eks", "--no-wait", **elsewhere)
    assert (asked.returncode, "--now" in asked.stderr) == (4, True), "neither its head nor its folder is here"
    assert site.run("cancel", "tiny", "--on", "eks", "--now", **elsewhere).returncode == 0
    operator.settle()
    assert site.rayjobs() == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("submit", "tiny.yaml", "--on", "eks", "--context", "nope"), 4, "no context nope"),
        (("submit", "tiny.yaml", "--on", "local", "--cluster", "x"), 2, "--cluster is for --on eks"),
        (("submit", "tiny.yaml", "--on", "local", "--dry-run"), 2, "--tiny"),
        (("submit", "tiny.yaml", "--on", "eks", "--cluster", "gone"), 2, "no RayCluster gone"),
        (("submit", "tiny.yaml", "--on", "eks", "--storage", "/data"), 3, "pod's own disk"),
        (("status", "nobody", "--on", "eks"), 2, "no run `nobody`"),
        (("resume", "nobody", "--on", "eks"), 2, "no run `nobody`"),
    ],
)
def test_a_mistake_is_one_message(site, words, code, says):
    site.job()
    done = site.run(*words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
