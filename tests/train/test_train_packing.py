"""Documents that share a row neither see nor train each other: packed logits, losses and gradients are the unpacked
ones, on every attention path that the engines use, for causal models and for masked ones."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.data.packing import IGNORED, batch, pack
from raytrain_eks.train.engines.common import TensorEngine
from raytrain_eks.train.masking import Masking, position_offset
from raytrain_eks.train.sizes import shrunk

pytestmark = pytest.mark.slow

LENGTH, VOCABULARY = 24, 97
CAUSAL = ("llama", "qwen2", "qwen3", "mistral", "gpt2")
MASKED = ("bert", "roberta")
PATHS = [(family, attention) for family in ("llama", "qwen3", "gpt2", "bert") for attention in ("sdpa", "eager")]
ALL_PATHS = [(family, attention) for family in (*CAUSAL, *MASKED) for attention in ("sdpa", "eager")]


class Bare(TensorEngine):
    """An engine's forward pass and nothing else."""

    def __init__(self, model, *, causal: bool, eager: bool):
        self.device, self.autocast, self.rank = torch.device("cpu"), False, 0
        self.model, self.causal, self.additive_masks = model, causal, eager

    def loss(self, rows) -> torch.Tensor:
        return self.forward(self.model, self.put(rows))

    def logits(self, rows) -> torch.Tensor:
        given = self.put(rows)
        mask = self.mask(given["segment_ids"]) if "segment_ids" in given else None
        return self.model(
            input_ids=given["input_ids"], attention_mask=mask, position_ids=given["position_ids"], use_cache=False
        ).logits


@cache
def bare(family: str, attention: str) -> Bare:
    from transformers import AutoConfig

    from raytrain_eks.train.model import model_class

    given = shrunk(AutoConfig.for_model(family).to_dict(), positions=32, vocabulary=VOCABULARY)
    config = AutoConfig.for_model(family, **given, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    torch.manual_seed(0)
    kind = model_class("mlm" if family in MASKED else "pretrain")
    model = kind.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()
    assert model.config._attn_implementation == attention
    return Bare(model, causal=family not in MASKED, eager=attention == "eager")


def rows_of(family: str, lengths: list[int], *, together: bool):
    """The rows of these documents, packed or each by itself; of masked models with some tokens hidden."""
    draw = np.random.default_rng(0)
    documents = [draw.integers(5, VOCABULARY, length) for length in lengths]
    sizes = np.ones(VOCABULARY, np.int32)
    packed = pack(documents, length=LENGTH, pad=0, token_bytes=sizes, together=together)
    made = batch([(packed, index) for index in range(len(packed))], length=LENGTH, pad=0)
    if family in MASKED:
        made["labels"] = np.where((made["segment_ids"] > 0) & (made["input_ids"] % 3 == 0), made["input_ids"], IGNORED)
        made["input_ids"] = np.where(made["labels"] != IGNORED, 3, made["input_ids"])
        made["position_ids"] = made["position_ids"] + position_offset(bare(family, "sdpa").model)
    return made


def by_document(rows, logits):
    """Logits of each document, by its tokens; equal documents have equal ones."""
    found = {}
    for row in range(len(logits)):
        for number in range(1, int(rows["segment_ids"][row].max()) + 1):
            here = rows["segment_ids"][row] == number
            found.setdefault(tuple(rows["input_ids"][row][here].tolist()), logits[row][torch.as_tensor(here)])
    return found


@pytest.mark.parametrize(("family", "attention"), PATHS)
@pytest.mark.parametrize("lengths", [[10, 14], [1, 2, 24, 3, 7, 11]])
def test_packed_is_unpacked(family, attention, lengths):
    same_packed_as_alone(family, attention, lengths)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "attention"), ALL_PATHS)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, LENGTH), min_size=2, max_size=9))
def test_any_documents_packed_are_as_unpacked(family, attention, lengths):
    same_packed_as_alone(family, attention, lengths)


def same_packed_as_alone(family, attention, lengths):
    engine = bare(family, attention)
    packed, single = (rows_of(family, lengths, together=together) for together in (True, False))
    with torch.no_grad():
        together, apart = (by_document(rows, engine.logits(rows)) for rows in (packed, single))
        assert together.keys() == apart.keys()
        for tokens, logits in together.items():
            torch.testing.assert_close(logits, apart[tokens], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(engine.loss(packed), engine.loss(single), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("family", "attention"), PATHS)
def test_packed_gradients_are_the_unpacked_ones(family, attention):
    engine = bare(family, attention)
    found = []
    for together in (True, False):
        engine.model.zero_grad()
        engine.loss(rows_of(family, [5, 9, 3, 24, 7, 11, 2], together=together)).backward()
        found.append({name: weight.grad.clone() for name, weight in engine.model.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize(("family", "attention"), PATHS)
def test_a_boundary_is_not_crossed(family, attention):
    """Another first document leaves the second one's loss as it is."""
    engine = bare(family, attention)
    rows = rows_of(family, [10, 14], together=True)
    assert len(rows["labels"]) == 1
    second = rows["segment_ids"] == 2
    losses = []
    with torch.no_grad():
        for _ in range(2):
            only = rows | {"labels": np.where(second, rows["labels"], IGNORED)}
            losses.append(float(engine.loss(only)))
            rows = rows | {"input_ids": np.where(second, rows["input_ids"], (rows["input_ids"] + 41) % 90 + 5)}
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0] > 0


def test_whole_rows_take_the_models_own_mask():
    engine = bare("llama", "sdpa")
    assert "segment_ids" not in engine.put(rows_of("llama", [LENGTH, LENGTH], together=True))
    assert "segment_ids" in engine.put(rows_of("llama", [LENGTH, LENGTH - 1], together=True))


def test_a_mask_of_truth_values_would_hide_nothing_from_eager_attention():
    """Why masks become numbers there: without that, documents see each other, and nothing fails."""
    engine = Bare(bare("llama", "eager").model, causal=True, eager=False)
    packed, single = (rows_of("llama", [10, 14], together=together) for together in (True, False))
    with torch.no_grad():
        together, apart = (by_document(rows, engine.logits(rows)) for rows in (packed, single))
    worst = max(float((logits - apart[tokens]).abs().max()) for tokens, logits in together.items())
    assert worst > 1e-2


def test_masking_comes_after_packing():
    """Positions that begin elsewhere, and labels of hidden tokens, go through the same forward pass."""
    engine = bare("roberta", "sdpa")
    special = np.zeros(VOCABULARY, dtype=bool)
    special[:5] = True
    masking = Masking(
        seed=0,
        share=0.3,
        mask=3,
        special=special,
        ordinary=np.flatnonzero(~special),
        words=None,
        rank=0,
        world=1,
        offset=position_offset(engine.model),
    )
    draw = np.random.default_rng(1)
    packed = pack(
        [draw.integers(5, VOCABULARY, size) for size in (9, 8, 7)],
        length=LENGTH,
        pad=0,
        token_bytes=np.ones(VOCABULARY, np.int32),
    )
    rows = masking.batch(batch([(packed, 0)], length=LENGTH, pad=0), [(0, 0, 0)])
    with torch.no_grad():
        loss = float(engine.loss(rows))
    hidden = int((rows["labels"] != IGNORED).sum())
    assert hidden == round(0.3 * 24)
    assert 0.5 * np.log(VOCABULARY) < loss / hidden < 2 * np.log(VOCABULARY)
