"""The README's cluster side: its file is valid, its commands exist, its prerequisites are those of the code."""

import re
import shlex
from importlib import import_module

import click
import pytest

from raytrain_eks.cli import bundles
from raytrain_eks.cli.main import VERBS, main
from raytrain_eks.kube.doctor import examine, operators, storage
from raytrain_eks.manifests import plugins
from raytrain_eks.spec.check import single
from raytrain_eks.spec.cluster_ray import Operator
from raytrain_eks.spec.source import read_documents

SERVED = {
    "ray.io": "KubeRay operator",
    "karpenter.sh": "Karpenter",
    "karpenter.k8s.aws": "Karpenter",
    "kueue.x-k8s.io": "Kueue",
    "scheduling.volcano.sh": "Volcano",
    "monitoring.coreos.com": "Prometheus operator",
    "fsx.services.k8s.aws": "ACK controller for FSx",
    "ec2.services.k8s.aws": "ACK controllers for EKS and EC2",
    "eks.services.k8s.aws": "ACK controllers for EKS and EC2",
    "kubeflow.org": "MPI operator",
    "slinky.slurm.net": "Slinky's Slurm operator",
}
"""API group -> what the README calls the one that serves it."""


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text()


@pytest.fixture(scope="module")
def table(readme):
    return readme.partition("### What the Kubernetes cluster must have")[2].partition("\n### ")[0]


def blocks(text, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [content for named, content in found if named == language]


def test_the_cluster_file_is_valid_and_every_line_has_its_comment(readme):
    (text,) = [block for block in blocks(readme, "yaml") if block.startswith("kind: Cluster")]
    assert list(bundles.problems(single(read_documents(text, "README.md", lenient=True), "README.md"))) == []
    assert all(re.search(r"\S {2,}# \S|\S # \S", line) for line in text.splitlines())


def words_of(readme):
    """Every command line of raytrain-eks in a block, joined where it is broken, comments and pipes off."""
    for block in blocks(readme, ""):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("raytrain-eks "):
                yield shlex.split(re.split(r" \| | > ", line)[0], comments=True)[1:]


def test_every_command_and_option_exists(readme):
    lines = list(words_of(readme))
    assert len(lines) > 40
    for verb, *words in lines:
        assert verb in VERBS, verb
        command = import_module(f"raytrain_eks.cli.{verb}").command
        if isinstance(command, click.Group):
            command = command.commands.get(words[0]) or command.commands["run"]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, f"{verb} {words}"


def test_the_first_file_goes_the_way_that_the_readme_shows(readme, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [
        words for words in words_of(readme) if "llm.yaml" in words or words[2:4] == ["--name", "llm"] or "out/" in words
    ]
    assert [words[0] for words in lines] == ["init", "validate", "plan", "render", "lint", "render", "render"]
    for words in lines:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0, f"{words}: {capsys.readouterr().err}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llm.yaml", "out", "repository"]
    assert "out/" in (shown := capsys.readouterr()).out
    assert "llm.yaml:22: subnet is an example still" in shown.err


def test_prerequisites_name_all_that_doctor_looks_for(table):
    assert set(SERVED) == set(operators.IMAGES)
    assert [name for name in SERVED.values() if name not in table] == []
    for driver, _, install in storage.DRIVERS.values():
        assert driver.removeprefix("the ") in table
        assert f"`{install.rpartition(' ')[2]}`" in table


def test_prerequisites_name_the_versions_of_the_code(table):
    oldest = ".".join(map(str, operators.OLDEST[:2]))
    assert f"| {Operator().version} (at least {oldest}), " in table
    assert f"| {'.'.join(map(str, examine.OLDEST))} or newer; " in table
    tags = {"NVIDIA's": plugins.NVIDIA_IMAGE, "Neuron's": plugins.NEURON_IMAGE, "EFA's": plugins.EFA_IMAGE}
    for whose, image in tags.items():
        assert f"{whose} {image.rpartition(':')[2]}" in table.replace("\n", " ")
