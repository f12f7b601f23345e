"""Differences by meaning: what is equal, what is not, and where it is said to be."""

import random
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.manifests.compare import bundles, trees


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"resources": {"limits": {"memory": "1024Mi"}}}, {"resources": {"limits": {"memory": "1Gi"}}}),
        ({"resources": {"limits": {"nvidia.com/gpu": 8}}}, {"resources": {"limits": {"nvidia.com/gpu": "8"}}}),
        ({"emptyDir": {"sizeLimit": "1.5Gi"}}, {"emptyDir": {"sizeLimit": "1536Mi"}}),
        ({"cpu": "500m"}, {"cpu": 0.5}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"values": ["us-west-2a", "us-west-2b"]}, {"values": ["us-west-2b", "us-west-2a"]}),
        ({"taints": [{"key": "a"}, {"key": "b"}]}, {"taints": [{"key": "b"}, {"key": "a"}]}),
        ({"env": [{"name": "A", "value": "1"}, {"name": "B"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}),
        ({"terms": [{"tags": {"x": "1"}}, {"id": "2"}]}, {"terms": [{"id": "2"}, {"tags": {"x": "1"}}]}),
    ],
)
def test_equal_by_meaning(old, new):
    assert trees(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "path", "verb"),
    [
        ({"memory": "1Gi"}, {"memory": "1G"}, "memory", "changed"),
        (
            {"env": [{"name": "A", "value": "1024Mi"}]},
            {"env": [{"name": "A", "value": "1Gi"}]},
            "env.A.value",
            "changed",
        ),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": 1}]}, "env.A.value", "changed"),
        ({"command": ["a", "b"]}, {"command": ["b", "a"]}, "command", "changed"),
        (
            {"containers": [{"name": "ray"}, {"name": "log"}]},
            {"containers": [{"name": "log"}, {"name": "ray"}]},
            "containers",
            "reordered",
        ),
        (
            {"env": [{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)"}]},
            {"env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "x"}]},
            "env",
            "reordered",
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": []}, "tolerations.a", "removed"),
        ({"values": ["a"]}, {"values": ["a", "a"]}, "values", "changed"),
        ({"x": None}, {}, "x", "removed"),
        ({"hostNetwork": True}, {"hostNetwork": 1}, "hostNetwork", "changed"),
    ],
)
def test_different_by_meaning(old, new, path, verb):
    [change] = trees(old, new)
    assert (change.path, change.verb) == (path, verb)


def test_objects_are_matched_by_group_kind_namespace_and_name():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "x"}}
    other = {**claim, "metadata": {"name": "a", "namespace": "y"}}
    newer = {**claim, "apiVersion": "v1", "spec": {"accessModes": ["ReadWriteMany"]}}
    changes = bundles([claim], [other, newer])
    assert [(change.subject, change.path, change.verb) for change in changes] == [
        ("PersistentVolumeClaim/y/a", "", "added"),
        ("PersistentVolumeClaim/x/a", "spec", "added"),
    ]
    assert [change.verb for change in bundles([other, newer], [claim])] == ["removed", "removed"]


_scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("abc1Gi.", max_size=4))
_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["cpu", "limits", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def _shuffled(tree, chance):
    if isinstance(tree, dict):
        items = [(key, _shuffled(value, chance)) for key, value in tree.items()]
        chance.shuffle(items)
        return dict(items)
    return [_shuffled(item, chance) for item in tree] if isinstance(tree, list) else tree


@given(_trees, st.integers(0, 9))
def test_a_tree_equals_its_copy_with_its_keys_in_another_order(tree, seed):
    assert trees(tree, _shuffled(deepcopy(tree), random.Random(seed))) == []


@given(_trees, _trees)
def test_there_is_a_difference_one_way_exactly_when_there_is_one_the_other_way(old, new):
    assert bool(trees(old, new)) == bool(trees(new, old))
