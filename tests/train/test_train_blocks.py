"""What is done to a model before it is distributed, where it can be shown in one process."""

import types

import pytest
import torch

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.engines import blocks
from raytrain_eks.train.engines.common import TensorEngine
from raytrain_eks.train.engines.tensor_parallel import check, plan_of
from raytrain_eks.train.engines.whole import Hollow, Skeleton

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}


def llama(**more):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False, **more)).float()


def job(precision="fp32", task="pretrain", **engine) -> Job:
    return Job.parse(
        {
            "name": "blocks",
            "model": {"name": "x"},
            "task": task,
            "data": {"train": "x", "sequence_length": 16},
            "batch": {"sequences": 2},
            "optimizer": {"learning_rate": 1e-3},
            "precision": precision,
            "engine": {"kind": "torch", **engine},
            "stop": {"steps": 2},
        }
    )


def gradients(model) -> list[torch.Tensor]:
    ids = torch.arange(24).reshape(2, 12)
    model(input_ids=ids, labels=ids).loss.backward()
    return [weight.grad for weight in model.parameters()]


@pytest.mark.parametrize("kind", ["none", "full", "selective"])
def test_recomputed_blocks_have_the_same_gradients_and_names(kind):
    expected = gradients(llama().train())
    model = llama().train()
    names = [name for name, _ in model.named_parameters()]
    blocks.checkpoint_activations(blocks.blocks_of(model), kind)
    for found, wanted in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)
    assert [name for name, _ in model.named_parameters()] == names
    assert all("forward" not in vars(module) for module in blocks.plain(model).modules())


def kept(model) -> int:
    """Bytes that a forward pass leaves for the backward pass."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (found.append(tensor.nbytes), tensor)[1], lambda x: x):
        ids = torch.arange(24).reshape(2, 12)
        model(input_ids=ids).logits.sum()
    return sum(found)


def test_full_recomputation_keeps_little():
    plain, full = llama().train(), llama().train()
    blocks.checkpoint_activations(blocks.blocks_of(full), "full")
    assert kept(full) < 0.5 * kept(plain)


@pytest.mark.parametrize(
    ("device", "precision", "task", "installed", "expected"),
    [
        ("cuda", "bf16", "pretrain", True, blocks.FLASH),
        ("cuda", "bf16", "pretrain", False, "sdpa"),
        ("cuda", "fp32", "pretrain", True, "sdpa"),
        ("cuda", "bf16", "mlm", True, "sdpa"),
        ("cpu", "bf16", "pretrain", True, "sdpa"),
    ],
)
def test_the_attention_kernel_is_the_fastest_that_runs(monkeypatch, device, precision, task, installed, expected):
    monkeypatch.setattr(blocks.importlib.util, "find_spec", lambda name: object() if installed else None)
    chosen = []
    config = types.SimpleNamespace(_attn_implementation="sdpa")
    model = types.SimpleNamespace(set_attn_implementation=chosen.append, config=config)
    flash = blocks.set_attention(job(precision, task), model, torch.device(device))
    assert chosen == [expected]
    assert flash == (expected == blocks.FLASH)


def test_flash_attention_that_cannot_run_is_refused():
    with pytest.raises(SpecError, match="runs on GPUs, and the workers train on cpu"):
        blocks.set_attention(job("bf16", attention=blocks.FLASH), llama(), torch.device("cpu"))


def test_rows_as_one_long_row_have_the_same_loss():
    """FlashAttention's form of a batch, with a kernel that takes documents apart by position ids like it."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    def by_positions(module, query, key, value, attention_mask, scaling, position_ids, **_):
        document = (position_ids == 0).cumsum(1)
        mask = (document[:, :, None] == document[:, None, :]).tril()[:, None]
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
        return found.transpose(1, 2).contiguous(), None

    AttentionInterface.register("by_positions", by_positions)
    AttentionMaskInterface.register("by_positions", lambda *_, **__: None)
    engine = TensorEngine()
    engine.device, engine.autocast, engine.causal = torch.device("cpu"), False, True
    rows = {"input_ids": torch.arange(32).reshape(2, 16), "labels": torch.arange(32).reshape(2, 16).clone()}
    rows["labels"][:, 7] = -100
    positions = torch.cat([torch.arange(7), torch.arange(9)]).expand(2, -1)
    segments = torch.cat([torch.full((7,), 1), torch.full((9,), 2)]).expand(2, -1)
    batch = engine.put(rows | {"position_ids": positions, "segment_ids": segments})
    expected = engine.forward(llama().eval(), batch)
    engine.flat_rows = True
    found = engine.forward(llama(attn_implementation="by_positions").eval(), batch)
    torch.testing.assert_close(found, expected)


def test_rows_that_are_whole_documents_come_without_a_mask():
    engine = TensorEngine()
    engine.device = torch.device("cpu")
    ids = torch.ones(2, 8, dtype=torch.long)
    batch = {"input_ids": ids, "labels": ids, "position_ids": ids, "segment_ids": ids.clone()}
    assert "segment_ids" not in engine.put(batch)
    batch["segment_ids"][1, 4:] = 0
    assert "segment_ids" in engine.put(batch)
    engine.explicit_masks = True
    batch["segment_ids"][1, 4:] = 1
    assert "segment_ids" in engine.put(batch)


@pytest.mark.parametrize("tied", [False, True])
def test_a_skeleton_is_filled_with_weights_and_refuses_hollow_ones(tied):
    model = llama(tie_word_embeddings=tied)
    skeleton = Skeleton(model)
    assert all(weight.is_meta for weight in skeleton.model.parameters())
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    whole = skeleton.filled(weights, {})
    ids = torch.arange(12)[None]
    torch.testing.assert_close(whole(input_ids=ids).logits, model(input_ids=ids).logits)
    assert (whole.lm_head.weight is whole.model.embed_tokens.weight) == tied
    name = "model.norm.weight"
    for wrong in (torch.empty(0), torch.empty(16, device="meta"), None):
        hollow = weights | {name: wrong}
        if wrong is None:
            del hollow[name]
        with pytest.raises(Hollow, match=name):
            skeleton.filled(hollow, {})


def test_models_that_cannot_be_split_are_refused():
    from transformers import GPT2Config, GPT2LMHeadModel

    with pytest.raises(SpecError, match="no tensor-parallel plan for GPT2LMHeadModel"):
        plan_of(GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=61)))
    model = llama()
    plan = plan_of(model)
    assert plan["model.layers.1.self_attn.o_proj"] == "rowwise"
    check(model, plan, 2)
    with pytest.raises(SpecError, match="num_key_value_heads is 2, which cannot be split over 4 workers"):
        check(model, plan, 4)
    with pytest.raises(SpecError, match="splits by packed_colwise"):
        check(model, plan | {"model.layers.0.mlp.gate_proj": "packed_colwise"}, 2)
