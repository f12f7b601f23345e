"""Objects in the API double: created, replaced, patched and refused as an API server does it."""

import pytest
from double import refusal
from double.api import ApiDouble


def config(name="settings", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "training"}, "data": data}


@pytest.fixture
def api():
    with ApiDouble() as api:
        yield api


def test_a_new_object_gets_what_the_server_gives(api):
    made = api.objects.put(config(a="1"))
    meta = made["metadata"]
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 1
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["managedFields"][0]["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_an_old_version_is_a_conflict(api):
    made = api.objects.put(config(a="1"))
    api.objects.patch(made, {"data": {"a": "2"}})
    with pytest.raises(refusal.Refusal, match="the object has been modified") as caught:
        api.objects.patch(
            made, {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
        )
    assert caught.value.code == 409
