"""Fine-tuning on chats: exactly the answers are learnt; what holds none is counted, and refused over a budget."""

import json
from pathlib import Path
from typing import Any

import pytest

from raytrain_eks.data.packing import IGNORED
from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.stream import Stream
from raytrain_eks.spec.problem import SpecError

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|eos|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('!')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "<|eos|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n<think>{% endif %}"
)


def messages(*turns: str) -> list[dict[str, str]]:
    """Turns of user and assistant alternately."""
    return [{"role": ("user", "assistant")[number % 2], "content": turn} for number, turn in enumerate(turns)]


CHATS = [
    messages("what is one and one", "two"),
    messages("say a word", "fox", "and another", "the lazy dog"),
    [{"role": "system", "content": "be brief"}, *messages("hello", "hello hello")],
]


@pytest.fixture
def chat_job(make_job, folder, tmp_path: Path):
    """A job for `sft` on these rows, with a tokenizer that has this template."""

    def make(rows: list[dict[str, Any]], template: str | None = TEMPLATE, **data: Any) -> Any:
        base = prepare(make_job(str(folder)), tmp_path / "base")
        tokenizer = base.tokenizer()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path / "tokenizer")
        (tmp_path / "chats").mkdir(exist_ok=True)
        (tmp_path / "chats" / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        top = {"task": "sft", "tokenizer": {"name": str(tmp_path / "tokenizer")}}
        fields = {"format": "jsonl", "held_out": "0%", "sequence_length": 256, "files": "*.jsonl", "bad_rows": "0%"}
        return make_job(str(tmp_path / "chats"), top=top, **(fields | data))

    return make


def learnt(prepared: Any) -> list[str]:
    """The texts that are learnt, one for each run of labels."""
    tokenizer, found = prepared.tokenizer(), []
    stream = Stream(prepared, seed=0, global_sequences=prepared.sequences, rank=0, world=1, micro=1)
    for made in stream.next().micro_batches:
        run: list[int] = []
        for label in [*made["labels"][0].tolist(), IGNORED]:
            if label != IGNORED:
                run.append(label)
            elif run:
                found.append(tokenizer.decode(run))
                run = []
    stream.close()
    return found


@pytest.mark.parametrize("pack", [True, False])
def test_the_answers_and_their_ends_are_learnt_and_nothing_else(chat_job, tmp_path, pack):
    prepared = prepare(chat_job([{"messages": chat} for chat in CHATS], pack=pack), tmp_path / "store")
    expected = ["two<|eos|>\n", "fox<|eos|>\n", "the lazy dog<|eos|>\n", "hello hello<|eos|>\n"]
    assert sorted(learnt(prepared)) == sorted(expected)
    assert prepared.sequences == (1 if pack else 3)
    assert prepared.train.counts.targets == sum(len(prepared.tokenizer()(text)["input_ids"]) - 1 for text in expected)


def test_a_template_that_rewrites_earlier_answers_still_trains_on_what_it_left(chat_job, tmp_path):
    chat = messages("say a word", "hm!fox", "and another", "hm!dog")
    prepared = prepare(
        chat_job([{"messages": chat}, {"messages": CHATS[0]}], FORGETFUL, bad_rows="50%"), tmp_path / "s"
    )
    assert prepared.train.counts.bad == 1
    assert "leaves out or rewrites an answer" in prepared.train.counts.problems[0]
    assert learnt(prepared) == ["two"]


def test_of_a_prompt_and_a_completion_the_completion_is_learnt(chat_job, tmp_path):
    rows = [{"prompt": "one and one is", "completion": " two"}, {"prompt": "", "completion": "fox"}]
    prepared = prepare(chat_job(rows, None), tmp_path / "store")
    assert sorted(learnt(prepared)) == [" two<|eos|>", "fox<|eos|>"]


def test_a_chat_without_an_answer_within_the_row_is_dropped_counted_and_refused_over_the_budget(chat_job, tmp_path):
    rows = [{"messages": chat} for chat in [*CHATS, messages("why " * 300, "because"), messages("hello")]]
    with pytest.raises(SpecError) as caught:
        prepare(chat_job(rows), tmp_path / "store")
    message = str(caught.value)
    assert "2 of 5 files and rows cannot be used (2 have no answer within the row)" in message
    assert "nothing to learn within the row" in message
    assert "raise data.sequence_length" in message
    counts = prepare(chat_job(rows, bad_rows="40%"), tmp_path / "store").train.counts
    assert (counts.documents, counts.masked, counts.truncated) == (5, 2, 1)


def test_messages_without_a_chat_template_are_refused(chat_job, tmp_path):
    with pytest.raises(SpecError, match="has no chat template"):
        prepare(chat_job([{"messages": CHATS[0]}], None), tmp_path / "store")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": []}, "messages is empty"),
        ({"messages": "hello"}, "messages is text, not a list of messages"),
        ({"messages": [{"role": "user"}]}, "message 0 of messages needs a text as its content"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "message 0 of messages needs a role: system"),
        ({"prompt": "x"}, "no column text; there is: prompt"),
    ],
)
def test_a_chat_of_another_shape_is_a_bad_row(chat_job, tmp_path, row, reason):
    with pytest.raises(SpecError) as caught:
        prepare(chat_job([{"messages": CHATS[0]}, row]), tmp_path / "store")
    assert reason in str(caught.value)
