"""A small valid job as plain data, for the tests of this folder."""

import copy
from typing import Any

MINIMAL: dict[str, Any] = {
    "kind": "Job",
    "name": "first",
    "model": {"config": {"model_type": "llama"}},
    "tokenizer": {"train": {"vocab_size": 1000}},
    "data": {"train": "text", "sequence_length": 256},
    "batch": {"tokens": 4096},
    "optimizer": {"learning_rate": 0.001},
    "stop": {"steps": 10},
}


def job(**changes: Any) -> dict[str, Any]:
    """MINIMAL with changes by dotted path (`data__train`); None takes the field out."""
    made = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        *above, last = path.split("__")
        node = made
        for word in above:
            node = node.setdefault(word, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return made
