"""A rank that hangs is named, the stacks of all ranks are written, every process ends."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

RANK = textwrap.dedent(
    """
    import sys, time
    from raytrain_eks.checkpoint.storage import Storage
    from raytrain_eks.train import watch
    watch.GRACE = 1.0
    folder, rank, hangs, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    made = watch.Watch(Storage.of(folder), attempt=1, rank=rank, world=world, limit=1.0, say=print)
    made.start()
    for step in range(1000):
        made.at("data", step)
        made.at("compute", step)
        if step == 3 and rank == hangs:
            def the_culprit():
                time.sleep(600)
            the_culprit()
        if step == 3:
            made.at("exchange", step)
            time.sleep(600)
    """
)


@pytest.mark.parametrize(("hangs", "started"), [(1, 2), (0, 2)])
def test_the_rank_that_is_behind_is_named(tmp_path, hangs, started):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank), str(hangs), "2"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(started)
    ]
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [75, 75]
    for text in said:
        assert f"hang: rank {hangs} stands in `compute` of step 4" in text
        assert "the others wait for it" in text
    stack = (tmp_path / "stacks" / "attempt-0001" / f"rank-{hangs:05d}.txt").read_text()
    assert "the_culprit" in stack
    assert (tmp_path / "stacks" / "attempt-0001" / f"rank-{1 - hangs:05d}.txt").exists()


def test_a_rank_without_any_sign_is_named(tmp_path):
    command = [sys.executable, "-c", RANK, str(tmp_path), "0", "0", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "hang: rank 1 gave no sign" in done.stdout
