"""A checkpoint becomes a Hugging Face folder."""

import pytest

from raytrain_eks.checkpoint.chunk import Chunk
from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.checkpoint.save import Saver
from raytrain_eks.cli.main import main
from raytrain_eks.spec.job import Job


@pytest.mark.slow
def test_export(tmp_path, monkeypatch, capsys):
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    from raytrain_eks.train.model import build_model, model_config
    from raytrain_eks.train.state import stored_weights, weight_name

    words = Tokenizer(WordLevel({"<e>": 0, "a": 1, "b": 2, "<u>": 3}, unk_token="<u>"))
    words = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", unk_token="<u>")
    words.save_pretrained(tmp_path / "words")
    config = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True}
    job = Job.parse(
        {
            "kind": "Job",
            "name": "tiny",
            "model": {"config": config},
            "tokenizer": {"name": str(tmp_path / "words")},
            "data": {"train": "python-stdlib:", "sequence_length": 16},
            "batch": {"tokens": 64},
            "optimizer": {"learning_rate": 1e-3},
            "stop": {"steps": 1},
        }
    )
    model = build_model(job, model_config(job, words))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.25)
    run = RunFolder(tmp_path / "runs", "tiny")
    saver = Saver(run, run.claim(job))
    saver.save(3, [Chunk.of(weight_name(name), tensor) for name, tensor in stored_weights(model).items()], {})
    saver.close()
    monkeypatch.setenv("RAYTRAIN_STORAGE", run.parent.url)
    with pytest.raises(SystemExit) as ended:
        main(["checkpoints", "export", "tiny", "--to", str(tmp_path / "out")])
    assert (ended.value.code or 0) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}\n"
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    for (name, tensor), (other, copy) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(tensor, copy)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 4
    with pytest.raises(SystemExit) as ended:
        main(["checkpoints", "export", "tiny", "--to", str(tmp_path / "out")])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        main(["checkpoints", "export", "tiny", "--to", str(tmp_path / "other"), "--step", "9"])
    assert ended.value.code == 3
    assert "complete: 3" in capsys.readouterr().err
