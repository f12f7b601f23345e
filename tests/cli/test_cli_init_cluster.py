"""`init cluster`: whatever is asked for, the file is valid, says what it was told, and marks what nobody said."""

import re

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.cli.init_cluster import SECTIONS, VOLUMES, checked, command
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.first_cluster import FILL, to_fill_in
from raytrain_eks.spec.problem import SpecError

PLACES = {
    "--filesystem": "filesystem",
    "--mount-name": "mount_name",
    "--subnet": "subnet",
    "--security-group": "security_groups",
    "--claim": "claim",
    "--storage-class": "name",
}


def made(*words):
    """The file's text, checked by the verb as `validate` checks it."""
    result = CliRunner().invoke(command, ["-", "--region", "us-west-2", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def read(text):
    return Cluster.read(text, "made.yaml")


def keys(text):
    return [key for _, key in to_fill_in(text)]


H100 = ("--gpus", "H100:8", "--nodes", "4", "--zone", "us-west-2a")
TRN2 = ("--instance", "trn2.48xlarge", "--nodes", "2", "--zone", "us-west-2a")
SMALL = ("--instance", "g6e.4xlarge", "--nodes", "0:2")


def test_h100_with_lustre_efa_and_kueue():
    text = made(
        "--name", "h100", *H100, "--efa", "required", "--storage", "fsx-lustre", "--size", "4800Gi", "--queue", "kueue"
    )
    cluster = read(text)
    shared = cluster.storage.shared
    assert (shared.kind, shared.size, shared.mount) == ("fsx-lustre", "4800Gi", "/shared")
    assert (cluster.queue.kind, cluster.workers[0].efa, cluster.workers[0].nodes.max) == ("kueue", "required", 4)
    assert keys(text) == ["subnet", "security_groups"]


def test_neuron_with_jupyterhub():
    text = made("--name", "trn2", *TRN2, "--jupyterhub", "r/hub:1")
    cluster = read(text)
    assert (cluster.jupyterhub.image, cluster.workers[0].instance) == ("r/hub:1", "trn2.48xlarge")
    assert keys(text) == ["image", "neuron_image"]


def test_a_small_one_for_argo_cd():
    text = made("--name", "small", *SMALL, "--gitops", "https://github.com/me/clusters")
    assert read(text).gitops.repository == "https://github.com/me/clusters"
    assert keys(text) == []
    assert "render - --gitops" in text


@pytest.mark.parametrize(
    ("words", "path", "expected"),
    [
        (["--namespace", "research"], "namespace", "research"),
        (["--kubernetes", "1.34"], "kubernetes", "1.34"),
        (["--eks", "ml"], "eks", "ml"),
        (["--efa", "none"], "workers.0.efa", "none"),
        (
            ["--capacity", "reserved", "--reservation", "cr-0a1b2c3d"],
            "workers.0.capacity.reservations.0",
            "cr-0a1b2c3d",
        ),
        (["--role", "nodes"], "provisioner.role", "nodes"),
        (["--subnet", "subnet-0a1b2c3d"], "network.subnets.ids.0", "subnet-0a1b2c3d"),
        (["--security-group", "sg-0a1b2c3d"], "network.security_groups.ids.0", "sg-0a1b2c3d"),
        (["--storage", "fsx-lustre", "--subnet", "subnet-0a1b2c3d"], "storage.shared.subnet", "subnet-0a1b2c3d"),
        (["--storage", "fsx-lustre", "--throughput", "250"], "storage.shared.throughput", 250),
        (["--storage", "fsx-lustre", "--bucket", "s3://bucket/x"], "storage.shared.bucket", "s3://bucket/x"),
        (["--storage", "efs", "--filesystem", "fs-0a1b2c3d"], "storage.shared.filesystem", "fs-0a1b2c3d"),
        (["--claim", "data", "--mount", "/data"], "storage.shared.mount", "/data"),
        (["--storage-class", "fast"], "storage.shared.name", "fast"),
        (["--queue", "volcano", "--queue-name", "ml"], "queue.name", "ml"),
    ],
)
def test_what_is_said_is_written(words, path, expected):
    found = read(made(*H100, *words))
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert found == expected


IDS = st.lists(st.sampled_from(sorted(PLACES)), unique=True)
VALUES = {
    "--filesystem": "fs-0a1b2c3d",
    "--mount-name": "mnt",
    "--subnet": "subnet-0a1b2c3d",
    "--security-group": "sg-0a1b2c3d",
    "--claim": "data",
    "--storage-class": "fast",
}
OF = {"fsx-lustre": ("--filesystem", "--mount-name"), "efs": ("--filesystem",), "claim": ("--claim",)}
OF["storage-class"] = ("--storage-class",)


@settings(max_examples=20)
@given(
    nodes=st.sampled_from(
        [H100, TRN2, SMALL, ("--instance", "m6i.4xlarge"), ("--existing-nodes", "--zone", "us-west-2a")]
    ),
    storage=st.sampled_from([None, *VOLUMES]),
    queue=st.sampled_from([None, "kueue", "volcano"]),
    hub=st.booleans(),
    gitops=st.booleans(),
    provisioner=st.sampled_from([None, "karpenter", "managed"]),
    capacity=st.sampled_from([None, "spot", "reserved"]),
    ids=IDS,
)
def test_every_combination_is_valid_and_renders(nodes, storage, queue, hub, gitops, provisioner, capacity, ids):
    words = [*nodes]
    existing = "--existing-nodes" in nodes
    if storage:
        words += ["--storage", storage] + [word for id in ids if id in OF[storage] for word in (id, VALUES[id])]
        words += [] if "--zone" in nodes else ["--zone", "us-west-2a"]
    words += ["--queue", queue] if queue else []
    words += ["--jupyterhub", "r/hub:1"] if hub else []
    words += ["--gitops", "https://github.com/me/clusters"] if gitops else []
    if not existing:
        words += ["--provisioner", provisioner] if provisioner else []
        words += ["--capacity", capacity] if capacity else []
    text = made(*words)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert len(to_fill_in(text)) == text.count(FILL)
    for number, key in to_fill_in(text):
        assert lines[number - 1].lstrip(" -").startswith(f"{key}: ")
    # The examples in the comments are valid as well.
    whole = re.sub(r"^# (storage:|service_account:.*|  shared:.*)$", r"\1", text, flags=re.MULTILINE)
    assert (whole == text) == (existing and storage is not None)
    checked(whole, "made.yaml")


SAID = {
    **VALUES,
    "--namespace": "research",
    "--eks": "elsewhere",
    "--kubernetes": "1.35",
    "--image": "r/image:7",
    "--reservation": "cr-0a1b2c3d",
    "--ends": "2031-12-24T11:30:00Z",
    "--capacity": "capacity-block",
    "--efa": "none",
    "--role": "arn:aws:iam::210987654321:role/mine",
    "--provisioner": "managed",
    "--size": "2400Gi",
    "--throughput": "250",
    "--bucket": "s3://bucket/x",
    "--mount": "/mine",
    "--queue": "kueue",
    "--queue-name": "mine",
    "--jupyterhub": "r/hub:7",
    "--gitops": "https://g.it/mine",
    "--storage": "fsx-lustre",
}


@settings(max_examples=80)
@given(
    nodes=st.sampled_from([["--instance", "p5.48xlarge"], ["--existing-nodes"]]),
    options=st.lists(st.sampled_from(sorted(SAID)), unique=True, max_size=5),
)
def test_what_is_said_is_written_or_refused_and_never_forgotten(nodes, options):
    words = ["-", "--zone", "us-west-2c", *nodes, *(word for option in options for word in (option, SAID[option]))]
    result = CliRunner().invoke(command, words)
    if result.exit_code == 0:
        text = re.sub(r" +# .*", "", result.stdout)
        assert [option for option in options if SAID[option] not in text] == []
    else:
        assert isinstance(result.exception, SystemExit | SpecError)
        assert result.stdout == ""


def test_help_shows_every_option_once_and_its_examples_work():
    shown = CliRunner().invoke(command, ["--help"]).stdout
    named = [name for names in SECTIONS.values() for name in names]
    assert len(named) == len(set(named))
    assert {each.name for each in command.params} - {"file", "force", "yes"} == set(named)
    for name in named:
        assert shown.count(f"\n  --{name.replace('_', '-')} ") == 1
    examples = re.split(r"raytrain-eks init cluster", shown.partition("H100 with")[2])[1:]
    assert len(examples) == 4
    for example in examples:
        words = re.split(r"\n  \S", example)[0].replace("\\\n", " ").split()
        assert "kind: Cluster" in made(*(word.lower() if "/" in word else word for word in words))
