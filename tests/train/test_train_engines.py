"""Every engine takes the same steps: the split into ranks and micro-batches never shows in loss, norm or weights."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ranks

pytestmark = pytest.mark.slow

ROWS, LENGTH, VOCABULARY, STEPS = 8, 24, 61, 4
ENGINES = {
    "ddp": {"kind": "torch"},
    "full": {"kind": "torch", "activation_checkpointing": "full"},
    "fsdp": {"kind": "torch", "fsdp": True},
    "fsdp-kept": {"kind": "torch", "fsdp": True, "reshard": False, "attention": "eager"},
    "fsdp-selective": {"kind": "torch", "fsdp": True, "activation_checkpointing": "selective"},
    "tp": {"kind": "torch", "tensor": 2},
    "tp-selective": {"kind": "torch", "tensor": 2, "activation_checkpointing": "selective"},
    "fsdp-tp": {"kind": "torch", "tensor": 2, "fsdp": True, "activation_checkpointing": "full"},
    "zero0": {"kind": "deepspeed", "zero": 0},
    "zero1": {"kind": "deepspeed", "zero": 1},
    "zero2": {"kind": "deepspeed", "zero": 2, "activation_checkpointing": "selective"},
    "auto-tp": {"kind": "deepspeed", "zero": 1, "tensor": 2},
    "zero3": {"kind": "deepspeed", "zero": 3},
    "zero3-full": {"kind": "deepspeed", "zero": 3, "activation_checkpointing": "full"},
    "zero1-offload": {"kind": "deepspeed", "zero": 1, "offload": "optimizer"},
    "zero2-offload": {"kind": "deepspeed", "zero": 2, "offload": "optimizer"},
    "zero3-offload": {"kind": "deepspeed", "zero": 3, "offload": "parameters"},
}
FAMILIES = {"llama": {}, "tied": {"tie_word_embeddings": True}, "qwen3": {"head_dim": 8, "num_key_value_heads": 2}}
CASES = {
    1: [("ddp", "llama", 8), ("ddp", "tied", 8), ("ddp", "qwen3", 8), ("ddp", "llama", 2), ("zero3", "llama", 4)],
    2: [
        *(("ddp", "llama", micro) for micro in (1, 2, 4)),
        *(("fsdp", "llama", micro) for micro in (1, 2, 4)),
        *(("tp", "llama", micro) for micro in (2, 4, 8)),
        *(("zero2", "llama", micro) for micro in (1, 2, 4)),
        *(("zero3", "llama", micro) for micro in (1, 2, 4)),
        *((engine, "llama", 2) for engine in ("full", "fsdp-kept", "fsdp-selective", "tp-selective", "zero3-full")),
        *((engine, "llama", 2) for engine in ("zero0", "zero1", "zero1-offload", "zero2-offload", "zero3-offload")),
        *((engine, "tied", 2) for engine in ("fsdp", "tp", "zero1", "zero3")),
        *((engine, "qwen3", 2) for engine in ("fsdp", "tp")),
        # Last: AutoTP leaves groups behind in DeepSpeed that a later engine of the same process would take for its own.
        ("auto-tp", "llama", 4),
        ("auto-tp", "tied", 2),
    ],
    4: [
        ("tp", "llama", 2),
        ("fsdp-tp", "llama", 2),
        ("fsdp-tp", "tied", 4),
        ("tp", "qwen3", 1),
        ("zero3", "tied", 1),
        ("auto-tp", "llama", 2),
    ],
}
"""Ranks -> engine, family, rows of a micro-batch."""


def job(engine: str, family: str = "llama", precision: str = "fp32"):
    from raytrain_eks.spec.job import Job

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    name = "qwen3" if family == "qwen3" else "llama"
    return Job.parse(
        {
            "name": "same",
            "model": {"config": {"model_type": name, "vocab_size": VOCABULARY, **sizes, **FAMILIES[family]}},
            "tokenizer": {"name": "x"},
            "data": {"train": "x", "sequence_length": LENGTH},
            "batch": {"sequences": ROWS},
            # Where a gradient is 0 but for rounding, a smaller eps would make a step of its sign.
            "optimizer": {"learning_rate": 0.01, "clip": 0.5, "eps": 1e-6},
            "precision": precision,
            "engine": ENGINES[engine],
            "stop": {"steps": STEPS},
        }
    )


def model(job):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    given = dict(job.model.config)
    config = AutoConfig.for_model(given.pop("model_type"), **given, max_position_embeddings=64, use_cache=False)
    made = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    # A norm's weight is 1 at first, where some mistakes would not show.
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim < 2:
                weight += 0.1 * torch.randn(weight.shape)
    return made


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
    """A rank's micro-batches, as many on every rank: where rows are missing they are empty, as in the data room."""
    from torch.nn.functional import pad

    whole, share = rows(step), -(-ROWS // world)
    mine = {name: tensor[rank::world] for name, tensor in whole.items()}
    missing = -(-share // micro) * micro - len(mine["labels"])
    mine = {name: pad(tensor, (0, 0, 0, missing), value=-100 * (name == "labels")) for name, tensor in mine.items()}
    return [
        {name: tensor[start : start + micro] for name, tensor in mine.items()}
        for start in range(0, len(mine["labels"]), micro)
    ]


def build(made, rank, world, micro):
    """The engine of a job, and its data rank and number of data ranks."""
    from raytrain_eks.plan.mesh import mesh_of
    from raytrain_eks.train import engines

    mesh = mesh_of(made, world)
    accumulation = -(-ROWS // (mesh.data * micro))
    engine = engines.build(made, model(made), rank=rank, world=world, micro=micro, accumulation=accumulation)
    return engine, (mesh.data_rank(rank), mesh.data, micro)


def take_steps(engine, place, first=0, last=STEPS, batch_of=lambda step: step, rate=lambda step: 0.01 / (step + 1)):
    from raytrain_eks.train.loss import trained_tokens

    said = []
    for step in range(first, last):
        tokens = int(trained_tokens(rows(batch_of(step))["labels"]))
        parts = [engine.put(batch) for batch in batches(batch_of(step), *place)]
        losses = [engine.micro_step(part, tokens, last=index == len(parts) - 1) for index, part in enumerate(parts)]
        norm = engine.step(rate(step))
        *values, norm = engine.read(*losses, norm)
        (total,) = engine.reduce(sum(values))
        said.append((total / tokens, norm))
    return said


def refuse_steps(engine, place):
    """One step that is dropped, and one whose gradients are not finite: neither leaves a trace."""
    for factor in (1, float("nan")):
        parts = [engine.put(batch) for batch in batches(7, *place)]
        for index, part in enumerate(parts):
            engine.micro_step(part, 100 * factor, last=index == len(parts) - 1)
        if factor == 1:
            engine.skip()
        else:
            (norm,) = engine.read(engine.step(1.0))
            assert not math.isfinite(norm)


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
    """Four steps by each case, evaluations between them; the state after two of them stays as a checkpoint."""
    found = {}
    for case in cases:
        name, family, micro = case
        made = job(name, family)
        engine, place = build(made, rank, world, micro)
        held = [engine.evaluate(engine.put(batch)) for batch in batches(99, *place)]
        said = take_steps(engine, place, 0, 2)
        saver = saver_of(made, f"{folder}/{world}-{name}-{family}-{micro}", rank, world)
        saver.save(2, engine.chunks(), {})
        refuse_steps(engine, place)
        held += [engine.evaluate(engine.put(batch)) for batch in batches(99, *place)]
        held = engine.reduce(*engine.read(*(sum(half) for half in (held[: len(held) // 2], held[len(held) // 2 :]))))
        said += take_steps(engine, place, 2, STEPS)
        saver.close()
        whole = engine.full_model()
        weights = {key: value.detach().numpy().copy() for key, value in whole.named_parameters()} if whole else None
        samples = (
            whole.generate(rows(0)["input_ids"][:1], max_new_tokens=2, do_sample=False).tolist() if whole else None
        )
        found[case] = said, held, weights, samples
        engine.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def results(folder):
    return {
        (world, *case): value
        for world, cases in CASES.items()
        for case, value in ranks.run(world, every_case, cases, folder)[0].items()
    }


@pytest.mark.parametrize("case", [(world, *case) for world, cases in CASES.items() for case in cases], ids=str)
def test_losses_norms_and_weights_do_not_depend_on_the_split(results, case):
    said, held, weights, samples = results[case]
    expected, expected_held, expected_weights, expected_samples = results[1, "ddp", case[2], 8]
    assert [loss for loss, _ in said] == pytest.approx([loss for loss, _ in expected], rel=1e-5)
    assert [norm for _, norm in said] == pytest.approx([norm for _, norm in expected], rel=1e-5)
    assert held == pytest.approx(expected_held, rel=1e-5)
    assert weights.keys() == expected_weights.keys()
    for name, weight in expected_weights.items():
        # A hundredth of the learning rate: Adam divides by the root of the second moment, so that the rounding of a
        # gradient that is almost nothing shows in the weight, while loss and norm are the same to 1e-5.
        assert abs(weights[name] - weight).max() < 1e-4, name
    assert samples == expected_samples


LONG = 20
CURVES = {"fp32": ("ddp", "fsdp", "tp", "zero0", "zero2", "zero3"), "bf16": ("ddp", "fsdp", "tp", "zero1", "zero3")}


def curve(rank, world, precision, engines):
    found = {}
    for name in engines:
        engine, place = build(job(name, precision=precision), rank, world, 2)
        said = take_steps(engine, place, 0, LONG, batch_of=lambda step: step % 2, rate=lambda step: 0.005)
        found[name] = [loss for loss, _ in said]
        engine.close()
    return found


@pytest.mark.parametrize(("precision", "relative"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_the_first_twenty_losses_are_those_of_one_rank(precision, relative):
    expected = ranks.run(1, curve, precision, ["ddp"])[0]["ddp"]
    assert expected[-1] < expected[0] - 0.8
    for name, losses in ranks.run(2, curve, precision, CURVES[precision])[0].items():
        assert losses == pytest.approx(expected, rel=relative), name


RESUMED = {
    1: [
        *((f"2-{engine}-llama-2", "ddp") for engine in ("ddp", "fsdp", "tp", "zero2", "zero3")),
        *((f"4-{engine}-llama-2", "ddp") for engine in ("tp", "fsdp-tp")),
        ("2-zero1-llama-2", "zero0"),
        ("2-zero2-llama-4", "zero2"),
        ("2-tp-llama-2", "zero3"),
        ("2-zero3-llama-2", "zero3"),
    ],
    2: [
        *(("1-ddp-llama-8", engine) for engine in ("ddp", "fsdp", "tp", "zero2", "zero3", "zero3-offload")),
        ("2-zero2-llama-2", "zero1"),
        ("2-zero1-llama-2", "zero1"),
        ("2-zero0-llama-2", "zero2"),
        ("2-zero2-llama-2", "zero2-offload"),
        ("2-fsdp-llama-2", "zero3"),
        ("2-zero3-llama-2", "fsdp"),
        ("2-fsdp-llama-2", "tp"),
        ("2-tp-llama-2", "fsdp"),
        ("4-fsdp-tp-llama-2", "fsdp"),
        ("1-zero3-llama-4", "tp"),
        ("2-auto-tp-llama-4", "fsdp"),
        ("4-auto-tp-llama-2", "zero3"),
        ("2-zero3-llama-2", "auto-tp"),
        ("4-fsdp-tp-llama-2", "auto-tp"),
    ],
    3: [
        ("2-tp-llama-2", "ddp"),
        ("2-ddp-llama-2", "fsdp"),
        ("2-fsdp-llama-2", "zero1"),
        ("2-zero3-llama-2", "zero3"),
        ("2-auto-tp-llama-4", "zero2"),
    ],
}
"""Ranks that go on -> the checkpoint they go on from (ranks, engine, family, micro-batch) and their own engine."""


def go_on(rank, world, cases, folder):
    """Steps two and three by one engine, from the checkpoint of another; of three ranks one has an empty row."""
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.run import RunFolder

    found = []
    for source, name in cases:
        made = job(name)
        engine, place = build(made, rank, world, 2)
        with restore(RunFolder(f"{folder}/{source}", made.name), rank=rank, world=world) as reader:
            engine.load(reader)
        found.append(take_steps(engine, place, 2, STEPS))
        engine.close()
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_engine_goes_on_from_any_other_at_any_size(results, folder, world):
    expected = results[1, "ddp", "llama", 8][0][2:]
    for case, said in zip(RESUMED[world], ranks.run(world, go_on, RESUMED[world], folder)[0], strict=True):
        assert [loss for loss, _ in said] == pytest.approx([loss for loss, _ in expected], rel=1e-5), case
        assert [norm for _, norm in said] == pytest.approx([norm for _, norm in expected], rel=1e-5), case


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
