"""The XLA engine on a CPU against eager PyTorch: the same numbers, and no graph after the warm-up."""

import numpy as np
import pytest
import torch

from raytrain_eks.data.packing import batch as packed_batch
from raytrain_eks.data.packing import pack
from raytrain_eks.spec.job import Job
from raytrain_eks.train.compile_guard import NewGraph, NewGraphWarning

LENGTH, VOCABULARY = 32, 96
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
SMALL |= {"num_attention_heads": 2, "max_position_embeddings": 64}
LLAMA = {"model_type": "llama", "num_key_value_heads": 1, "tie_word_embeddings": True, **SMALL}
BERT = {"model_type": "bert", "is_decoder": True, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT |= SMALL


def job(model: dict, *, precision: str = "fp32", sequences: int = 4, micro: int | None = None, **engine) -> Job:
    return Job.parse(
        {
            "kind": "Job",
            "name": "xla",
            "model": {"config": dict(model)},
            "tokenizer": {"name": "none"},
            "data": {"train": "nowhere", "format": "text", "sequence_length": LENGTH},
            "batch": {"sequences": sequences, "micro": micro},
            "optimizer": {"learning_rate": 3e-3, "clip": 0.5},
            "precision": precision,
            "engine": engine or {"kind": "xla"},
            "stop": {"steps": 6},
        }
    )


def built(model: dict, **options):
    from transformers import AutoConfig, AutoModelForCausalLM

    given = dict(model)
    torch.manual_seed(7)
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def batches(count: int, rows: int = 2, length: int = LENGTH, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Packed rows of documents of uneven lengths; the last batch has an empty row."""
    numbers = np.random.default_rng(seed)
    documents = [numbers.integers(1, VOCABULARY, numbers.integers(3, 40)) for _ in range(count * rows * 2)]
    packed = pack(documents, length=length, pad=0, token_bytes=np.ones(VOCABULARY, np.int64))
    chosen = [[(packed, at * rows + row) for row in range(rows)] for at in range(count)]
    chosen[-1][-1] = None
    return [packed_batch(rows, length=length, pad=0) for rows in chosen]


def learnt(batch: dict[str, np.ndarray]) -> int:
    return int((batch["labels"][:, 1:] != -100).sum())


def run(engine, data: list[dict[str, np.ndarray]], accumulation: int, steps: int, first: int = 0) -> list[list[float]]:
    """Losses per token and gradient norms of some steps."""
    told = []
    for step in range(first, first + steps):
        micro = [data[(step * accumulation + index) % len(data)] for index in range(accumulation)]
        total = sum(map(learnt, micro))
        losses = [
            engine.micro_step(engine.put(each), total, last=index == accumulation - 1)
            for index, each in enumerate(micro)
        ]
        norm = engine.step(1e-3 * (step + 1))
        *values, size = engine.read(*losses, norm)
        told.append([sum(values) / total, size])
    return told


def engines(model: dict, precision: str = "fp32", **options):
    from raytrain_eks.train.engines.torch import TorchEngine
    from raytrain_eks.train.engines.xla import XlaEngine

    eager = TorchEngine(job(model, precision=precision, kind="torch"), built(model), rank=0, world=1)
    traced = XlaEngine(job(model, precision=precision, kind="xla", **options), built(model), rank=0, world=1)
    return eager, traced


@pytest.mark.parametrize(("model", "accumulation"), [(LLAMA, 1), (LLAMA, 2), (BERT, 2)], ids=["llama", "two", "bert"])
def test_steps_equal_those_of_eager_torch_and_compile_once(model, accumulation):
    eager, traced = engines(model)
    data = batches(5)
    expected, found = (run(engine, data, accumulation, 6) for engine in (eager, traced))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    for (name, weight), (_, other) in zip(eager.model.named_parameters(), traced.model.named_parameters(), strict=True):
        np.testing.assert_allclose(other.detach().cpu(), weight.detach(), atol=1e-4, err_msg=name)
    # At most one: what this process has compiled for another test it does not compile again.
    assert set(traced.guard.graphs) == {"micro_step", "step"}
    assert max(traced.guard.graphs.values()) <= 1


def test_fixed_shapes_make_three_graphs_at_any_accumulation():
    from raytrain_eks.train.engines.xla import compilations

    _, traced = engines({**LLAMA, "intermediate_size": 48})
    data = batches(4)
    before = compilations()
    traced.read(*[traced.evaluate(traced.put(each)) for each in data])
    for accumulation in (1, 2, 4):
        run(traced, data, accumulation, 2)
    assert traced.guard.graphs == {"evaluation": 1, "micro_step": 1, "step": 1}
    assert compilations() == before + 3


def test_evaluation_is_that_of_eager_torch_and_leaves_no_trace():
    eager, traced = engines(LLAMA)
    data = batches(4)
    for engine in (eager, traced):
        run(engine, data, 1, 2)
    expected, found = ([engine.evaluate(engine.put(each)) for each in data] for engine in (eager, traced))
    np.testing.assert_allclose(traced.read(*found), eager.read(*expected), rtol=1e-5)
    np.testing.assert_allclose(run(traced, data, 1, 3, first=2), run(eager, data, 1, 3, first=2), atol=1e-4)


def test_bf16_follows_eager_bf16():
    eager, traced = engines(LLAMA, precision="bf16")
    data = batches(3)
    np.testing.assert_allclose(run(traced, data, 1, 4), run(eager, data, 1, 4), atol=2e-2)
    assert {weight.dtype for weight in traced.trained} == {torch.float32}


def test_a_new_shape_after_the_warm_up_is_refused_before_it_is_compiled():
    from raytrain_eks.train.engines.xla import compilations

    _, traced = engines(LLAMA, warmup=2)
    run(traced, batches(3), 1, 3)
    before = compilations()
    with pytest.raises(NewGraph, match=r"batch of \[2, 24\].* keep batches at \[2, 32\]"):
        run(traced, batches(1, length=24), 1, 1)
    assert compilations() == before


def test_a_new_shape_is_compiled_where_the_job_says_warn():
    _, traced = engines(LLAMA, warmup=2, new_graph="warn")
    run(traced, batches(3), 1, 3)
    before = traced.guard.graphs["micro_step"]
    with pytest.warns(NewGraphWarning, match=r"batch of \[2, 24\]") as warned:
        run(traced, batches(1, length=24), 1, 1)
    assert len(warned) == 1
    assert traced.guard.graphs["micro_step"] == before + 1


def test_a_number_that_became_part_of_the_graph_is_found():
    _, traced = engines(LLAMA, warmup=2)
    data = batches(3)
    run(traced, data, 1, 3)
    update = traced.optimizer.update

    def with_a_python_number(rate, apply):
        update(rate, apply)
        traced.trained[0].data.mul_(1.0)  # exactly 1 is no input of the graph

    traced.optimizer.update = with_a_python_number
    with pytest.raises(NewGraph, match="call 4 of step compiled 1 new graph: after a warm-up"):
        run(traced, data, 1, 1, first=3)


def test_bias_corrections_that_reach_one_compile_nothing():
    """PyTorch's own AdamW would compile here: its Python numbers become exactly 1."""
    from raytrain_eks.train.engines.xla import compilations

    _, traced = engines(LLAMA, warmup=2)
    data = batches(3)
    run(traced, data, 1, 2)
    before = compilations()
    traced.optimizer.steps.copy_(torch.tensor([10_000.0]))
    traced.xla.sync()
    run(traced, data, 1, 2, first=2)
    assert compilations() == before


def weights_of(engine):
    return torch.cat([weight.detach().cpu().reshape(-1) for weight in engine.trained])


@pytest.mark.parametrize("how", ["skipped", "not finite"])
def test_a_refused_step_leaves_everything_as_it_was_and_compiles_nothing(how):
    from raytrain_eks.train.engines.xla import compilations

    _, traced = engines(LLAMA)
    _, other = engines(LLAMA)
    data = batches(3)
    for engine in (traced, other):
        run(engine, data, 1, 1)
    before, compiled = weights_of(traced), compilations()
    traced.micro_step(traced.put(data[1]), 1, last=True)
    if how == "skipped":
        traced.skip()
    else:
        traced.trained[0].grad.copy_(torch.full(traced.trained[0].shape, float("nan")))
        assert np.isnan(traced.read(traced.step(1e-3))).all()
    assert torch.equal(weights_of(traced), before)
    assert run(traced, data, 1, 2, first=1) == run(other, data, 1, 2, first=1)
    assert compilations() == compiled


def test_dropout_is_drawn_by_seed_and_compiles_nothing():
    from raytrain_eks.train.engines.xla import compilations

    dropping = {**BERT, "hidden_dropout_prob": 0.2}
    _, traced = engines(dropping)
    batch = traced.put(batches(1)[0])
    told = []
    for number in (1, 2, 3, 1, 0, 5):
        traced.seed(number)
        told += traced.read(traced.micro_step(batch, 1, last=True))
        traced.skip()
        if len(told) == 2:
            compiled = compilations()
    assert told[0] == told[3]
    assert len(set(told)) == 5
    assert compilations() == compiled


def checkpoint(folder, chunks):
    """A reader of a checkpoint of these parts."""
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.checkpoint.save import Saver

    run_folder = RunFolder(folder, "xla")
    saver = Saver(run_folder, run_folder.claim(job(LLAMA)))
    saver.save(1, chunks, {})
    saver.close()
    return restore(run_folder)


@pytest.mark.parametrize("world", [1, 3])
def test_state_goes_to_eager_and_back(world, tmp_path):
    eager, traced = engines(LLAMA)
    data = batches(6)
    run(traced, data, 1, 2)
    parts = []
    for rank in range(world):
        traced.rank, traced.world = rank, world
        parts += traced.chunks()
    traced.rank, traced.world = 0, 1
    assert {chunk.tensor.device.type for chunk in parts} == {"cpu"}
    eager.load(checkpoint(tmp_path / "traced", parts))
    expected = run(eager, data, 1, 2, first=2)
    np.testing.assert_allclose(run(traced, data, 1, 2, first=2), expected, atol=1e-5)
    _, other = engines(LLAMA, warmup=1)
    run(other, data, 1, 1)
    other.load(checkpoint(tmp_path / "eager", eager.chunks()))
    np.testing.assert_allclose(run(other, data, 1, 2, first=4), run(eager, data, 1, 2, first=4), atol=1e-5)


def test_going_back_in_the_middle_compiles_nothing(tmp_path):
    from raytrain_eks.train.engines.xla import compilations

    _, traced = engines({**LLAMA, "intermediate_size": 40}, warmup=2)
    data = batches(6)
    run(traced, data, 1, 2)
    kept = traced.chunks()
    first, before = run(traced, data, 1, 2, first=2), compilations()
    traced.load(checkpoint(tmp_path, kept))
    assert run(traced, data, 1, 2, first=2) == first
    assert compilations() == before


def test_a_checkpoint_without_steps_has_no_moments(tmp_path):
    eager, traced = engines(LLAMA)
    with torch.no_grad():
        eager.model.lm_head.weight.fill_(0.5)
    traced.load(checkpoint(tmp_path, eager.chunks()))
    assert float(traced.model.lm_head.weight.detach().cpu().mean()) == 0.5


def test_bf16_state_is_stored_in_fp32_and_learns():
    _, traced = engines(LLAMA, precision="bf16", stochastic_rounding=True)
    told = run(traced, batches(1), 1, 6)
    assert {weight.dtype for weight in traced.trained} == {torch.bfloat16}
    assert {chunk.dtype for chunk in traced.chunks()} == {torch.float32}
    assert told[-1][0] < told[0][0]
    assert {weight.dtype for weight in traced.full_model().parameters()} == {torch.float32}


def test_tied_weights_stay_tied_on_the_device_and_back():
    _, traced = engines(LLAMA)
    model = traced.model
    assert model.lm_head.weight is model.model.embed_tokens.weight
    whole = traced.full_model()
    assert whole.lm_head.weight is whole.model.embed_tokens.weight
    assert whole.lm_head.weight.device.type == "cpu"


@pytest.mark.parametrize("sequences", [2, 4])
def test_compiling_ahead_makes_every_graph_of_the_training(sequences):
    """In one process compiled graphs are kept, as the compile cache keeps them between processes."""
    from raytrain_eks.train.engines.xla import XlaEngine, compilations
    from raytrain_eks.train.precompile import trace

    planned = job(LLAMA, sequences=sequences, micro=2)
    trace(planned, built(LLAMA), rank=0, world=1)
    before = compilations()
    engine = XlaEngine(planned, built(LLAMA), rank=0, world=1)
    data = batches(4)
    engine.read(*[engine.evaluate(engine.put(each)) for each in data])
    run(engine, data, sequences // 2, 3)
    engine.chunks()
    assert compilations() == before


def test_frozen_weights_stay_and_the_rest_learns():
    from raytrain_eks.train.engines.torch import TorchEngine
    from raytrain_eks.train.engines.xla import XlaEngine

    models = [built(LLAMA), built(LLAMA)]
    for model in models:
        model.model.layers[0].mlp.requires_grad_(False)
    frozen = models[0].model.layers[0].mlp.up_proj.weight.clone()
    eager = TorchEngine(job(LLAMA, kind="torch"), models[0], rank=0, world=1)
    traced = XlaEngine(job(LLAMA), models[1], rank=0, world=1)
    data = batches(3)
    np.testing.assert_allclose(run(traced, data, 1, 3), run(eager, data, 1, 3), atol=1e-4)
    assert torch.equal(traced.model.model.layers[0].mlp.up_proj.weight.detach().cpu(), frozen)
