"""Server-side apply in the double: who owns what, conflicts and their owners, what goes when it is applied no more."""

import json

import pytest
from double import kinds, managed
from double.asking import ask
from double.bodies import config_map, pod, ray_job
from double.refusal import Refusal
from hypothesis import given
from hypothesis import strategies as st

CORE = "/api/v1/namespaces/training"


def owned(body, manager):
    return next((entry["fieldsV1"] for entry in body["metadata"]["managedFields"] if entry["manager"] == manager), None)


def test_what_is_applied_is_owned(api):
    body = api.objects.apply(config_map(a="1", b="2"), manager="us")
    [entry] = body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("us", "Apply", "v1")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}


def test_what_is_applied_no_more_goes(api):
    api.objects.apply(config_map(a="1", b="2"), manager="us")
    assert api.objects.apply(config_map(a="1"), manager="us")["data"] == {"a": "1"}


def test_what_others_own_stays(api):
    api.objects.apply(config_map(a="1", b="2"), manager="us")
    api.objects.apply(config_map(b="2", c="3"), manager="them")
    body = api.objects.apply(config_map(a="1"), manager="us")
    assert body["data"] == {"a": "1", "b": "2", "c": "3"}
    assert owned(body, "them") == {"f:data": {"f:b": {}, "f:c": {}}}


def test_applying_twice_changes_nothing(api):
    first = api.objects.apply(ray_job(), manager="us")
    assert api.objects.apply(ray_job(), manager="us") == first


def test_a_conflict_names_owner_and_field(api):
    api.objects.apply(config_map(a="1"), manager="them")
    path = f"{CORE}/configmaps/settings?fieldManager=us"
    status, answer, _ = ask(api, "PATCH", path, config_map(a="2"), content="application/apply-patch+yaml")
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == 'Apply failed with 1 conflict: conflict with "them": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "them"', "field": ".data.a"}
    assert answer["details"]["causes"] == [cause]


def test_conflicts_with_several_are_told_together(api):
    api.objects.apply(config_map(a="1", b="1"), manager="them")
    api.objects.patch(api.objects.get("configmaps", "settings"), {"data": {"c": "1"}}, manager="kubectl-edit")
    with pytest.raises(Refusal) as caught:
        api.objects.apply(config_map(a="2", b="2", c="2"), manager="us")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith('Apply failed with 3 conflicts: conflicts with "kubectl-edit" using v1 at 20')
    assert lines[1:] == ["- .data.c", 'conflicts with "them":', "- .data.a", "- .data.b"]


def test_force_takes_fields_over(api):
    api.objects.apply(config_map(a="1", b="1"), manager="them")
    body = api.objects.apply(config_map(a="2"), manager="us", force=True)
    assert body["data"] == {"a": "2", "b": "1"}
    assert owned(body, "us") == {"f:data": {"f:a": {}}}
    assert owned(body, "them") == {"f:data": {"f:b": {}}}


def test_the_same_value_is_shared(api):
    api.objects.apply(config_map(a="1"), manager="them")
    body = api.objects.apply(config_map(a="1"), manager="us")
    assert owned(body, "us") == owned(body, "them") == {"f:data": {"f:a": {}}}


def test_a_write_that_is_no_apply_takes_what_it_changes(api):
    api.objects.apply(config_map(a="1", b="1"), manager="us")
    body = api.objects.patch(api.objects.get("configmaps", "settings"), {"data": {"a": "9"}}, manager="kubectl")
    assert owned(body, "us") == {"f:data": {"f:b": {}}}
    assert owned(body, "kubectl") == {"f:data": {"f:a": {}}}
    with pytest.raises(Refusal, match='conflict with "kubectl" using v1 at'):
        api.objects.apply(config_map(a="1", b="1"), manager="us")


