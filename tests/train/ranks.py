"""Real ranks for tests: processes with a gloo group between them, each running one function."""

import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch.multiprocessing as mp


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(world: int, function: Callable[..., Any], *arguments: Any, timeout: float = 300) -> list[Any]:
    """What `function(rank, world, *arguments)` returned on each rank. Raises AssertionError with a rank's traceback."""
    context = mp.get_context("spawn")
    answers = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_rank, args=(rank, world, port, function, arguments, answers), daemon=True)
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    try:
        found: dict[int, Any] = {}
        for _ in range(world):
            rank, answer, failure = answers.get(timeout=timeout)
            assert failure is None, f"rank {rank}:\n{failure}"
            found[rank] = answer
        return [found[rank] for rank in range(world)]
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()


def _rank(rank: int, world: int, port: int, function: Any, arguments: Any, answers: Any) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
    }
    try:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=world)
        answers.put((rank, function(rank, world, *arguments), None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, None, traceback.format_exc()))
