"""The tokenizer of a job: trained on its training text, or taken from a folder or a name; always saved beside the data.

Reading and packing use Hugging Face's `tokenizers` alone, which loads in milliseconds; the saved folder opens with
`transformers.AutoTokenizer`.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.corpus import Corpus, Unit
from raytrain_eks.data.files import Place
from raytrain_eks.data.readers import Document
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job, TrainTokenizer
from raytrain_eks.spec.problem import Problem, SpecError

BEGIN, END, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
"""Special tokens of a tokenizer that is trained here; their text in a document is read as ordinary text."""
MASK = "<|mask|>"
"""One more where masked tokens are what is learnt."""
CHAT = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""The chat template of a tokenizer that is trained on chats."""

FILES = ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "chat_template", "spiece", "sentencepiece")
"""Beginnings of the names of the files that make a tokenizer's folder."""


def identity(job: Job) -> dict[str, Any]:
    """What the prepared data depends on: how it is trained, or the content of its folder, or its name on the hub."""
    if job.tokenizer is not None and job.tokenizer.train is not None:
        train = job.tokenizer.train
        made = {"train": "byte-level BPE 1", "vocab_size": train.vocab_size, "sample": quantity.count(train.sample)}
        also = {"mlm": {"mask": MASK}, "sft": {"chat": CHAT}}
        return made | also.get(job.task, {})
    name = source(job)
    if not Path(name).is_dir():
        return {"name": name}
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(name).iterdir()):
        if file.name.startswith(FILES) and file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return {"content": digest.hexdigest()}


def source(job: Job) -> str:
    """The folder or name that the tokenizer comes from: its own, or the model's."""
    if job.tokenizer is not None and job.tokenizer.name is not None:
        return job.tokenizer.name
    assert job.model.name is not None, "a model from a config needs a tokenizer; the job's own check says so"
    return job.model.name


def make(job: Job, corpus: Corpus, folder: Place) -> None:
    """Write the job's tokenizer into `folder`; `tokenizer.json` comes last and says that it is complete.

    Raises SpecError where there is no text to train on, or where the named one cannot be opened.
    """
    if job.tokenizer is not None and job.tokenizer.train is not None:
        how = job.tokenizer.train
        text = sample(corpus.train, job, quantity.count(how.sample))
        trained = train(how, text, special=(MASK,) if job.task == "mlm" else ())
        _write(folder, {"tokenizer_config.json": _config(job), "tokenizer.json": trained.to_str()})
    else:
        _write(folder, _opened(job))


def _opened(job: Job) -> dict[str, str]:
    """The files of a tokenizer that exists, as transformers writes them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    name, where = source(job), "tokenizer.name" if job.tokenizer is not None else "model.name"
    try:
        opened = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        fix = "name a folder with a tokenizer.json, or a model on the hub; or train one: tokenizer: {train: {...}}"
        rule = f"no tokenizer can be opened there: {str(error).splitlines()[0]}"
        raise SpecError([Problem(path=where, value=name, rule=rule, fix=fix)]) from None
    if not opened.is_fast:
        fix = "convert it: save a tokenizer.json beside it"
        raise SpecError(
            [Problem(path=where, value=name, rule="has no tokenizer.json and cannot be converted", fix=fix)]
        )
    if (opened.eos_token or opened.sep_token) is None:
        rule = "the tokenizer has no end-of-sequence token, which ends every document"
        raise SpecError([Problem(path=where, value=name, rule=rule, fix="set eos_token in its folder")])
    if opened.pad_token_id is None:
        opened.pad_token = opened.eos_token or opened.sep_token
    with tempfile.TemporaryDirectory() as temporary:
        opened.save_pretrained(temporary)
        return {file.name: file.read_text("utf-8") for file in Path(temporary).iterdir() if file.is_file()}


def _write(folder: Place, texts: dict[str, str]) -> None:
    for name in sorted(texts, key=lambda name: name == "tokenizer.json"):
        folder.child(name).write(texts[name].encode())


def _config(job: Job) -> str:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": (job.model.config or {}).get("max_position_embeddings", job.data.sequence_length),
        "clean_up_tokenization_spaces": False,
    }
    also = {"mlm": {"mask_token": MASK}, "sft": {"chat_template": CHAT}}
    return json.dumps(config | also.get(job.task, {}), indent=2)


def train(how: TrainTokenizer, texts: Iterable[str], *, special: Iterable[str] = ()) -> Any:
    """A byte-level BPE tokenizer (Radford et al. 2019) of `vocab_size` entries; no text is unknown to it.

    It puts BEGIN before a text; END is put after a document by the packing, since a prompt has no end. `special` are
    further special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=how.vocab_size,
        special_tokens=[BEGIN, END, PAD, *special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        tokenizer.train_from_iterator(texts, trainer)
    finally:
        os.environ.pop("TOKENIZERS_PARALLELISM")
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, begin)])
    return tokenizer