def test_items_of_lists_are_merged_by_their_keys(api):
    api.objects.apply(pod("head", "ray-head"), manager="us")
    body = api.objects.apply(pod("head", "side"), manager="injector")
    assert [each["name"] for each in body["spec"]["containers"]] == ["ray-head", "side"]
    key = 'k:{"name":"ray-head"}'
    assert owned(body, "us")["f:spec"] == {"f:containers": {key: {".": {}, "f:image": {}, "f:name": {}}}}
    body = api.objects.apply({**pod("head"), "spec": {"terminationGracePeriodSeconds": 5}}, manager="injector")
    assert [each["name"] for each in body["spec"]["containers"]] == ["ray-head"]


def test_the_status_has_owners_of_its_own(api):
    api.objects.apply(ray_job(), manager="us")
    body = api.objects.get("rayjobs", "llm-1")
    api.objects.set_status(body, {"jobStatus": "RUNNING"}, manager="kuberay-operator")
    entries = api.objects.get("rayjobs", "llm-1")["metadata"]["managedFields"]
    owners = [(each["manager"], each.get("subresource")) for each in entries]
    assert owners == [("us", None), ("kuberay-operator", "status")]
    again = api.objects.apply(ray_job(), manager="us")
    assert again["status"]["jobStatus"] == "RUNNING"


def test_an_unknown_field_is_not_applied(api):
    body = ray_job(spec={"entryPoint": "x"})
    path = "/apis/ray.io/v1/namespaces/training/rayjobs/llm-1?fieldManager=us"
    status, answer, _ = ask(api, "PATCH", path, body, content="application/apply-patch+yaml")
    assert (status, answer.get("reason")) == (500, None)
    assert answer["message"].endswith(".spec.entryPoint: field not declared in schema")


def test_a_manager_is_needed(api):
    path = f"{CORE}/configmaps/settings"
    status, answer, _ = ask(api, "PATCH", path, config_map(a="1"), content="application/apply-patch+yaml")
    assert status == 422
    assert "fieldManager" in answer["message"]


def test_fields_are_written_and_read_back():
    paths = frozenset(
        {
            ("f:spec", "f:containers", 'k:{"name":"a"}'),
            ("f:spec", "f:containers", 'k:{"name":"a"}', "f:image"),
            ("f:metadata", "f:finalizers", 'v:"x"'),
        }
    )
    tree = managed.encode(paths)
    assert json.loads(json.dumps(tree)) == {
        "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}}}},
        "f:metadata": {"f:finalizers": {'v:"x"': {}}},
    }
    assert frozenset(managed.decode(tree)) == paths


VALUES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4)
APPLIES = st.lists(st.tuples(st.sampled_from(["us", "them", "others"]), VALUES, st.booleans()), max_size=8)


@given(APPLIES)
def test_every_field_has_an_owner_and_every_owner_his_fields(applies):
    """Whatever was applied by whomever: fields and ownership tell the same, a manager has what he applied last unless
    somebody took it by force, and a conflict changes nothing."""
    shape = kinds.Kinds().named("configmaps").versions["v1"]
    live, last = {}, {}
    for number, (manager, data, force) in enumerate(applies):
        owner = managed.Owner(manager, "Apply", "v1", time=f"2026-01-01T00:00:{number:02}Z")
        body = {"metadata": {"name": "x"}, **({"data": data} if data else {})}
        before = json.dumps(live)
        try:
            live, entries = managed.apply(shape, live, body, owner, force=force)
        except managed.Conflicts as conflicts:
            assert not force
            assert json.dumps(live) == before
            for other, path in conflicts.found:
                assert other.manager != manager
                assert data[path[-1][2:]] != live["data"][path[-1][2:]]
            continue
        live["metadata"]["managedFields"] = entries
        last[manager] = data
        owners = managed.owners_of(live)
        owned = {path[-1][2:] for paths in owners.values() for path in paths}
        assert owned == set(live.get("data") or {})
        assert all(live["data"][key] == value for key, value in data.items())
        for each, paths in owners.items():
            assert {path[-1][2:] for path in paths} <= set(last[each.manager])
