"""Adapters: what is trained, what a checkpoint holds of it, what is exported; the same under every engine."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import ranks

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train import lora
from raytrain_eks.train.sizes import shrunk

pytestmark = pytest.mark.slow

LENGTH, VOCABULARY, ROWS, STEPS = 16, 97, 4, 4
FAMILIES = [
    ("llama", "pretrain"),
    ("qwen3", "pretrain"),
    ("mistral", "pretrain"),
    ("gpt2", "pretrain"),
    ("bert", "mlm"),
]


def config_of(family: str):
    from transformers import AutoConfig

    given = shrunk(AutoConfig.for_model(family).to_dict(), positions=32, vocabulary=VOCABULARY)
    return AutoConfig.for_model(family, **given, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def pretrained(folder, family: str = "llama", task: str = "pretrain", seed: int = 0):
    """A small model that somebody trained, as a folder."""
    from raytrain_eks.train.model import model_class

    torch.manual_seed(seed)
    model_class(task).from_config(config_of(family), dtype=torch.float32).save_pretrained(folder)
    return str(folder)


def job(folder: str, task: str = "pretrain", engine: dict | None = None, **adapters) -> Job:
    return Job.parse(
        {
            "name": "adapted",
            "task": task,
            "model": {"name": folder},
            "lora": {"rank": 4} | adapters,
            "data": {"train": "x", "sequence_length": LENGTH},
            "batch": {"sequences": ROWS},
            "optimizer": {"learning_rate": 0.01},
            "precision": "fp32",
            "engine": engine or {"kind": "torch"},
            "stop": {"steps": STEPS},
        }
    )


def built(made: Job):
    from transformers import AutoConfig

    from raytrain_eks.train.model import build_model

    return build_model(made, AutoConfig.from_pretrained(made.model.name))


def trained_a_little(model):
    """Adapters begin as zero; these do something."""
    generator = torch.Generator().manual_seed(3)
    for layer in lora.layers(model).values():
        weight = layer.lora_B[lora.ADAPTER].weight
        weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return model


class Words:
    """A tokenizer that leaves nothing behind."""

    def save_pretrained(self, folder) -> None: ...


@pytest.mark.parametrize(("family", "task"), FAMILIES)
def test_export_is_the_adapter_alone_and_the_merged_model(tmp_path, family, task):
    from peft import PeftModel

    from raytrain_eks.train.finish import export
    from raytrain_eks.train.model import model_class

    folder = pretrained(tmp_path / "base", family, task)
    model = trained_a_little(built(job(folder, task))).eval()
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    ids = torch.randint(5, VOCABULARY, (2, 9))
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        plain = model_class(task).from_pretrained(folder).eval()(input_ids=ids).logits
    export(model, Words(), tmp_path / "export")
    again = model_class(task).from_pretrained(tmp_path / "export").eval()
    base = model_class(task).from_pretrained(folder)
    beside = PeftModel.from_pretrained(base, tmp_path / "export" / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(beside(input_ids=ids).logits, expected, atol=1e-6, rtol=1e-5)
    assert float((expected - plain).abs().max()) > 1e-3
    sizes = [(tmp_path / "export" / name).stat().st_size for name in ("adapter/adapter_model.safetensors",)]
    assert sizes[0] < (tmp_path / "export" / "model.safetensors").stat().st_size


def test_defaults_and_names(tmp_path):
    folder = pretrained(tmp_path)
    model = built(job(folder))
    config = model.peft_config[lora.ADAPTER]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.0)
    last = {name.rsplit(".", 1)[-1] for name in lora.layers(model)}
    assert last == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    chosen = built(job(folder, alpha=3.0, dropout=0.5, target_modules=["q_proj", "mlp.up_proj"]))
    assert {name.rsplit(".", 1)[-1] for name in lora.layers(chosen)} == {"q_proj", "up_proj"}
    assert chosen.peft_config[lora.ADAPTER].lora_alpha == 3.0


def test_a_name_of_no_layer_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(SpecError, match=r"target_modules\.1 = q_prj\n.*no linear layer.*\n.*did you mean `q_proj`"):
        built(job(pretrained(tmp_path), target_modules=["v_proj", "q_prj"]))


def test_a_layer_that_shares_its_weight_is_refused(tmp_path):
    with pytest.raises(SpecError, match="lm_head shares its weight"):
        built(job(pretrained(tmp_path, "gpt2"), target_modules=["lm_head"]))


def test_adapters_and_tensor_parallelism_do_not_go_together():
    with pytest.raises(SpecError, match=r"engine\.tensor.*\n.*cannot be split"):
        job("x", engine={"kind": "torch", "tensor": 2})


def test_the_frozen_weights_have_a_fingerprint(tmp_path):
    first, other = pretrained(tmp_path / "a"), pretrained(tmp_path / "b", seed=1)
    made = job(first)
    base = lora.base_of(built(made), made)
    assert base == lora.base_of(built(made), made)
    narrow = job(first, target_modules=["q_proj"])
    assert lora.base_of(built(narrow), narrow) == base, "which layers have adapters does not matter"
    changed = lora.base_of(built(job(other)), job(other))
    assert changed["fingerprint"] != base["fingerprint"]
    lora.check_base({"base": base}, base)
    with pytest.raises(SpecError, match=r"model\.name.*\n.*other weights than those that the adapters"):
        lora.check_base({"base": base}, changed)
    with pytest.raises(SpecError, match="the checkpoint holds adapters only, this job trains the whole model"):
        lora.check_base({"base": base}, None)
    with pytest.raises(SpecError, match="the checkpoint holds the whole model, this job trains adapters only"):
        lora.check_base({"base": None}, base)
    lora.check_base({}, None)


@pytest.mark.parametrize("broken", ["empty", "meta", "none"])
def test_a_save_that_would_be_empty_raises(tmp_path, broken):
    from raytrain_eks.train.finish import export

    model = built(job(pretrained(tmp_path / "base")))
    weight = next(iter(lora.layers(model).values())).lora_A[lora.ADAPTER].weight
    if broken == "empty":
        weight.data = torch.empty(0)
    elif broken == "meta":
        layer = next(iter(lora.layers(model).values())).lora_A[lora.ADAPTER]
        layer.weight = torch.nn.Parameter(layer.weight.to("meta"))
    else:
        lora.merge(model)
        with pytest.raises(lora.EmptyAdapter, match="has no adapters"):
            lora.save_adapter(model, tmp_path / "out")
        return
    with pytest.raises(lora.EmptyAdapter, match="not gathered"):
        export(model, Words(), tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_an_empty_weight_of_a_whole_model_is_not_exported(tmp_path):
    from raytrain_eks.train.finish import EmptyWeight, export
    from raytrain_eks.train.model import model_class

    model = model_class("pretrain").from_pretrained(pretrained(tmp_path / "base"))
    model.model.norm.weight.data = torch.empty(0)
    with pytest.raises(EmptyWeight, match=r"model\.norm\.weight is empty"):
        export(model, Words(), tmp_path / "out")


def rows(step: int):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(5, VOCABULARY, (ROWS, LENGTH), generator=generator)
    segments = torch.ones_like(ids)
    segments[:, 9:] = 2
    labels = ids.clone()
    labels[:, 9] = -100
    positions = torch.cat([torch.arange(9), torch.arange(LENGTH - 9)]).expand(ROWS, -1)
    return {"input_ids": ids, "labels": labels, "position_ids": positions, "segment_ids": segments}


def steps(engine, rank, world, first, last):
    """Losses of some steps, one micro-batch each."""
    said = []
    for step in range(first, last):
        engine.seed(7, step)
        whole = rows(step)
        tokens = int((whole["labels"][:, 1:] != -100).sum())
        part = engine.put({name: tensor[rank::world] for name, tensor in whole.items()})
        loss = engine.micro_step(part, tokens, last=True)
        engine.step(0.01)
        (value,) = engine.read(loss)
        said.append(engine.reduce(value)[0] / tokens)
    return said


ENGINES = [
    {"kind": "torch"},
    {"kind": "torch", "fsdp": True},
    *({"kind": "deepspeed", "zero": stage} for stage in (0, 1, 2, 3)),
]


def engine_of(made, rank, world):
    from raytrain_eks.train import engines

    model = built(made)
    return engines.build(made, model, rank=rank, world=world, micro=ROWS // world, accumulation=1)


def by_every_engine(rank, world, folder, where):
    """Two steps, a checkpoint, two more, and what is exported; then on from the checkpoint of another engine."""
    import torch.distributed as dist

    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.checkpoint.save import Saver

    found = []
    for number, kind in enumerate(ENGINES):
        made = job(folder, engine=kind)
        run = RunFolder(f"{where}/{number}", made.name)
        box = [run.claim(made) if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        engine = engine_of(made, rank, world)
        said = steps(engine, rank, world, 0, 2)
        saver = Saver(run, box[0], rank=rank, world=world)
        saver.save(2, engine.chunks(), {})
        said += steps(engine, rank, world, 2, STEPS)
        saver.close()
        model = engine.full_model()
        adapters = {name: weight.numpy() for name, weight in lora.adapter_state(model).items()} if rank == 0 else None
        engine.close()
        other = engine_of(job(folder, engine=ENGINES[(number + 1) % len(ENGINES)]), rank, world)
        with restore(run, rank=rank, world=world) as reader:
            names = reader.names()
            other.load(reader)
        found.append((said, adapters, names, steps(other, rank, world, 2, STEPS)))
        other.close()
    return found


@pytest.mark.slow
def test_every_engine_trains_and_saves_the_same_adapters_and_nothing_else(tmp_path):
    folder = pretrained(tmp_path / "base")
    first, *_ = ranks.run(2, by_every_engine, folder, str(tmp_path))
    expected, adapters = first[0][0], first[0][1]
    assert expected[-1] < expected[0]
    for kind, (said, found, names, resumed) in zip(ENGINES, first, strict=True):
        assert said == pytest.approx(expected, abs=1e-5), kind
        assert resumed == pytest.approx(expected[2:], abs=1e-5), kind
        assert found.keys() == adapters.keys()
        for name, weight in found.items():
            assert abs(weight - adapters[name]).max() < 2e-4, (kind, name)
        weights = [name for name in names if name.startswith(("model.", "optimizer.exp"))]
        assert weights
        assert all("lora_" in name for name in weights), kind


def with_dropout(rank, world, folder, first):
    engine = engine_of(job(folder, dropout=0.5), rank, world)
    return steps(engine, rank, world, first, first + 2), engine


def dropped(rank, world, folder):
    whole, engine = with_dropout(rank, world, folder, 0)
    again, _ = with_dropout(rank, world, folder, 0)
    # In the middle of another sequence of draws the second step is the same, if the weights are.
    torch.manual_seed(99)
    torch.rand(1000)
    other, _ = with_dropout(rank, world, folder, 0)
    without = steps(engine_of(job(folder), rank, world), rank, world, 0, 2)
    torch.manual_seed(0)
    engine.seed(7, 0)
    draw = torch.rand(4).tolist()
    return whole, again, other, without, draw


@pytest.mark.slow
def test_dropout_is_drawn_again_alike_and_differs_between_ranks(tmp_path):
    first, second = ranks.run(2, dropped, pretrained(tmp_path / "base"))
    whole, again, other, without, draw = first
    assert whole == again == other
    assert whole[1] != without[1]
    assert draw != second[4]
