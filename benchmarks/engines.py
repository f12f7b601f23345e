"""What an engine's step costs beside the same model trained bare, by two ranks under torchrun.

    python benchmarks/engines.py [NAME ...] [--rounds N]

Both are built in the same two processes and take turns, a step each. A row has the medians over the rounds, the median
of the rounds' ratios, and what is left of it where others use the machine as well: the ratio of the fastest steps, and
that of the processor time of both ranks. A step of an engine is all that the loop asks of it: batches to the device,
forward and backward, the losses read and summed over ranks, clipping, the update, the norm read. Bare is DDP as
PyTorch's tutorial has it, or DeepSpeed called as its own has it, each with clipping, fused AdamW and the loss read once
a step. `fsdp`, `tensor` and ZeRO-3 pay on a CPU for what they save on accelerators; their rows have no target.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = {"hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 5, "num_attention_heads": 4}
MODEL |= {"vocab_size": 2048, "max_position_embeddings": 512}
LENGTH, ROWS, MICRO, ROUNDS = 256, 8, 2, 30
CASES: dict[str, tuple[dict[str, Any], str, float | None]] = {
    "ddp": ({"kind": "torch"}, "ddp", 1.03),
    "zero1": ({"kind": "deepspeed", "zero": 1}, "zero1", 1.10),
    "zero2": ({"kind": "deepspeed", "zero": 2}, "zero2", None),
    "zero3": ({"kind": "deepspeed", "zero": 3}, "zero3", None),
    "fsdp": ({"kind": "torch", "fsdp": True}, "ddp", None),
    "tensor": ({"kind": "torch", "tensor": 2}, "ddp", None),
}
"""Engine of the job, what it is measured beside, and the most that the ratio should be."""


def job_of(engine: dict[str, Any]) -> Any:
    """The job that both sides train."""
    from raytrain_eks.spec.job import Job

    return Job.parse(
        {
            "name": "bench",
            "model": {"config": {"model_type": "llama", **MODEL}},
            "tokenizer": {"name": "x"},
            "data": {"train": "x", "sequence_length": LENGTH},
            "batch": {"sequences": ROWS, "micro": MICRO},
            "optimizer": {"learning_rate": 1e-3},
            "precision": "fp32",
            "engine": engine,
            "stop": {"steps": 1},
        }
    )


def model_of() -> Any:
    """A Llama of 9 million parameters, the same on every rank."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**MODEL, num_key_value_heads=4, use_cache=False))


def our_step(engine: dict[str, Any], rank: int, world: int) -> Callable[[Any], None]:
    """The engine's step as the loop takes it."""
    import torch

    from raytrain_eks.plan.mesh import mesh_of
    from raytrain_eks.train import engines

    job = job_of(engine)
    mesh = mesh_of(job, world)
    count = ROWS // mesh.data // MICRO
    built = engines.build(job, model_of(), rank=rank, world=world, micro=MICRO, accumulation=count)

    def step(ids: Any) -> None:
        mine = ids[mesh.data_rank(rank) :: mesh.data]
        whole = {"input_ids": mine, "labels": mine, "segment_ids": torch.ones_like(mine)}
        whole["position_ids"] = torch.arange(LENGTH).expand_as(mine)
        parts = [{name: array[at : at + MICRO] for name, array in whole.items()} for at in range(0, len(mine), MICRO)]
        batches = [built.put(part) for part in parts]
        losses = [
            built.micro_step(batch, ROWS * (LENGTH - 1), last=index == count - 1) for index, batch in enumerate(batches)
        ]
        values = built.read(*losses)
        built.reduce(sum(values), 0.0, 0.0)
        built.read(built.step(1e-3))

    return step


def bare_ddp(rank: int, world: int) -> Callable[[Any], None]:
    """DDP and AdamW, nothing else."""
    from contextlib import nullcontext

    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = model_of().train()
    module = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(ids: Any) -> None:
        parts = ids[rank::world].split(MICRO)
        total = 0.0
        for index, part in enumerate(parts):
            with nullcontext() if index == len(parts) - 1 else module.no_sync():
                loss = module(input_ids=part, labels=part).loss / len(parts)
                loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total.item()

    return step


def bare_deepspeed(stage: int, rank: int, world: int) -> Callable[[Any], None]:
    """DeepSpeed called directly, with the same optimizer."""
    import torch

    from raytrain_eks.train.engines.deepspeed import import_deepspeed

    model = model_of().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    settings = {
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_accumulation_steps": ROWS // world // MICRO,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "overlap_comm": False},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    engine, *_ = import_deepspeed().initialize(model=model, optimizer=optimizer, config=settings)

    def step(ids: Any) -> None:
        total = 0.0
        for part in ids[rank::world].split(MICRO):
            loss = engine(input_ids=part, labels=part).loss
            engine.backward(loss)
            engine.step()
            total = total + loss.detach()
        total.item()

    return step


def one_case(name: str, rounds: int) -> None:
    """One rank of a case; the first prints the row."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    engine, beside, target = CASES[name]
    bare = bare_ddp(rank, world) if beside == "ddp" else bare_deepspeed(int(beside[-1]), rank, world)
    sides = {"ours": our_step(engine, rank, world), "bare": bare}
    ids = torch.randint(0, MODEL["vocab_size"], (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    taken: dict[str, list[float]] = {side: [] for side in sides}
    worked = dict.fromkeys(sides, 0.0)
    for turn in range(rounds + 3):
        for side in sorted(sides, reverse=bool(turn % 2)):
            dist.barrier()
            began, busy = time.perf_counter(), time.process_time()
            sides[side](ids)
            dist.barrier()
            # The first rounds fill caches.
            if turn >= 3:
                taken[side].append(time.perf_counter() - began)
                worked[side] += time.process_time() - busy
    cpu = torch.tensor([worked["ours"], worked["bare"]])
    dist.all_reduce(cpu)
    ratios = [ours / theirs for ours, theirs in zip(taken["ours"], taken["bare"], strict=True)]
    row = {"benchmark": "engines", "name": name, "beside": f"bare {beside}", "ranks": world}
    row |= {f"{side}_ms": round(statistics.median(found) * 1000, 1) for side, found in taken.items()}
    row |= {"ratio": round(statistics.median(ratios), 3), "fastest": round(min(taken["ours"]) / min(taken["bare"]), 3)}
    row |= {"processor": round(float(cpu[0] / cpu[1]), 3), "target": target}
    if rank == 0:
        print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def rows(names: list[str] | None = None, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """A row for each case. Raises RuntimeError with what a case said when it failed."""
    found = []
    for name in names or list(CASES):
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(Path(__file__).resolve())]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "DS_ACCELERATOR": "cpu"}
        env["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, *words, "--case", name, "--rounds", str(rounds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        lines = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        if done.returncode or not lines:
            raise RuntimeError(f"{name}: {done.stderr[-3000:]}")
        found.append(json.loads(lines[0]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help=f"which ones: {', '.join(CASES)}; all of them by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        one_case(given.case, given.rounds)
        return
    found = rows(given.names, given.rounds)
    print("| engine | beside | ours ms | bare ms | ratio | fastest | processor | at most |", file=sys.stderr)
    print("|---" * 8 + "|", file=sys.stderr)
    for row in found:
        cells = [row[key] for key in ("name", "beside", "ours_ms", "bare_ms", "ratio", "fastest", "processor")]
        print("| " + " | ".join(map(str, [*cells, row["target"] or ""])) + " |", file=sys.stderr)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
