"""Every example cluster becomes its golden bundle, and an API server would take every object of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kube_schema import definitions_in

from raytrain_eks.cli import bundles
from raytrain_eks.manifests import argo, text
from raytrain_eks.manifests.bundle import explain_object, unfounded
from raytrain_eks.spec.load import read_document
from raytrain_eks.spec.source import read_documents

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "cluster_specs").glob("*.yaml"))
HEAVY = ("ray", "torch", "kubernetes", "boto3", "botocore", "requests", "urllib3", "yaml", "numpy")


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def example(request):
    plan, bundle = bundles.read(request.param)
    return request.param, plan, bundle


@pytest.fixture(scope="module")
def definitions(shared):
    return definitions_in(shared / "crds")


def test_the_examples_are_the_promised_ones():
    kinds = {"gpu-a100", "gpu-h100", "gpu-b200", "trn1", "trn2", "mixed", "g6e-small", "cpu-kind"}
    assert {path.stem for path in EXAMPLES} == kinds


def test_it_renders_to_its_golden_bundle(example, golden):
    path, _, bundle = example
    golden(f"{path.stem}.yaml", text.yaml(bundle.bodies))


def test_the_text_reads_back_the_same(example):
    _, _, bundle = example
    read = [document.data for document in read_documents(text.yaml(bundle.bodies), "bundle.yaml")]
    assert read == [text.ordered(body) for body in bundle.bodies]


def test_an_api_server_would_take_every_object(example, definitions):
    _, _, bundle = example
    found = {each.key: wrong for each in bundle.objects if (wrong := definitions.findings(each.body))}
    assert found == {}


def test_an_api_server_would_take_what_is_delivered_by_git(example, definitions):
    _, plan, bundle = example
    if plan.cluster.gitops is None:
        pytest.skip("this example is not delivered by Git")
    application = argo.application(plan, bundle, plan.cluster.gitops)
    found = [definitions.findings(body) for body in [application.body, *map(argo.delivered, bundle.objects)]]
    assert [wrong for wrong in found if wrong] == []


def test_lint_finds_nothing(example):
    _, plan, bundle = example
    assert bundles.refuse_what_cannot_run(plan, bundle) == []


def test_names_are_unique_and_objects_are_in_order(example):
    _, _, bundle = example
    keys = [(each.kind, each.namespace, each.name) for each in bundle.objects]
    assert len(keys) == len(set(keys))
    namespaces = {each.name: index for index, each in enumerate(bundle.objects) if each.kind == "Namespace"}
    for index, each in enumerate(bundle.objects):
        assert namespaces.get(each.namespace, -1) < index


def test_every_reason_belongs_to_a_part(example):
    _, _, bundle = example
    assert list(unfounded(bundle)) == []
    for each in bundle.objects:
        lines = explain_object(bundle, each.key)
        assert lines[0].startswith(each.key)
        assert len(lines) > 1


def test_the_second_rendering_is_the_same(example):
    path, _, bundle = example
    assert text.yaml(bundles.from_document(read_document(path))[1].bodies) == text.yaml(bundle.bodies)


def test_another_process_renders_the_same_bytes_without_network_or_heavy_modules(tmp_path):
    """One process for all examples, with another hash seed, no home, no kubeconfig and no way to open a socket."""
    code = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    assert not event.startswith('socket.'), event\n"
        "sys.addaudithook(watch)\n"
        "from raytrain_eks.cli import bundles\n"
        "from raytrain_eks.manifests import text\n"
        f"for path in {[str(path) for path in EXAMPLES]!r}:\n"
        "    plan, bundle = bundles.read(path)\n"
        "    bundles.refuse_what_cannot_run(plan, bundle)\n"
        "    sys.stdout.write(text.yaml(bundle.bodies))\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONHASHSEED": "4711"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    here = "".join(text.yaml(bundles.read(path)[1].bodies) for path in EXAMPLES)
    assert run.stdout == here.encode()
