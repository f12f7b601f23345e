"""Fixtures for the whole suite."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# Several processes of one test share two cores; OpenMP's threads would spin for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes depends on what else the machine does; no test judges that.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Most objects of a test die by their counts; the default of 700 collects some hundred times a second.
gc.set_threshold(50_000, 20, 20)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with schemas and facts beside the checkout; without it a test is skipped, in CI it fails."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is missing, and in CI it must be there")
        pytest.skip(f"{folder} is not here")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one way to renew the golden files."""
    parser.addoption("--regenerate-golden", action="store_true", help="write the golden bundles anew; look at the diff")


def pytest_configure(config: pytest.Config) -> None:
    """Golden files are renewed by a person who looks at what changed, never by a machine."""
    if config.getoption("--regenerate-golden") and os.environ.get("CI"):
        raise pytest.UsageError(
            "--regenerate-golden is refused where CI is set: golden files are what CI checks against"
        )


def pytest_collection_finish() -> None:
    """What was imported and collected, half a million objects, stays to the end: without this the garbage collector
    goes through it again and again, a third of the quick part's time."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For the quick part a module that is slow as a whole is not even imported: most of those import torch."""
    if config.getoption("markexpr") != "not slow" or not collection_path.name.startswith("test_"):
        return None
    slow = "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8")
    return True if slow else None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is that of `tests/golden/<name>`, which `--regenerate-golden` writes."""

    def check(name: str, text: str) -> None:
        file = ROOT / "tests" / "golden" / name
        if request.config.getoption("--regenerate-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        assert file.exists(), f"{file} is missing: pytest --regenerate-golden"
        assert text == file.read_text(encoding="utf-8")

    return check


@dataclass(frozen=True)
class RayHead:
    """A real Ray on loopback with dashboard, job server and token; four logical CPUs on a machine of two."""

    url: str
    """Of dashboard and job server."""
    gcs: str
    """What `ray.init(address=...)` takes."""
    token_file: Path
    env: dict[str, str]
    """The environment of a process that is to use it: addresses, token, and state folder of `--on local`."""

    @property
    def token(self) -> str:
        return self.token_file.read_text()


# Ends the head as soon as its standard input ends: with the test process, however that dies.
_KEEPER = """
import sys
sys.stdin.read()
from raytrain_eks.submit.head import LocalHead
LocalHead().stop()
"""


@pytest.fixture(scope="session")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHead]:
    """The one Ray of the test session, started when the first slow test asks for it. It is what `--on local` starts,
    in a state folder of its own, so it never meets the person's own; tests must not stop it."""
    from raytrain_eks.submit.head import FIXED, MARKER, LocalHead

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("RAY_ADDRESS", raising=False)
        env = {name: value for name, value in os.environ.items() if name != MARKER}
        keeper = subprocess.Popen(
            [sys.executable, "-c", _KEEPER], stdin=subprocess.PIPE, env=env, start_new_session=True
        )
        try:
            local = LocalHead()
            head = local.ensure(lambda text: None)
            env |= FIXED | {"RAY_AUTH_TOKEN_PATH": str(local.token_file), "RAY_ADDRESS": head.gcs}
            env |= {"RAY_API_SERVER_ADDRESS": head.url}
            yield RayHead(head.url, head.gcs, local.token_file, env)
        finally:
            assert keeper.stdin is not None
            keeper.stdin.close()
            assert keeper.wait(timeout=300) == 0
            assert local.remembered() is None


@dataclass(frozen=True)
class DoomedRay:
    """What `--on local` starts in a state folder of its own, for a test that kills all of it."""

    env: dict[str, str]
    state: Path

    def follow(self, *words: str) -> subprocess.Popen[str]:
        """A verb that goes on beside the test."""
        return subprocess.Popen(
            [*self._cli, *words], cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *words: str) -> None:
        """A verb that ends well."""
        done = subprocess.run([*self._cli, *words], cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr

    def kill(self) -> None:
        """SIGKILL to every process of it."""
        from raytrain_eks.submit.head import MARKER
        from raytrain_eks.submit.processes import marked

        head = json.loads((self.state / "raytrain-eks" / "local" / "head.json").read_text())["id"]
        for process in list(marked(MARKER, head)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """End what is left of it."""
        subprocess.run([*self._cli, "local", "stop"], cwd=ROOT, env=self.env, check=False, timeout=900)

    @property
    def _cli(self) -> list[str]:
        return [sys.executable, "-m", "raytrain_eks"]


@pytest.fixture
def doomed_ray(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], DoomedRay]]:
    """`doomed_ray(environment)`: nothing of the session's Ray is in its environment; what is left at the end ends."""
    from raytrain_eks.submit.head import MARKER

    made = []

    def make(environment: dict[str, str]) -> DoomedRay:
        env = {key: value for key, value in environment.items() if not key.startswith("RAY_") and key != MARKER}
        made.append(DoomedRay(env | {"XDG_STATE_HOME": str(tmp_path)}, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def ray_session(ray_head: RayHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHead]:
    """This process connected to the session's Ray, for a test that calls Ray itself; a job of its own, ended after."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"):
        monkeypatch.setenv(name, ray_head.env[name])
    import ray
    from ray._private import ray_constants
    from ray._raylet import Config

    # Both are read once per process: that everything is on loopback, and the way of authentication.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
    Config.initialize("")
    ray.init(address=ray_head.gcs, log_to_driver=False)
    try:
        yield ray_head
    finally:
        ray.shutdown()
