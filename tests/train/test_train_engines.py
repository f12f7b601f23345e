"""Every engine takes the same steps: the split into ranks and micro-batches never shows in loss, norm or weights."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ranks

pytestmark = pytest.mark.slow

ROWS, LENGTH, VOCABULARY, STEPS = 8, 24, 61, 4
CASES = [
    ("torch", 0, 1),
    ("torch", 0, 2),
    ("torch", 0, 4),
    ("deepspeed", 0, 2),
    ("deepspeed", 1, 2),
    ("deepspeed", 2, 2),
    ("deepspeed", 2, 4),
]
"""Engine, ZeRO stage, rows of a micro-batch."""


def job(engine: str, zero: int):
    from raytrain_eks.spec.job import Job

    kind = {"kind": engine} | ({"zero": zero} if engine == "deepspeed" else {})
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Job.parse(
        {
            "name": "same",
            "model": {"config": {"model_type": "llama", "vocab_size": VOCABULARY, **sizes}},
            "tokenizer": {"name": "x"},
            "data": {"train": "x", "sequence_length": LENGTH},
            "batch": {"sequences": ROWS},
            "optimizer": {"learning_rate": 0.01, "clip": 0.5},
            "precision": "fp32",
            "engine": kind,
            "stop": {"steps": STEPS},
        }
    )


def model(job):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    given = {key: value for key, value in job.model.config.items() if key != "model_type"}
    return LlamaForCausalLM(LlamaConfig(**given, max_position_embeddings=64, use_cache=False))


def rows(step: int):
    """A global batch with very uneven numbers of trained tokens; some rows have none, most are packed."""
    import torch

    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(1, VOCABULARY, (ROWS, LENGTH), generator=generator)
    labels = ids.clone()
    for row, trained in enumerate([LENGTH, 1, 0, 5, 0, 17, 2, LENGTH]):
        labels[row, trained:] = -100
    segments = torch.ones_like(ids)
    segments[::2, LENGTH // 2 :] = 2
    labels[::2, LENGTH // 2] = -100
    positions = torch.arange(LENGTH).expand(ROWS, -1).clone()
    positions[::2, LENGTH // 2 :] -= LENGTH // 2
    return {"input_ids": ids, "labels": labels, "position_ids": positions, "segment_ids": segments}


def batches(step: int, rank: int, world: int, micro: int):
    whole = rows(step)
    mine = {name: tensor[rank::world] for name, tensor in whole.items()}
    return [
        {name: tensor[start : start + micro] for name, tensor in mine.items()}
        for start in range(0, len(mine["labels"]), micro)
    ]


def take_steps(engine, rank, world, micro, first=0, last=STEPS):
    from raytrain_eks.train.loss import trained_tokens

    said = []
    for step in range(first, last):
        tokens = int(trained_tokens(rows(step)["labels"]))
        parts = [engine.put(batch) for batch in batches(step, rank, world, micro)]
        losses = [engine.micro_step(part, tokens, last=index == len(parts) - 1) for index, part in enumerate(parts)]
        norm = engine.step(0.01 / (step + 1))
        *values, norm = engine.read(*losses, norm)
        (total,) = engine.reduce(sum(values))
        said.append((total / tokens, norm))
    return said


def saver_of(made, folder, rank, world):
    """A saver for a run of its own, its attempt agreed between the ranks."""
    import torch.distributed as dist

    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.checkpoint.save import Saver

    run = RunFolder(folder, made.name)
    box = [run.claim(made) if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return Saver(run, box[0], rank=rank, world=world)


def every_case(rank, world, cases, folder):
    """Four steps by each case; the state after two of them stays as a checkpoint."""
    from raytrain_eks.train import engines

    found = {}
    for name, zero, micro in cases:
        made = job(name, zero)
        accumulation = ROWS // world // micro
        engine = engines.build(made, model(made), rank=rank, world=world, micro=micro, accumulation=accumulation)
        said = take_steps(engine, rank, world, micro, 0, 2)
        saver = saver_of(made, f"{folder}/{world}-{name}-{zero}-{micro}", rank, world)
        saver.save(2, engine.chunks(), {})
        said += take_steps(engine, rank, world, micro, 2, STEPS)
        saver.close()
        weights = {key: value.detach().clone().numpy() for key, value in engine.model.named_parameters()}
        found[name, zero, micro] = said, weights
        engine.close()
    return found


def go_on(rank, world, cases, folder):
    """Steps two and three by one engine, from the checkpoint of another."""
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.train import engines

    found = []
    for source, (name, zero) in cases:
        made = job(name, zero)
        engine = engines.build(made, model(made), rank=rank, world=world, micro=2, accumulation=ROWS // world // 2)
        with restore(RunFolder(f"{folder}/{source}", made.name), rank=rank, world=world) as reader:
            engine.load(reader)
        found.append(take_steps(engine, rank, world, 2, 2, STEPS))
        engine.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def results(folder):
    two = ranks.run(2, every_case, CASES, folder)[0]
    one = ranks.run(1, every_case, [("torch", 0, 8), ("torch", 0, 2)], folder)[0]
    return {(2, *key): value for key, value in two.items()} | {(1, *key): value for key, value in one.items()}


@pytest.mark.parametrize("case", [(1, "torch", 0, 2), *[(2, *case) for case in CASES]], ids=str)
def test_losses_norms_and_weights_do_not_depend_on_the_split(results, case):
    said, weights = results[case]
    expected, expected_weights = results[1, "torch", 0, 8]
    assert [loss for loss, _ in said] == pytest.approx([loss for loss, _ in expected], rel=1e-5)
    assert [norm for _, norm in said] == pytest.approx([norm for _, norm in expected], rel=1e-4)
    for name, weight in expected_weights.items():
        assert abs(weights[name] - weight).max() < 1e-5, name


RESUMED = {
    1: [
        ("2-torch-0-2", ("torch", 0)),
        ("2-deepspeed-2-2", ("torch", 0)),
        ("2-deepspeed-1-2", ("deepspeed", 0)),
        ("2-deepspeed-2-4", ("deepspeed", 2)),
    ],
    2: [
        ("1-torch-0-8", ("torch", 0)),
        ("1-torch-0-8", ("deepspeed", 2)),
        ("2-deepspeed-2-2", ("deepspeed", 1)),
        ("2-deepspeed-1-2", ("deepspeed", 1)),
        ("2-deepspeed-0-2", ("deepspeed", 2)),
    ],
}
"""Ranks that go on -> the checkpoint they go on from (ranks, engine, stage, micro-batch) and their own engine."""


@pytest.mark.parametrize("world", [1, 2])
def test_any_engine_goes_on_from_any_other_at_any_size(results, folder, world):
    expected = [loss for loss, _ in results[1, "torch", 0, 8][0][2:]]
    for case, said in zip(RESUMED[world], ranks.run(world, go_on, RESUMED[world], folder)[0], strict=True):
        assert [loss for loss, _ in said] == pytest.approx(expected, rel=1e-5), case


def wrong_group(rank, world):
    import torch

    from raytrain_eks.train.proof import NotReduced, prove_all_reduce

    prove_all_reduce(torch.device("cpu"), world)
    try:
        prove_all_reduce(torch.device("cpu"), world + 1)
    except NotReduced as error:
        return str(error)


def test_a_group_of_the_wrong_size_is_found_before_training():
    assert ranks.run(2, wrong_group) == ["the process group has 2 ranks, the job has 3 workers"] * 2