def sample(units: Iterable[Unit], job: Job, limit: int) -> Iterator[str]:
    """Texts of the training units, about `limit` bytes, taken evenly over all spans of all units."""
    spans = [(unit, span) for unit in units for span in unit.spans]
    part = min(limit / max(sum(span.bytes for _, span in spans), 1), 1.0)
    columns = Columns.of(job)
    taken, due = 0, 0.0
    for unit, span in spans:
        due += span.bytes * part
        if taken >= due:
            continue
        for document in replace(unit, spans=(span,)).documents(job.data.format, columns):
            if isinstance(document, Document):
                yield from texts(document.content)
        taken += span.bytes


def texts(content: object) -> Iterator[str]:
    """All strings within the content of a document."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            if key != "role":
                yield from texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from texts(value)


@lru_cache(maxsize=4)
def load(url: str) -> Any:
    """The `tokenizers.Tokenizer` of a saved folder; special tokens within a text are read as ordinary text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(Place.of(url).child("tokenizer.json").read().decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


@lru_cache(maxsize=4)
def special(url: str) -> tuple[int, int]:
    """(id that ends a document, padding id) of a saved folder: BERT's `[SEP]` where there is no end of sequence."""
    config = json.loads(Place.of(url).child("tokenizer_config.json").read())
    tokenizer = load(url)

    def of(key: str) -> int:
        entry = config[key]
        return int(tokenizer.token_to_id(entry["content"] if isinstance(entry, dict) else entry))

    return of("eos_token" if config.get("eos_token") else "sep_token"), of("pad_token")


@lru_cache(maxsize=4)
def token_bytes(url: str) -> "np.ndarray[Any, np.dtype[np.int32]]":
    """[vocabulary] int32: UTF-8 bytes of text behind each token id, 0 for special tokens.

    Exact for byte-level BPE, where each character of a token stands for one byte (GPT-2's alphabet), and for
    SentencePiece's pieces (`<0x0A>` is one byte, `▁` a space); for WordPiece the continuation's `##` is left out.
    """
    tokenizer = load(url)
    model = json.loads(tokenizer.to_str())
    byte_level = '"ByteLevel"' in json.dumps([model["pre_tokenizer"], model["decoder"]])
    wordpiece = model["model"].get("type") == "WordPiece"
    sizes = np.zeros(tokenizer.get_vocab_size(with_added_tokens=True), dtype=np.int32)
    added = {entry["id"]: entry for entry in model["added_tokens"]}
    for text, number in tokenizer.get_vocab(with_added_tokens=True).items():
        if number >= len(sizes):
            sizes = np.concatenate([sizes, np.zeros(number + 1 - len(sizes), np.int32)])
        if number in added:
            sizes[number] = 0 if added[number]["special"] else len(text.encode())
        elif byte_level:
            sizes[number] = len(text)
        elif text.startswith("<0x") and len(text) == 6:
            sizes[number] = 1
        else:
            plain = text.removeprefix("##") if wordpiece else text.replace("▁", " ")
            sizes[number] = len(plain.encode())
    return sizes


def local_folder(place: Place) -> str:
    """A local copy of a saved tokenizer's folder: itself, or for S3 a folder of this user's cache."""
    if not place.remote:
        return place.url
    local = Path.home() / ".cache" / "raytrain-eks" / "tokenizers" / hashlib.sha256(place.url.encode()).hexdigest()[:16]
    for info in place.walk():
        name = place.relative(info)
        Place.of(local / name).write(place.child(name).read())
    return str(local)
