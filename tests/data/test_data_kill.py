"""Preparing is killed again and again, at any moment: it goes on, and ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raytrain_eks.data.prepare import prepare

PROGRAM = """
import sys
from raytrain_eks.data import execution
from raytrain_eks.data.driver import run
from raytrain_eks.data.prepare import prepare
from raytrain_eks.spec.job import Job

source, store, way = sys.argv[1:]
job = Job.parse({
    "name": "t", "model": {"config": {"model_type": "llama"}}, "tokenizer": {"train": {"vocab_size": 400}},
    "data": {"train": source, "sequence_length": 64}, "batch": {"sequences": 4},
    "optimizer": {"learning_rate": 1e-3}, "stop": {"steps": 10},
})
if way == "here":
    prepare(job, store, execute=execution.here)
else:
    run(job, store, say=print)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Text of about ten units."""
    root, dice = tmp_path / "text", random.Random(0)
    root.mkdir()
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 9))) for _ in range(500)]
    for number in range(20):
        (root / f"{number:02d}.txt").write_text(" ".join(dice.choices(words, k=45_000)))
    return root


def begin(source: Path, store: Path, way: str) -> subprocess.Popen[bytes]:
    """The program in a process group of its own."""
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    arguments = [sys.executable, "-c", PROGRAM, str(source), str(store), way]
    return subprocess.Popen(arguments, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)


def shards(store: Path) -> dict[str, bytes]:
    """Everything that was prepared, by its name."""
    found = {str(path.relative_to(store)): path for path in store.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if ".tmp-" not in name}


def kill(program: subprocess.Popen[bytes], store: Path, more: int, pause: float) -> bool:
    """SIGKILL when there are `more` files than now, after a short pause; False where it ended before."""
    wanted, end = len(shards(store)) + more, time.monotonic() + 600
    while len(shards(store)) < wanted and program.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(pause)
    alive = program.poll() is None
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    return alive


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kills"), [("here", 6), ("ray", 1)])
def test_killed_again_and_again_it_ends_with_the_same_bytes(source, tmp_path, way, kills):
    clean = begin(source, tmp_path / "clean", "here")
    assert clean.wait(120) == 0
    expected = shards(tmp_path / "clean")
    dice, killed, seen = random.Random(7), 0, 0
    for _ in range(kills):
        program = begin(source, tmp_path / "store", way)
        killed += kill(program, tmp_path / "store", dice.randint(0, 2), dice.random() * 0.2)
        assert len(shards(tmp_path / "store")) >= seen, "what was there stayed"
        seen = len(shards(tmp_path / "store"))
    assert killed >= (kills + 1) // 2
    last = begin(source, tmp_path / "store", way)
    assert last.wait(120) == 0
    assert shards(tmp_path / "store") == expected
    assert not list((tmp_path / "store").rglob(".tmp-*"))


def test_two_that_prepare_the_same_at_once_end_with_the_same_bytes(make_job, folder, tmp_path):
    job = make_job(str(folder))

    def meanwhile(work, units):
        for unit in units:
            work(unit)
            yield work(unit)
        prepare(job, tmp_path / "store")

    prepare(job, tmp_path / "clean")
    prepare(job, tmp_path / "store", execute=meanwhile)
    assert shards(tmp_path / "store") == shards(tmp_path / "clean")
