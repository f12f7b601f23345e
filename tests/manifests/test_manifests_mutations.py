"""Each example is broken in more than fifty ways, and every one is caught: by file, plan, lint or schema.

The ways are data (mutations.yaml). Order and choice are fixed, so that a failure names the same mutation each time.
"""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from kube_schema import definitions_in

from raytrain_eks.cli import bundles
from raytrain_eks.cli.outcome import Failure
from raytrain_eks.lint import lint_objects
from raytrain_eks.lint.of_cluster import settings as settings_of
from raytrain_eks.spec.load import read_document
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.source import Document, read_documents

HERE = Path(__file__).resolve().parent
EXAMPLES = sorted((HERE.parents[1] / "cluster_specs").glob("*.yaml"))
[WAYS] = [found.data for found in read_documents((HERE / "mutations.yaml").read_text(), "mutations.yaml")]
AT_LEAST = 50
_NONE = object()


def steps_of(tree, path):
    """The path as keys and indices; None when only its last step may be missing and more is."""
    if isinstance(tree, list):
        head, _, rest = path.partition(".")
        index = int(head) if head.isdigit() else len(tree)
        if index >= len(tree):
            return None
        return [index] if not rest else _after(index, steps_of(tree[index], rest))
    if not isinstance(tree, dict):
        return None
    if path in tree:
        return [path]
    # Keys may hold dots themselves: the longest one that is there is meant.
    for key in sorted(tree, key=len, reverse=True):
        if path.startswith(f"{key}.") and (rest := steps_of(tree[key], path[len(key) + 1 :])) is not None:
            return [key, *rest]
    return [path] if "." not in path else None


def _after(step, rest):
    return None if rest is None else [step, *rest]


def get(tree, path):
    steps = steps_of(tree, path)
    for step in [None] if steps is None else steps:
        if (isinstance(tree, dict) and step in tree) or (isinstance(tree, list) and isinstance(step, int)):
            tree = tree[step]
        else:
            return _NONE
    return tree


def expanded(tree, path):
    """The paths that `*` stands for."""
    before, star, after = path.partition(".*")
    if not star:
        return [path]
    entries = get(tree, before)
    return [f"{before}.{index}{after}" for index in range(len(entries))] if isinstance(entries, list) else []


def mutated(tree, way, path):
    """A broken copy, or None where the way does not apply."""
    copy = deepcopy(tree)
    steps = steps_of(copy, path)
    if not steps:
        return None
    parent = copy
    for step in steps[:-1]:
        parent = parent[step]
    last = steps[-1]
    if "drop" in way:
        if not isinstance(parent, dict) or last not in parent:
            return None
        del parent[last]
    elif "copy" in way:
        parent.append(deepcopy(parent[last]))
    elif isinstance(parent, dict):
        parent[last] = way["to"]
    else:
        return None
    return None if copy == tree else copy


def paths(tree, way):
    path = way.get("set") or way.get("drop") or way.get("copy")
    for place in expanded(tree, path):
        index = place[len(path.partition(".*")[0]) + 1 :].partition(".")[0]
        needed = [need.replace("*", index) for need in way.get("needs", [])]
        if all(get(tree, need) is not _NONE for need in needed):
            yield place


def spec_mutations(data):
    for way in WAYS["spec"]:
        for path in paths(data, way):
            if (broken := mutated(data, way, path)) is not None:
                yield json.dumps(way), broken


def bundle_mutations(plan, bodies):
    for way in WAYS["bundle"]:
        for index, body in enumerate(bodies):
            name = plan.service_account if way.get("name") == "cluster" else body["metadata"]["name"]
            if body["kind"] != way["kind"] or body["metadata"]["name"] != name:
                continue
            if way.get("remove"):
                yield f"{json.dumps(way)} {name}", None, bodies[:index] + bodies[index + 1 :]
                continue
            for path in paths(body, way):
                if (broken := mutated(body, way, path)) is not None:
                    yield f"{json.dumps(way)} {name} {path}", broken, [*bodies[:index], broken, *bodies[index + 1 :]]


def is_spec_caught(document, broken):
    try:
        plan, bundle = bundles.from_document(Document(file=document.file, data=broken))
        bundles.refuse_what_cannot_run(plan, bundle)
    except (SpecError, Failure):
        return True
    return False


@pytest.mark.parametrize(
    "path",
    # The quick part breaks the one with the most kinds of objects.
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem != "mixed")) for path in EXAMPLES],
)
def test_every_mutation_is_caught(path, shared):
    document = read_document(path)
    plan, bundle = bundles.read(path)
    definitions = definitions_in(shared / "crds")
    settings = settings_of(plan)
    in_the_file = list(spec_mutations(document.data))
    afterwards = list(bundle_mutations(plan, bundle.bodies))
    assert len(in_the_file) + len(afterwards) >= AT_LEAST
    missed = [way for way, broken in in_the_file if not is_spec_caught(document, broken)]
    for way, body, bodies in afterwards:
        caught = body is not None and definitions.findings(body)
        if not caught and not lint_objects(bodies, settings):
            missed.append(way)
    assert missed == []


def test_the_same_mutations_each_time():
    data = read_document(EXAMPLES[0]).data
    assert [way for way, _ in spec_mutations(data)] == [way for way, _ in spec_mutations(deepcopy(data))]
