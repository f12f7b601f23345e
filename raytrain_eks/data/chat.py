"""Chats: from messages, or a prompt and its completion, to token ids and which of them are learnt.

Only answers are learnt: what the chat template writes for an assistant's message after the words that ask for it, its
end-of-turn token included. The whole chat is rendered and tokenised once, as at inference; which tokens lie within an
answer follows from their offsets in the rendered text.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from raytrain_eks.data import tokenizer
from raytrain_eks.data.columns import MESSAGES
from raytrain_eks.data.files import Place
from raytrain_eks.data.packing import Array
from raytrain_eks.spec.problem import Problem, SpecError

ANSWER = "assistant"


@lru_cache(maxsize=4)
def _transformers(url: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer.local_folder(Place.of(url)))


def check_template(url: str) -> None:
    """Raises SpecError where the tokenizer has no chat template."""
    if not _transformers(url).chat_template:
        fix = "name a tokenizer that has one, add chat_template.jinja to its folder, or use prompt and completion"
        raise SpecError([Problem(path="tokenizer", rule="has no chat template, which messages need", fix=fix)])


def encode(url: str, content: Mapping[str, Any]) -> tuple[Array, Array]:
    """(ids [n] int64, learnt [n] bool) of one chat. Raises ValueError with the reason where that cannot be done."""
    if MESSAGES in content:
        return _messages(url, content[MESSAGES])
    prompt, completion = content["prompt"], content["completion"]
    ids, learnt = _tokenised(url, prompt + completion, [(len(prompt), len(prompt) + len(completion))], special=True)
    end = tokenizer.special(url)[0]
    if not len(ids) or ids[-1] != end:
        ids, learnt = np.append(ids, end), np.append(learnt, bool(completion))
    learnt[-1] = bool(completion)
    return ids, learnt


def _messages(url: str, messages: list[dict[str, str]]) -> tuple[Array, Array]:
    whole = _render(url, messages)
    spans = []
    for number, message in enumerate(messages):
        if message["role"] == ANSWER:
            before = _render(url, messages[:number], asked=True)
            after = _render(url, messages[: number + 1])
            if after.startswith(before) and whole.startswith(after.rstrip()):
                spans.append((len(before), len(after)))
            else:
                spans.append(_found(whole, message["content"], spans[-1][1] if spans else 0))
    return _tokenised(url, whole, spans, special=False)


def _found(whole: str, content: str, start: int) -> tuple[int, int]:
    """Where a template that rewrites earlier turns left the content of an answer."""
    at = whole.find(content.strip(), start)
    if at < 0:
        raise ValueError("the chat template leaves out or rewrites an answer, so it cannot be found in the text")
    return at, at + len(content.strip())


def _render(url: str, messages: list[dict[str, str]], *, asked: bool = False) -> str:
    from jinja2 import TemplateError

    try:
        return str(_transformers(url).apply_chat_template(messages, tokenize=False, add_generation_prompt=asked))
    except TemplateError as error:
        raise ValueError(f"the chat template refuses it: {error}") from None


def _tokenised(url: str, text: str, spans: list[tuple[int, int]], *, special: bool) -> tuple[Array, Array]:
    """Ids of a text, and which tokens begin within one of the spans (of characters)."""
    encoded = _transformers(url)(text, add_special_tokens=special, return_offsets_mapping=True, truncation=False)
    ids = np.array(encoded["input_ids"], dtype=np.int64)
    offsets = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    learnt = np.zeros(len(ids), dtype=bool)
    for start, stop in spans:
        learnt |= (offsets[:, 1] > max(start, 0)) & (offsets[:, 0] < stop) & (offsets[:, 1] > offsets[:, 0])
    return ids, learnt
