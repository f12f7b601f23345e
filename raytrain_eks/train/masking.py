"""Dynamic masking for masked language models (Devlin et al. 2019), a pure function of the seed and the place of a row.

What is masked of a row depends on the job's seed, the optimizer step and the row's number in the global batch, and on
nothing else: a resumed run, and a run on any number of workers, hides the same tokens, and every epoch hides others.
Of the chosen tokens 80% become the mask token, 10% a random one, 10% stay; the model has to give all of them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raytrain_eks.data.packing import IGNORED, Array, Batch
from raytrain_eks.data.stream import Evaluation, Step
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

Reduce = Callable[..., list[float]]
"""Sums over all ranks."""
HIDDEN, SWAPPED = 0.8, 0.9
"""Bounds of a number in [0, 1) below which a chosen token becomes the mask token, or a random one."""
TRAINING, EVALUATION = 0, 1
"""What the masks are for; part of what they are drawn from."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """Which tokens belong to one word."""

    joins: Array
    """[vocabulary] bool: may go on with the word of the token before it."""
    ends: Array
    """[vocabulary] bool: a word may go on after it."""

    @classmethod
    def of(cls, tokenizer: Any) -> "Words":
        """The words of a tokenizer: WordPiece marks what goes on with `##`; byte-level BPE and SentencePiece mark what
        begins with a space, and a word there is a run of letters, digits and bytes beyond ASCII."""
        texts = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = np.zeros(len(texts), dtype=bool)
        special[sorted(set(tokenizer.all_special_ids))] = True
        if json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("type") == "WordPiece":
            joins = np.array([text.startswith("##") for text in texts])
            ends = np.ones(len(texts), dtype=bool)
        else:
            joins = np.array([_in_word(text[:1]) for text in texts])
            ends = np.array([_in_word(text[-1:]) for text in texts])
        return cls(joins=joins & ~special, ends=ends & ~special)


def _in_word(letter: str) -> bool:
    """Whether a character of a token's spelling stands for a letter, a digit or a byte beyond ASCII.

    GPT-2's alphabet writes printable bytes as themselves, and the others as U+0100 and up: the space is U+0120.
    """
    if not letter or letter in "▁\u0120":
        return False
    code = ord(letter)
    if 0x100 <= code < 0x121 or code == 0x121:
        return False  # control characters, space and DEL
    return letter.isalnum() or code >= 0x80


@dataclass(frozen=True, kw_only=True)
class Masking:
    """What is hidden of the rows of one rank."""

    seed: int
    share: float
    """Of the tokens of a row, special tokens and padding not counted; rounded, at least one."""
    mask: int
    """The mask token's id."""
    special: Array
    """[vocabulary] bool: tokens that are never hidden."""
    ordinary: Array
    """Ids that a token may be swapped for."""
    words: Words | None
    """None: tokens are chosen one by one."""
    rank: int
    world: int
    """Among the ranks that have rows of their own."""
    offset: int = 0
    """Added to position ids; some families count from the padding id on (`position_offset`)."""

    @classmethod
    def of(cls, job: Job, tokenizer: Any, *, rank: int, world: int, offset: int = 0) -> "Masking":
        """The masking of a job. Raises SpecError for a tokenizer without a mask token."""
        if tokenizer.mask_token_id is None:
            fix = "name a tokenizer that has one, such as BERT's, or train one with `tokenizer: {train: ...}`"
            raise SpecError([Problem(path="tokenizer", rule="`task: mlm` needs a mask token, this has none", fix=fix)])
        special = np.zeros(len(tokenizer), dtype=bool)
        special[sorted(set(tokenizer.all_special_ids))] = True
        return cls(
            seed=job.seed,
            share=float(quantity.share(job.masking.share)),
            mask=int(tokenizer.mask_token_id),
            special=special,
            ordinary=np.flatnonzero(~special),
            words=Words.of(tokenizer) if job.masking.whole_words else None,
            rank=rank,
            world=world,
            offset=offset,
        )

    def of_step(self, drawn: Step, number: int, reduce: Reduce) -> Step:
        """The step's rows with tokens hidden; its targets are the hidden tokens of the whole global batch."""
        masked = self._batches(drawn.micro_batches, (TRAINING, number))
        return replace(drawn, micro_batches=masked, targets=self._count(masked, reduce))

    def of_evaluation(self, held_out: Evaluation, reduce: Reduce) -> Evaluation:
        """Held-out rows, always masked alike. Bits per byte have no meaning here: there are no bytes."""
        masked = self._batches(held_out.batches, (EVALUATION, 0))
        return replace(held_out, batches=masked, targets=self._count(masked, reduce), bytes=0)

    def _count(self, batches: Sequence[Batch], reduce: Reduce) -> int:
        (total,) = reduce(float(sum(int((batch["labels"] != IGNORED).sum()) for batch in batches)))
        return round(total)

    def _batches(self, batches: Sequence[Batch], use: tuple[int, int]) -> list[Batch]:
        done: list[Batch] = []
        rows = 0
        for batch in batches:
            count = len(batch["input_ids"])
            # Rank r of w has rows r, r + w, r + 2w, ... of the global batch.
            places = [self.rank + self.world * (rows + row) for row in range(count)]
            done.append(self.batch(batch, [(*use, place) for place in places]))
            rows += count
        return done

    def batch(self, batch: Batch, places: Sequence[tuple[int, int, int]]) -> Batch:
        """A masked copy of a batch; `places` has (use, step, number in the global batch) of each of its rows."""
        ids, labels = batch["input_ids"].copy(), np.full_like(batch["labels"], IGNORED)
        for row, place in enumerate(places):
            chosen = self._chosen(ids[row], batch["segment_ids"][row], place)
            labels[row, chosen] = ids[row, chosen]
            ids[row, chosen] = self._hidden(ids[row, chosen], place)
        positions = batch["position_ids"] + self.offset if self.offset else batch["position_ids"]
        return batch | {"input_ids": ids, "labels": labels, "position_ids": positions}

    def _chosen(self, ids: Array, segments: Array, place: tuple[int, int, int]) -> Array:
        """Positions of a row that are hidden, ascending."""
        candidates = (segments > 0) & ~self.special[ids]
        count = int(candidates.sum())
        if not count:
            return np.zeros(0, dtype=np.int64)
        begins = np.ones(len(ids), dtype=bool)
        if self.words is not None:
            same = (segments[1:] == segments[:-1]) & candidates[1:] & candidates[:-1]
            begins[1:] = ~(same & self.words.joins[ids[1:]] & self.words.ends[ids[:-1]])
        word = np.cumsum(begins) - 1
        sizes = np.bincount(word[candidates], minlength=word[-1] + 1)
        order = np.argsort(_random(self.seed, place, 0).random(len(sizes)), kind="stable")
        order = order[sizes[order] > 0]
        # Words in random order as long as they do not exceed the share, the first in any case.
        taken = np.cumsum(sizes[order]) <= max(round(self.share * count), 1)
        taken[0] = True
        chosen = np.zeros(len(sizes), dtype=bool)
        chosen[order[taken]] = True
        return np.flatnonzero(candidates & chosen[word])

    def _hidden(self, ids: Array, place: tuple[int, int, int]) -> Array:
        """What stands in the place of chosen tokens."""
        draw = _random(self.seed, place, 1).random((2, len(ids)))
        swapped = self.ordinary[(draw[1] * len(self.ordinary)).astype(np.int64)]
        return np.where(draw[0] < HIDDEN, self.mask, np.where(draw[0] < SWAPPED, swapped, ids))


def _random(seed: int, place: tuple[int, int, int], number: int) -> np.random.Generator:
    """A generator of its own for each seed, place and `number`: Philox is keyed, so none overlaps another."""
    use, step, row = place
    return np.random.Generator(np.random.Philox(key=[seed | use << 32 | number << 40, step << 32 | row]))


def position_offset(model: Any) -> int:
    """What the first position of a text is called. RoBERTa's family counts from the padding id + 1 on, which it has as
    `padding_idx` of its position embeddings; all others count from 0."""
    embeddings = getattr(getattr(model, "base_model", model), "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1
