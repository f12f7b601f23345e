"""The floor: the quickstart's model in a bare DDP loop under torchrun, no framework around it.

    torchrun --nproc-per-node 2 benchmarks/bare_ddp.py --rows FILE.npy --steps N

Prints one JSON line: seconds from the start of the process to the first step, and when each step ended, in seconds
since the epoch. The rows are token ids [sequences, length]; every rank takes its stripe, as the framework does.
"""

import argparse
import json
import os
import time

STARTED = float(os.environ.get("BENCH_STARTED", time.time()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    given = parser.parse_args()
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import AutoConfig, AutoModelForCausalLM

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max((os.cpu_count() or 1) // world, 1))
    config = json.loads(given.config)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(config.pop("model_type"), **config), attn_implementation="sdpa", dtype=torch.float32
    )
    module = DistributedDataParallel(model, gradient_as_bucket_view=True, forward_sync_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rows = torch.from_numpy(np.load(given.rows))
    first, marks = 0.0, []
    for step in range(given.steps):
        batch = rows[step * given.batch : (step + 1) * given.batch][rank::world]
        logits = module(input_ids=batch, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        marks.append(time.time())
        first = first or marks[-1] - STARTED
    if rank == 0:
        print(json.dumps({"first_step": first, "times": marks}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
