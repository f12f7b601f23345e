"""Pins of the Neuron images, and the placeholder that must never be what gets installed."""

import importlib.metadata
import re

import pytest

from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train import neuron_backend

PLACEHOLDER = "1.0"
"""The only version of torch-neuronx on the public index."""


def pins(root, name: str) -> dict[str, str]:
    lines = (root / "requirements" / name).read_text().splitlines()
    wanted = [re.split(r"(?=[=<>])", line, maxsplit=1) for line in lines if line and not line.startswith("#")]
    return dict(wanted)


@pytest.mark.parametrize("file", ["neuron-trn1.txt", "neuron-trn2.txt"])
def test_the_placeholder_never_satisfies_the_pin(root, file):
    from packaging.specifiers import SpecifierSet

    pin = pins(root, file)["torch-neuronx"]
    assert PLACEHOLDER not in SpecifierSet(pin)
    assert pin.startswith("==")
    assert pin.split("==")[1].startswith(pins(root, file)["torch"].removeprefix("==").rsplit(".", 1)[0] + ".")


def test_the_project_itself_never_asks_for_it(root):
    assert "neuronx" not in (root / "pyproject.toml").read_text()


def test_the_xla_image_has_the_versions_that_are_tested(root):
    tested = (root / "tests/xla/environment.py").read_text()
    found = pins(root, "neuron-trn1.txt")
    assert f'"torch{found["torch"]}"' in tested
    assert f'"torch_xla{found["torch-xla"]}"' in tested


@pytest.mark.parametrize(
    ("found", "refused"), [("1.0", True), ("2.9.0.2.15.32035", False), ("2.13.3.0.1234", False), (None, False)]
)
def test_a_worker_refuses_the_placeholder(monkeypatch, found, refused):
    def version(name):
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(neuron_backend, "version", version)
    if refused:
        with pytest.raises(SpecError, match="placeholder"):
            neuron_backend.refuse_placeholder()
    else:
        neuron_backend.refuse_placeholder()
