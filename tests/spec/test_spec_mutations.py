"""Laws: whatever is done to a good file, reading it gives a model or SpecError with places inside the file."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from raytrain_eks.spec.check import single
from raytrain_eks.spec.load import of_document, text_of
from raytrain_eks.spec.model import Model
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.source import read_documents
from raytrain_eks.spec.yaml_nodes import LINE_BREAK

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("jobs/*.yaml"), *ROOT.glob("cluster_specs/*.yaml")])
KINDS = {"Job", "Cluster"}
TEXTS = {path: path.read_text() for path in FILES if any(f"kind: {kind}\n" in path.read_text() for kind in KINDS)}

# No shrinking: it takes minutes on whole files, and the failing file is printed as it is.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
quick = settings(max_examples=150, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
files = st.sampled_from(sorted(TEXTS.values()))
SNIPPETS = [
    "\t",
    ": ",
    "- ",
    "*",
    "&a ",
    "*a",
    "!x ",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    "#",
    "\n",
    "\n\n",
    "---\n",
    "<<: ",
    "|",
    ">",
]
SNIPPETS += [
    "~",
    "yes",
    "1e999",
    "0x",
    "\\",
    "\r",
    "\x85",
    "\u2028",
    "\ufeff",
    "é",
    "%",
    "@",
    "`",
    "? ",
    ",",
    "null",
    "-1",
]
snippets = st.sampled_from(SNIPPETS) | st.text(max_size=3)


def read(content: bytes) -> Any:
    """The model, or None after checking what the error says about places."""
    try:
        text = text_of(content, "f.yaml")
        found = of_document(single(read_documents(text, "f.yaml", lenient=True), "f.yaml"))
    except SpecError as error:
        assert error.problems  # noqa: PT017 (a model is fine as well)
        lines = LINE_BREAK.split(content.decode("utf-8", "replace").removeprefix("\ufeff"))
        for problem in error.problems:
            assert problem.rule
            if problem.line is not None:
                assert 1 <= problem.line <= len(lines)
                assert problem.column is None or 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        str(error).encode()
        return None
    assert isinstance(found, Model)
    return found


@quick
@given(text=files, edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), snippets), max_size=4))
def test_edited_texts(text, edits):
    for where, removed, inserted in edits:
        at = int(where * len(text))
        text = text[:at] + inserted + text[at + removed :]
    read(text.encode("utf-8", "replace"))


@quick
@given(text=files, where=st.floats(0, 1), noise=st.binary(max_size=4))
def test_edited_bytes(text, where, noise):
    content = text.encode()
    at = int(where * len(content))
    read(content[:at] + noise + content[at + len(noise) :])


@quick
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_at_all(content):
    read(content)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["3%", "15m", "1Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def paths(data: Any, at: tuple = ()) -> list[tuple]:
    found = [at] if at else []
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else []
    for key, value in entries:
        found += paths(value, (*at, key))
    return found


@pytest.mark.slow
@quick
@given(text=files, data=st.data())
def test_replaced_values(text, data):
    """Structured damage: any value at any place, any key renamed or left out; written as JSON, which is YAML."""
    (document,) = read_documents(text, "f.yaml")
    tree = copy.deepcopy(document.data)
    for _ in range(data.draw(st.integers(1, 3))):
        if not (all_paths := paths(tree)):
            break
        *above, last = data.draw(st.sampled_from(all_paths))
        node = tree
        for step in above:
            node = node[step]
        action = data.draw(st.sampled_from(["replace", "remove", "rename"]))
        if action == "replace":
            node[last] = data.draw(values)
        elif action == "remove" or isinstance(node, list):
            del node[last]
        else:
            node[data.draw(st.text(max_size=8))] = node.pop(last)
    written = json.dumps(tree, indent=1).replace("Infinity", ".inf").replace("NaN", ".nan")
    model = read(written.encode())
    if model is not None:
        assert model == type(model).parse(tree)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_examples_themselves_are_valid(path):
    if path in TEXTS:
        assert read(path.read_bytes()) is not None
