"""What is hidden from a masked language model: a function of seed, step and place alone, in the right number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.data.packing import IGNORED, batch, pack
from raytrain_eks.data.stream import Evaluation, Step
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.masking import Masking, Words, position_offset

LENGTH, VOCABULARY, PAD, MASK = 64, 200, 0, 4
SPECIAL = (0, 1, 2, 3, 4)


def masking(rank=0, world=1, *, seed=7, share=0.15, words=None, offset=0):
    special = np.zeros(VOCABULARY, dtype=bool)
    special[list(SPECIAL)] = True
    return Masking(
        seed=seed,
        share=share,
        mask=MASK,
        special=special,
        ordinary=np.flatnonzero(~special),
        words=words,
        rank=rank,
        world=world,
        offset=offset,
    )


def rows(count: int, seed: int = 0):
    """The rows of a global batch, packed from documents of many lengths; some end in padding."""
    draw = np.random.default_rng(seed)
    documents = [draw.integers(0, VOCABULARY, draw.integers(2, LENGTH)) for _ in range(2 * count)]
    sizes = np.ones(VOCABULARY, np.int32)
    packed = pack(documents, length=LENGTH, pad=PAD, token_bytes=sizes)
    return [(packed, index) for index in range(min(count, len(packed)))]


def step(whole, rank: int, world: int, micro: int) -> Step:
    """This rank's part, as the stream cuts it."""
    mine = list(whole[rank::world])
    parts = -(-len(whole) // (world * micro))
    mine += [None] * (parts * micro - len(mine))
    made = [batch(mine[at : at + micro], length=LENGTH, pad=PAD) for at in range(0, len(mine), micro)]
    return Step(0, list(range(len(whole))), 0, made)


def masked_rows(whole, world: int, micro: int, number: int):
    """The masked rows of the global batch in its order, and the targets that each rank was told."""
    counts: list[float] = []
    for rank in range(world):
        masking(rank, world).of_step(step(whole, rank, world, micro), number, lambda count: counts.append(count) or [0])
    found, told = {}, []
    for rank in range(world):
        done = masking(rank, world).of_step(step(whole, rank, world, micro), number, lambda _: [sum(counts)])
        told.append(done.targets)
        lines = [line for part in done.micro_batches for line in zip(part["input_ids"], part["labels"], strict=True)]
        found |= {rank + world * index: line for index, line in enumerate(lines)}
    return [found[index] for index in range(len(whole))], told


@settings(max_examples=20, deadline=None)
@given(world=st.integers(1, 5), micro=st.integers(1, 4), number=st.integers(0, 10**6), count=st.integers(1, 11))
def test_the_split_never_shows(world, micro, number, count):
    whole = rows(count)
    alone, told = masked_rows(whole, 1, len(whole), number)
    split, told_split = masked_rows(whole, world, micro, number)
    for (ids, labels), (other_ids, other_labels) in zip(alone, split, strict=True):
        assert (ids == other_ids).all()
        assert (labels == other_labels).all()
    assert set(told_split) == set(told)
    assert told[0] == sum(int((labels != IGNORED).sum()) for _, labels in alone)


def test_steps_and_seeds_hide_other_tokens_and_the_same_ones_again():
    part = step(rows(4), 0, 1, 4).micro_batches[0]
    places = [(0, 5, row) for row in range(4)]
    first = masking().batch(part, places)
    assert (first["labels"] == masking().batch(part, places)["labels"]).all()
    assert (first["labels"] != masking(seed=8).batch(part, places)["labels"]).any()
    assert (first["labels"] != masking().batch(part, [(0, 6, row) for row in range(4)])["labels"]).any()
    assert (first["labels"] != masking().batch(part, [(1, 5, row) for row in range(4)])["labels"]).any()


def test_the_share_is_exact_and_special_tokens_and_padding_are_left_alone():
    part = step(rows(40), 0, 1, 40).micro_batches[0]
    before = part["input_ids"].copy()
    done = masking().batch(part, [(0, 0, row) for row in range(40)])
    assert (part["input_ids"] == before).all(), "the stream's own rows are not touched"
    may = (part["segment_ids"] > 0) & (part["input_ids"] >= len(SPECIAL))
    chosen = done["labels"] != IGNORED
    assert (chosen <= may).all()
    assert (chosen.sum(axis=1) == np.maximum(np.round(0.15 * may.sum(axis=1)), 1)).all()
    assert (done["labels"][chosen] == before[chosen]).all()
    assert (done["input_ids"][~chosen] == before[~chosen]).all()


def test_eighty_ten_ten():
    ids = np.random.default_rng(0).integers(len(SPECIAL), VOCABULARY, (400, LENGTH))
    part = {"input_ids": ids, "labels": ids, "segment_ids": np.ones_like(ids), "position_ids": np.zeros_like(ids)}
    done = masking().batch(part, [(0, 0, row) for row in range(400)])
    chosen = done["labels"] != IGNORED
    became, was = done["input_ids"][chosen], ids[chosen]
    total = len(was)
    # Five standard deviations around the expected numbers.
    for count, share in (
        ((became == MASK).sum(), 0.8),
        ((became == was).sum(), 0.1 + 0.1 / (VOCABULARY - len(SPECIAL))),
        (((became != MASK) & (became != was)).sum(), 0.1),
    ):
        assert abs(count - share * total) < 5 * np.sqrt(share * (1 - share) * total)
    assert not set(became.tolist()) & (set(SPECIAL) - {MASK})


def test_an_empty_row_hides_nothing_and_a_single_token_is_hidden():
    part = batch([None], length=LENGTH, pad=PAD)
    assert (masking().batch(part, [(0, 0, 0)])["labels"] == IGNORED).all()
    part["segment_ids"][0, 3], part["input_ids"][0, 3] = 1, 77
    assert masking().batch(part, [(0, 0, 0)])["labels"][0, 3] == 77


def test_whole_words_are_hidden_whole():
    joins = np.arange(VOCABULARY) % 3 == 0
    joins[list(SPECIAL)] = False
    words = Words(joins=joins, ends=np.ones(VOCABULARY, dtype=bool))
    part = step(rows(30), 0, 1, 30).micro_batches[0]
    done = masking(words=words).batch(part, [(0, 0, row) for row in range(30)])
    chosen = done["labels"] != IGNORED
    ids, segments = part["input_ids"], part["segment_ids"]
    may = (segments > 0) & (ids >= len(SPECIAL))
    goes_on = joins[ids[:, 1:]] & (segments[:, 1:] == segments[:, :-1]) & may[:, 1:] & may[:, :-1]
    assert (chosen[:, 1:][goes_on] == chosen[:, :-1][goes_on]).all()
    assert goes_on.sum() > 100
    assert chosen.any(axis=1).all()
    assert chosen.sum() <= 0.16 * may.sum() + 30


def test_held_out_rows_are_always_hidden_alike_and_have_no_bits_per_byte():
    held = Evaluation(step(rows(6), 0, 1, 2).micro_batches, 6, 1, 999)
    first = masking().of_evaluation(held, lambda count: [count])
    second = masking().of_evaluation(held, lambda count: [count])
    for one, other in zip(first.batches, second.batches, strict=True):
        assert (one["labels"] == other["labels"]).all()
    assert first.bytes == 0
    assert first.targets == sum(int((part["labels"] != IGNORED).sum()) for part in first.batches) > 0


def tokenizer(kind: str):
    """A tokenizer of ten words, by WordPiece or byte-level BPE."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if kind == "wordpiece":
        words = ["[UNK]", "[MASK]", "play", "##ing", "##er", "a", "."]
        made = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return PreTrainedTokenizerFast(tokenizer_object=made, mask_token="[MASK]", unk_token="[UNK]")
    words = ["<m>", "Ġplay", "ing", "Ġa", ".", "Ċ", "Ã", "Ġ(", "x"]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, mask_token="<m>")


@pytest.mark.parametrize(
    ("kind", "joins"),
    [("wordpiece", {"##ing", "##er"}), ("byte-level", {"ing", "Ã", "x"})],
)
def test_what_goes_on_with_a_word(kind, joins):
    made = tokenizer(kind)
    words = Words.of(made)
    texts = made.convert_ids_to_tokens(list(range(len(made))))
    assert {text for text, joined in zip(texts, words.joins, strict=True) if joined} == joins
    if kind == "byte-level":
        ends = {text for text, end in zip(texts, words.ends, strict=True) if end}
        assert ends == {"Ġplay", "ing", "Ġa", "Ã", "x"}, "no word goes on after a bracket, a dot or a line's end"


def job(**fields):
    return Job.parse(
        {
            "name": "x",
            "task": "mlm",
            "model": {"config": {"model_type": "bert"}},
            "tokenizer": {"name": "x"},
            "data": {"train": "x", "sequence_length": 16},
            "batch": {"sequences": 4},
            "optimizer": {"learning_rate": 0.1},
            "stop": {"steps": 1},
        }
        | fields
    )


def test_a_tokenizer_without_a_mask_token_is_refused():
    made = tokenizer("wordpiece")
    made.mask_token = None
    with pytest.raises(SpecError, match="needs a mask token"):
        Masking.of(job(), made, rank=0, world=1)


def test_a_jobs_masking():
    made = Masking.of(job(masking={"share": "25%", "whole_words": True}), tokenizer("wordpiece"), rank=1, world=2)
    assert (made.share, made.mask, made.rank, made.world) == (0.25, 1, 1, 2)
    assert made.words is not None
    assert made.ordinary.tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(("share", "task"), [("0%", "mlm"), ("100%", "mlm"), ("15%", "pretrain")])
def test_a_masking_that_makes_no_sense_is_refused(share, task):
    with pytest.raises(SpecError, match="masking"):
        job(task=task, masking={"share": share})


@pytest.mark.slow
@pytest.mark.parametrize(("family", "offset"), [("bert", 0), ("roberta", 2), ("llama", 0)])
def test_where_positions_begin(family, offset):
    from transformers import AutoConfig

    from raytrain_eks.train.model import model_class
    from raytrain_eks.train.sizes import shrunk

    config = AutoConfig.for_model(family, **shrunk(AutoConfig.for_model(family).to_dict(), positions=32, vocabulary=97))
    model = model_class("pretrain" if family == "llama" else "mlm").from_config(config)
    assert position_offset(model) == offset
    part = batch([None], length=LENGTH, pad=PAD)
    moved = masking(offset=offset).batch(part, [(0, 0, 0)])["position_ids"]
    assert (moved == part["position_ids"] + offset).all()


RUN = """
kind: Job
name: {name}
workers: {{count: 2}}
task: mlm
masking: {{whole_words: true}}
model: {{config: {{model_type: bert, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
                  num_attention_heads: 2, max_position_embeddings: 64, hidden_dropout_prob: 0.1,
                  attention_probs_dropout_prob: 0.1}}}}
tokenizer: {{train: {{vocab_size: 400}}}}
data: {{train: {data}, files: "*.py", sequence_length: 64}}
batch: {{sequences: 8}}
optimizer: {{learning_rate: 3.0e-3}}
schedule: {{kind: constant, warmup: 1}}
precision: fp32
checkpoint: {{every: 100}}
evaluate: {{sequences: 8}}
stop: {{steps: {steps}}}
"""


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path, ray_head, root):
    """Masks, and dropout, are those of the run in one piece."""
    import email
    import json
    import subprocess
    import sys
    from pathlib import Path

    def lines(name: str, steps: int) -> list[tuple[int, float, int]]:
        file = tmp_path / f"{name}.yaml"
        data = Path(email.__file__).parent
        file.write_text(RUN.format(name=name, steps=steps, data=data))
        command = [sys.executable, "-m", "raytrain_eks.train", str(file), "--storage", str(tmp_path / "runs")]
        done = subprocess.run(command, cwd=root, env=ray_head.env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        found = (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()
        return [(row["step"], row["loss"], row["tokens"]) for row in map(json.loads, found)]

    whole = lines("whole", 4)
    lines("halves", 2)
    assert lines("halves", 4) == whole
