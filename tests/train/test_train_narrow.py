"""A model's weights come in bf16: FSDP makes them fp32 block by block, and no rank holds the whole model in fp32."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ranks

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
ENGINES = {
    "ddp": {},
    "fsdp": {"fsdp": True},
    "recomputed": {"fsdp": True, "activation_checkpointing": "full"},
    "tp": {"tensor": 2, "fsdp": True},
}


def job(folder: str, **engine):
    from raytrain_eks.spec.job import Job

    return Job.parse(
        {
            "name": "narrow",
            "model": {"name": folder},
            "data": {"train": "x", "sequence_length": 16},
            "batch": {"sequences": 2},
            "optimizer": {"learning_rate": 1e-2},
            "precision": "fp32",
            "engine": {"kind": "torch", **engine},
            "stop": {"steps": 3},
        }
    )


def train(rank, world, folder):
    """By engine: the types that the model came in and is trained in, devices it was moved to as a whole, and losses."""
    import torch
    from torch import nn
    from transformers import AutoConfig

    from raytrain_eks.plan.mesh import mesh_of
    from raytrain_eks.train import engines
    from raytrain_eks.train.model import build_model

    found = {}
    for name, engine in ENGINES.items():
        if mesh_of(made := job(folder, **engine), world).data == 1 and world == 4:
            continue
        model = build_model(made, AutoConfig.from_pretrained(folder))
        before = {weight.dtype for weight in model.parameters()}
        moved: list[tuple] = []
        model.to = lambda *given, moved=moved, model=model: moved.append(given) or nn.Module.to(model, *given)
        mesh = mesh_of(made, world)
        built = engines.build(made, model, rank=rank, world=world, micro=1, accumulation=1)
        after = {shard.local.dtype for shard in built.shards}
        losses = []
        for step in range(3):
            ids = torch.randint(61, (mesh.data, 16), generator=torch.Generator().manual_seed(step))
            row = ids[mesh.data_rank(rank)][None]
            part = {"input_ids": row, "labels": row, "position_ids": torch.arange(16)[None]}
            part |= {"segment_ids": torch.ones_like(row)}
            loss = built.micro_step(built.put(part), 15 * mesh.data, last=True)
            losses.append(built.reduce(*built.read(loss))[0] / mesh.data)
            built.step(1e-2)
        whole = built.full_model()
        kinds = {weight.dtype for weight in whole.parameters()} | {whole.config.dtype} if whole else set()
        found[name] = before, after, bool(moved), kinds, losses
        built.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A pretrained model in bf16, head and embedding tied."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    where = tmp_path_factory.mktemp("narrow") / "model"
    LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)).to(torch.bfloat16).save_pretrained(where)
    return str(where)


@pytest.fixture(scope="module")
def found(folder):
    return ranks.run(2, train, folder)[0]


def test_wide_where_it_trains_and_only_there(found):
    import torch

    assert found["ddp"][0] == {torch.float32}
    for name in ("fsdp", "recomputed"):
        before, after, moved, kinds, losses = found[name]
        assert (before, after, kinds) == ({torch.bfloat16}, {torch.float32}, {torch.float32})
        assert not moved, "the whole model was moved to the device at once"
        assert losses == pytest.approx(found["ddp"][4], rel=1e-5)


def test_with_tensor_parallelism(folder, found):
    import torch

    before, after, moved, kinds, losses = ranks.run(4, train, folder)[0]["tp"]
    assert (before, after, kinds) == ({torch.bfloat16}, {torch.float32}, {torch.float32})
    assert not moved
    assert losses == pytest.approx(found["ddp"][4], rel=1e-5)
