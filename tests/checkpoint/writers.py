"""Real processes that train a toy, save, and die: started by `Writers`, each a fork of one that has imported torch.

A group of ranks restores what the run folder has, checks it bit by bit, and goes on to save every step. A rank may be
told to SIGKILL itself just before its n-th change of the file system (a block written, a file named, linked, deleted),
so that every instant that storage can see is reachable, and the same seed dies at the same one.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHAPES = {"rows": (37, 11), "columns": (16, 30), "flat": (1001,), "replicated": (9, 8), "scalar": ()}


class Writers:
    """The process that forks groups of ranks."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        )  # fmt: skip

    def start(self, folder: Path, **options: Any) -> list[int]:
        """Start a group; its process ids. Options: see `work`."""
        return self._ask({"do": "start", "folder": str(folder)} | options)

    def wait(self, seconds: float = 60) -> list[int]:
        """How the ranks of the last group ended: exit codes, -9 for SIGKILL. When one ends badly the others have a
        moment and are then killed, as Ray does it."""
        return self._ask({"do": "wait", "seconds": seconds})

    def _ask(self, question: dict[str, Any]) -> Any:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


def expected(step: int) -> dict[str, Any]:
    """The toy's state after a step, from its definition."""
    import torch

    found = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        generator = torch.Generator().manual_seed(1000 * number + step)
        found[name] = torch.randn(shape, generator=generator)
    return found


def chunks(state: dict[str, Any], rank: int, world: int) -> list[Any]:
    """Each tensor divided in its own way."""
    from raytrain_eks.checkpoint.chunk import Chunk, share_out, whole

    def cut(size: int) -> tuple[int, int]:
        return size * rank // world, size * (rank + 1) // world

    (a, b), (c, d), (e, f) = cut(37), cut(30), cut(1001)
    kind = state["rows"].dtype
    return [
        Chunk("rows", SHAPES["rows"], kind, state["rows"][a:b], (a, 0)),
        Chunk("columns", SHAPES["columns"], kind, state["columns"][:, c:d], (0, c)),
        Chunk("flat", SHAPES["flat"], kind, state["flat"][e:f], None, e),
        *share_out(whole({"replicated": state["replicated"]}), rank, world),
        Chunk.of("scalar", state["scalar"]),
    ]


def die_at(operation: int) -> None:
    """SIGKILL this process just before its n-th change of the file system, counted over all threads."""
    counted = [0]

    def counting(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            counted[0] += 1
            if counted[0] == operation:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return function(*arguments, **named)

        return call

    from raytrain_eks.checkpoint import folder

    for name in ("link", "replace", "rename", "unlink", "fsync", "rmdir"):
        setattr(os, name, counting(getattr(os, name)))
    Path.unlink = counting(Path.unlink)
    folder._FolderOutput.write = counting(folder._FolderOutput.write)


def work(
    rank: int, *, folder: str, world: int, steps: int, meeting: str, kill_rank: int = -1, kill_at: int = -1,
    mirror: str | None = None, slow: float = 0.0,
) -> None:  # fmt: skip
    """One rank: restore, check, go on for `steps` steps with a save after each."""
    import torch.distributed as dist

    from raytrain_eks.checkpoint import save
    from raytrain_eks.checkpoint.folder import _FolderOutput
    from raytrain_eks.checkpoint.mirror import Mirror
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.retention import Retention
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.checkpoint.together import Together

    save.BLOCK = 2048
    if slow:
        write = _FolderOutput.write
        _FolderOutput.write = lambda self, data: (time.sleep(slow), write(self, data))[1]
    if rank == kill_rank:
        die_at(kill_at)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    together = Together(rank, world)
    run = RunFolder(folder, "toy")
    attempt = together.share(run.begin() if rank == 0 else None)
    copy = Mirror(run, mirror, keep=Retention(last=2, best=0)) if mirror and rank == 0 else None
    first = 1
    with_reader = restore(run, rank=rank, world=world, group=together.group, mirror=copy, attempt=attempt)
    if with_reader is not None:
        with with_reader as reader:
            for name, tensor in expected(reader.step).items():
                if not reader.full(name).equal(tensor):
                    raise AssertionError(f"{name} of step {reader.step} is not what was saved")
            first = reader.step + 1
    saver = save.Saver(run, attempt, rank=rank, world=world, keep=Retention(last=2, best=1, every=7), budget=1)
    for step in range(first, first + steps):
        state = expected(step)
        saver.save(step, chunks(state, rank, world), {"step": step}, loss=abs(20 - step))
        for tensor in state.values():
            tensor.fill_(-1)
        together.gather(step)
        if copy is not None:
            saver.wait()
            copy.sync()
    saver.close()
    together.gather(0)


def main() -> None:
    """Fork what is asked for on stdin; answer on stdout."""
    import tempfile

    import torch.distributed  # noqa: F401  (once, for all forks)

    import raytrain_eks.checkpoint.restore
    import raytrain_eks.checkpoint.save  # noqa: F401

    group: list[int] = []
    for line in sys.stdin:
        question = json.loads(line)
        if question.pop("do") == "start":
            meeting = tempfile.mktemp(prefix="meeting-")
            group = []
            for rank in range(question["world"]):
                if (child := os.fork()) == 0:
                    sys.stdin.close()
                    os.dup2(2, 1)
                    code = 1
                    try:
                        work(rank, meeting=meeting, **question)
                        code = 0
                    except BaseException:
                        import traceback

                        traceback.print_exc()
                    finally:
                        os._exit(code)
                group.append(child)
            answer: Any = group
        else:
            answer = ends(group, question["seconds"])
        print(json.dumps(answer), flush=True)


def ends(group: list[int], seconds: float) -> list[int]:
    """Exit codes; once one failed the others are killed after a moment."""
    codes: dict[int, int] = {}
    end = time.monotonic() + seconds
    while len(codes) < len(group):
        for child in group:
            if child not in codes and (found := os.waitpid(child, os.WNOHANG))[0]:
                codes[child] = os.waitstatus_to_exitcode(found[1])
                if codes[child]:
                    end = min(end, time.monotonic() + 0.1)
        if time.monotonic() > end:
            for child in group:
                if child not in codes:
                    os.kill(child, signal.SIGKILL)
            end += 60
        time.sleep(0.002)
    return [codes[child] for child in group]


if __name__ == "__main__":
    main()
