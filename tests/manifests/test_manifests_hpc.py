"""MPIJob and Slurm on the pods of a worker group: legal, with the group's own resources, waiting until wanted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kube_schema import definitions_in

from raytrain_eks.lint import lint_objects
from raytrain_eks.manifests import slurm
from raytrain_eks.manifests.bundle import Bundle, build, unfounded
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import SpecError

FILE = """\
kind: Cluster
name: llm
region: us-west-2
zone: us-west-2a
ray: {image: example/raytrain:gpu}
secrets: {HF_TOKEN: {name: hf, key: token}}
workers:
  - {name: a100, instance: p4d.24xlarge, nodes: {min: 0, max: 4}}
"""
TRN = "  - {name: trn, instance: trn1.32xlarge, nodes: 2, image: example/raytrain:trn}\n"
MPI = "mpi: {command: [all_reduce_perf, -b, '8'], group: a100}\n"
LOGIN = "  login: {sssd: {name: sssd, key: sssd.conf}, root_keys: ['ssh-ed25519 AAAA me']}\n"
SLURM = f"slurm:\n  groups: [a100]\n{LOGIN}"
VOLCANO = "queue: {kind: volcano, name: ml, priority: high}\n"
KUEUE = "queue: {kind: kueue, name: ml}\nautoscaling: off\n"
Body = dict[str, Any]


def built(text: str) -> Bundle:
    return build(resolve(Cluster.read(text, "llm.yaml")))


def only(bundle: Bundle, kind: str) -> Body:
    return next(each.body for each in bundle.objects if each.kind == kind)


@pytest.fixture
def findings(shared: Path) -> Callable[[Body], list[str]]:
    return definitions_in(shared / "crds").findings


CASES = {
    "mpi": FILE + MPI,
    "mpi under volcano": FILE + MPI + VOLCANO,
    "mpi under kueue": FILE.replace("{min: 0, max: 4}", "4") + MPI.replace("group: a100", "start: true") + KUEUE,
    "mpi on trainium": FILE + TRN + MPI.replace("a100", "trn"),
    "slurm": FILE + SLURM,
    "slurm with all groups": FILE + TRN + f"slurm:\n{LOGIN}",
    "slurm of cpus": FILE.replace("p4d.24xlarge", "m6i.4xlarge") + SLURM,
    "both": FILE + MPI + SLURM,
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_what_is_rendered_is_legal_and_runs_as_far_as_lint_knows(text, findings):
    bundle = built(text)
    assert {each.kind for each in bundle.objects} & {"MPIJob", "Controller"}
    for each in bundle.objects:
        if each.system in ("mpi", "slurm"):
            assert findings(each.body) == [], each.key
    assert [str(each) for each in lint_objects(bundle.bodies) if each.severity == "error"] == []
    assert not list(unfounded(bundle))


def test_a_file_without_them_renders_none():
    assert not {each.system for each in built(FILE).objects} & {"mpi", "slurm"}


def test_an_mpi_job_has_a_rank_for_each_accelerator_of_the_groups_pods():
    job = only(built(FILE + MPI.replace("group: a100", "nodes: 2")), "MPIJob")["spec"]
    worker = job["mpiReplicaSpecs"]["Worker"]
    launcher = job["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    container = worker["template"]["spec"]["containers"][0]
    assert (job["slotsPerWorker"], worker["replicas"]) == (8, 2)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["resources"]["limits"]["vpc.amazonaws.com/efa"] == "4"
    assert launcher["containers"][0]["command"][:3] == ["mpirun", "-np", "16"]
    assert launcher["containers"][0]["command"][-3:] == ["all_reduce_perf", "-b", "8"]
    assert "nvidia.com/gpu" not in launcher["containers"][0]["resources"]["limits"]
    assert launcher["nodeSelector"]["raytrain-eks/group"] == "head"
    assert worker["template"]["spec"]["nodeSelector"]["raytrain-eks/group"] == "a100"
    assert "restartPolicy" not in worker["template"]["spec"]


def test_ranks_get_the_variables_by_name_and_no_secret_stands_in_the_command():
    container = only(built(FILE + MPI), "MPIJob")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"][
        "containers"
    ][0]
    handed = [container["command"][index + 1] for index, word in enumerate(container["command"]) if word == "-x"]
    assert handed == [entry["name"] for entry in container["env"]]
    assert {"FI_PROVIDER", "HF_TOKEN"} <= set(handed)
    assert not any("=" in name for name in handed)
    assert next(entry for entry in container["env"] if entry["name"] == "HF_TOKEN")["valueFrom"]


@pytest.mark.parametrize(
    ("text", "suspend", "label", "note"),
    [
        (FILE + MPI, True, None, "kubectl patch -n training mpijob llm--mpi"),
        (FILE + MPI.replace("group", "start: true, group"), False, None, None),
        (CASES["mpi under kueue"], True, "ml", None),
        (CASES["mpi under kueue"].replace(", start: true", ""), True, None, "kueue.x-k8s.io/queue-name=ml"),
    ],
    ids=["waits", "starts", "kueue starts it", "waits for its label"],
)
def test_it_waits_until_it_is_wanted(text, suspend, label, note):
    bundle = built(text)
    job = only(bundle, "MPIJob")
    assert job["spec"]["runPolicy"]["suspend"] is suspend
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == label
    assert [each for each in bundle.notes if "the MPIJob waits" in each and (note or "") in each] or note is None


def test_volcano_gets_all_pods_of_an_mpi_job_or_none():
    policy = only(built(CASES["mpi under volcano"]), "MPIJob")["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy == {"queue": "ml", "minAvailable": 5, "priorityClass": "high"}


def test_a_partition_for_each_group_and_devices_that_slurm_can_find():
    bundle = built(CASES["slurm with all groups"])
    sets = {each.name: each.body["spec"] for each in bundle.objects if each.kind == "NodeSet"}
    assert list(sets) == ["llm--slurm--a100", "llm--slurm--trn"]
    assert sets["llm--slurm--a100"]["extraConf"] == "Features=a100 Gres=gpu:8"
    assert sets["llm--slurm--trn"]["extraConf"] == "Features=trn Gres=neuron:16"
    assert "Default=YES" in sets["llm--slurm--a100"]["partition"]["config"]
    assert "Default=YES" not in sets["llm--slurm--trn"]["partition"]["config"]
    assert only(bundle, "ConfigMap")["data"]["gres.conf"] == "AutoDetect=nvidia\nName=neuron File=/dev/neuron[0-15]\n"
    controller = only(bundle, "Controller")["spec"]
    assert controller["extraConf"] == "GresTypes=gpu,neuron"
    assert controller["configFileRefs"] == [{"name": "llm--slurm--gres"}]


def test_the_pods_of_a_partition_are_pods(findings):
    """The operator's definitions take anything for slurmd and the template, so they are looked at as a pod's parts."""
    spec = only(built(FILE + SLURM), "NodeSet")["spec"]
    pod = spec["template"]["spec"] | {"containers": [spec["slurmd"] | {"name": "slurmd"}]}
    meta = {"name": "x", "namespace": "training"}
    assert findings({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}) == []
    assert spec["slurmd"]["resources"]["limits"]["vpc.amazonaws.com/efa"] == "4"


def test_slurms_doors_stay_inside_and_its_keys_are_awaited():
    bundle = built(FILE + SLURM)
    assert only(bundle, "LoginSet")["spec"]["service"] == {"spec": {"type": "ClusterIP"}}
    assert any("Secret llm--slurm-keys must exist" in note for note in bundle.notes)
    assert "secret/llm--slurm-keys" in only(bundle, "NodeSet")["metadata"]["annotations"]["raytrain-eks/external"]
    assert "Secret" not in {each.kind for each in bundle.objects}


def test_cpus_have_no_devices_to_tell():
    bundle = built(CASES["slurm of cpus"])
    assert "configFileRefs" not in only(bundle, "Controller")["spec"]
    assert only(bundle, "NodeSet")["spec"]["extraConf"] == "Features=a100"
    assert not slurm.devices([])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE + MPI.replace("a100", "a10"), "did you mean `a100`"),
        (FILE + TRN + MPI.replace(", group: a100", ""), "the file has several groups"),
        (FILE + MPI.replace("group: a100", "nodes: 9"), "the group has at most 4 nodes"),
        (FILE + "mpi: {command: []}\n", "mpi.command"),
        (FILE + "slurm: {groups: [a100, a100]}\n", "is given twice"),
        (FILE + "slurm: {groups: [b]}\n", "is no worker group of this file"),
        (FILE + SLURM.replace("ssh-ed25519 AAAA me", "-----BEGIN PRIVATE KEY-----"), "must be a public key"),
        (FILE + "slurm: {version: 26.05}\n", "in quotes"),
    ],
)
def test_what_does_not_fit_is_named(text, words):
    with pytest.raises(SpecError, match=words):
        built(text)
