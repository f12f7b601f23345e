"""Objects in the API double: created, replaced, patched, deleted and refused as an API server does it."""

import pytest
import yaml
from double import ApiDouble
from double.asking import ask
from double.bodies import config_map, pod, ray_cluster, ray_job

CORE = "/api/v1/namespaces/training"
RAY = "/apis/ray.io/v1/namespaces/training"
MERGE = "application/merge-patch+json"


def test_a_new_object_gets_what_the_server_gives(api):
    status, made, _ = ask(api, "POST", f"{CORE}/configmaps?fieldManager=me", config_map(a="1"))
    meta = made["metadata"]
    assert status == 201
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 1
    assert meta["creationTimestamp"].endswith("Z")
    [entry] = meta["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Update")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_a_name_may_be_generated(api):
    body = config_map()
    body["metadata"] = {"generateName": "settings-"}
    _, made, _ = ask(api, "POST", f"{CORE}/configmaps", body)
    assert made["metadata"]["name"].startswith("settings-")
    assert len(made["metadata"]["name"]) == len("settings-") + 5


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "reason", "says"),
    [
        ("GET", f"{CORE}/configmaps/none", None, 404, "NotFound", 'configmaps "none" not found'),
        ("GET", f"{RAY}/rayjobs/none", None, 404, "NotFound", 'rayjobs.ray.io "none" not found'),
        ("GET", "/apis/ray.io/v9/rayjobs", None, 404, "NotFound", "could not find the requested resource"),
        ("POST", "/api/v1/namespaces/no/configmaps", config_map(namespace="no"), 404, "NotFound", 'namespaces "no"'),
        ("POST", f"{CORE}/configmaps", config_map("Bad_Name"), 422, "Invalid", "RFC 1123 subdomain"),
        ("POST", f"{CORE}/configmaps", config_map(namespace="x"), 400, "BadRequest", "does not match the namespace"),
        ("POST", f"{CORE}/configmaps", {**config_map(), "data": {"a": 1}}, 400, "BadRequest", "cannot unmarshal"),
        ("POST", f"{CORE}/pods", {**pod(), "spec": {}}, 422, "Invalid", "spec.containers: Required value"),
        ("PUT", f"{CORE}/configmaps/none", config_map("none"), 404, "NotFound", 'configmaps "none" not found'),
    ],
)
def test_what_is_refused_and_how(api, method, path, body, code, reason, says):
    status, answer, _ = ask(api, method, path, body)
    assert (status, answer["kind"], answer["reason"], answer["code"]) == (code, "Status", reason, code)
    assert says in answer["message"]


@pytest.mark.parametrize(
    ("change", "reason", "field", "says"),
    [
        ({"rayClusterSpec": {"headGroupSpec": None}}, "FieldValueRequired", "spec.rayClusterSpec.headGroupSpec", ""),
        ({"backoffLimit": "x"}, "FieldValueTypeInvalid", "spec.backoffLimit", "must be of type integer"),
        ({"managedBy": "me"}, "FieldValueInvalid", "spec.managedBy", "managedBy"),
        (
            {"deletionStrategy": {"deletionRules": [{"policy": "No", "condition": {"jobStatus": "FAILED"}}]}},
            "FieldValueNotSupported",
            "spec.deletionStrategy.deletionRules[0].policy",
            'supported values: "DeleteCluster"',
        ),
    ],
)
def test_a_definition_and_its_rules_are_obeyed(api, change, reason, field, says):
    body = ray_job()
    body["spec"] = api.objects.merged(body["spec"], change)
    status, answer, _ = ask(api, "POST", f"{RAY}/rayjobs", body)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["message"].startswith('RayJob.ray.io "llm-1" is invalid: ')
    found = {cause["field"]: cause for cause in answer["details"]["causes"]}
    assert found[field]["reason"] == reason
    assert says in found[field]["message"]


def test_a_rule_that_looks_back_holds_on_changes_only(api):
    managed = {"managedBy": "ray.io/kuberay-operator"}
    made = api.objects.put(ray_job(spec=managed))
    change = {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    status, answer, _ = ask(api, "PATCH", f"{RAY}/rayjobs/{made['metadata']['name']}", change, content=MERGE)
    assert status == 422
    assert "immutable" in answer["message"]


def test_an_unknown_field_is_dropped_told_or_refused(api):
    body = {**config_map(), "dta": {}}
    _, made, headers = ask(api, "POST", f"{CORE}/configmaps", body)
    assert "dta" not in made
    assert headers["Warning"] == '299 - "unknown field \\"dta\\""'
    status, answer, _ = ask(api, "POST", f"{RAY}/rayjobs?fieldValidation=Strict", ray_job(spec={"entryPoint": "x"}))
    assert status == 400
    assert 'unknown field "spec.entryPoint"' in answer["message"]


def test_defaults_are_filled_in(api):
    made = api.objects.put(pod())
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    cluster = api.objects.put(ray_cluster())
    assert cluster["spec"]["workerGroupSpecs"][0]["numOfHosts"] == 1


def test_an_old_version_is_a_conflict(api):
    _, made, _ = ask(api, "POST", f"{CORE}/configmaps", config_map(a="1"))
    ask(api, "PATCH", f"{CORE}/configmaps/settings", {"data": {"a": "2"}}, content=MERGE)
    status, answer, _ = ask(api, "PUT", f"{CORE}/configmaps/settings", {**made, "data": {"a": "3"}})
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == (
        'Operation cannot be fulfilled on configmaps "settings": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert api.objects.get("configmaps", "settings")["data"] == {"a": "2"}


def test_a_write_that_changes_nothing_is_no_new_version(api):
    made = api.objects.put(config_map(a="1"))
    _, again, _ = ask(api, "PATCH", f"{CORE}/configmaps/settings", {"data": {"a": "1"}}, content=MERGE)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("content", "patch"),
    [
        (MERGE, {"spec": {"containers": [{"name": "ray-head", "image": "new"}, {"name": "side", "image": "s"}]}}),
        ("application/strategic-merge-patch+json", {"spec": {"containers": [{"name": "ray-head", "image": "new"}]}}),
        (
            "application/json-patch+json",
            [
                {"op": "test", "path": "/spec/containers/0/name", "value": "ray-head"},
                {"op": "replace", "path": "/spec/containers/0/image", "value": "new"},
            ],
        ),
    ],
)
def test_three_kinds_of_patch(api, content, patch):
    api.objects.put(pod("head", "ray-head", "side"))
    status, body, _ = ask(api, "PATCH", f"{CORE}/pods/head", patch, content=content)
    assert status == 200
    assert [each["name"] for each in body["spec"]["containers"]] == ["ray-head", "side"]
    assert body["spec"]["containers"][0]["image"] == "new"


def test_a_strategic_patch_is_not_for_custom_resources(api):
    api.objects.put(ray_job())
    content = "application/strategic-merge-patch+json"
    assert ask(api, "PATCH", f"{RAY}/rayjobs/llm-1", {"spec": {}}, content=content)[0] == 415


def test_the_status_is_written_apart(api):
    made = api.objects.put(ray_job())
    change = {"spec": {"entrypoint": "other"}, "status": {"jobStatus": "RUNNING"}}
    _, body, _ = ask(api, "PATCH", f"{RAY}/rayjobs/llm-1/status", change, content=MERGE)
    assert body["spec"]["entrypoint"] == "python train.py"
    assert body["status"] == {"jobStatus": "RUNNING", "failed": 0, "succeeded": 0}
    assert body["metadata"]["generation"] == made["metadata"]["generation"] == 1
    _, body, _ = ask(api, "PATCH", f"{RAY}/rayjobs/llm-1", {**change, "status": {"jobStatus": "X"}}, content=MERGE)
    assert body["status"]["jobStatus"] == "RUNNING"
    assert body["metadata"]["generation"] == 2


def test_a_dry_run_says_and_does_not(api):
    status, made, _ = ask(api, "POST", f"{CORE}/configmaps?dryRun=All", config_map(a="1"))
    assert status == 201
    assert made["metadata"]["uid"]
    assert api.objects.names("configmaps") == []
    api.objects.put(config_map(a="1"))
    _, body, _ = ask(api, "PATCH", f"{CORE}/configmaps/settings?dryRun=All", {"data": {"a": "2"}}, content=MERGE)
    assert body["data"] == {"a": "2"}
    assert ask(api, "DELETE", f"{CORE}/configmaps/settings?dryRun=All")[0] == 200
    assert api.objects.get("configmaps", "settings")["data"] == {"a": "1"}


def test_finalizers_hold_an_object(api):
    body = config_map()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.objects.put(body)
    _, answer, _ = ask(api, "DELETE", f"{CORE}/configmaps/settings")
    assert answer["metadata"]["deletionTimestamp"]
    assert api.objects.names("configmaps") == ["settings"]
    ask(api, "PATCH", f"{CORE}/configmaps/settings", {"metadata": {"finalizers": None}}, content=MERGE)
    assert api.objects.names("configmaps") == []


@pytest.mark.parametrize(
    ("policy", "left"), [("Background", ["b"]), ("Foreground", ["b"]), ("Orphan", ["a", "b"]), (None, ["b"])]
)
def test_what_belongs_to_a_deleted_object_goes(api, policy, left):
    owner = api.objects.put(config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    for name, owners in (("a", [reference]), ("b", [])):
        body = config_map(name)
        body["metadata"]["ownerReferences"] = owners
        api.objects.put(body)
    options = {"propagationPolicy": policy} if policy else None
    status, answer, _ = ask(api, "DELETE", f"{CORE}/configmaps/owner", options)
    assert status == 200
    assert answer["kind"] in ("Status", "ConfigMap")
    assert api.objects.names("configmaps") == left


def test_a_delete_may_ask_for_a_certain_object(api):
    made = api.objects.put(config_map())
    wrong = {"preconditions": {"uid": "other"}}
    assert ask(api, "DELETE", f"{CORE}/configmaps/settings", wrong)[0] == 409
    right = {"preconditions": {"uid": made["metadata"]["uid"]}}
    assert ask(api, "DELETE", f"{CORE}/configmaps/settings", right)[1]["status"] == "Success"


def test_a_namespace_goes_with_everything_in_it(api):
    api.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})
    held = config_map("held", namespace="gone")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    held = api.objects.put(held)
    api.objects.put(config_map("free", namespace="gone"))
    _, answer, _ = ask(api, "DELETE", "/api/v1/namespaces/gone")
    assert answer["status"]["phase"] == "Terminating"
    assert api.objects.names("configmaps", "gone") == ["held"]
    status, answer, _ = ask(api, "POST", "/api/v1/namespaces/gone/configmaps", config_map("late", namespace="gone"))
    assert status == 403
    assert "being terminated" in answer["message"]
    api.objects.patch(held, {"metadata": {"finalizers": None}})
    assert "gone" not in api.objects.names("namespaces")


def test_a_definition_brings_a_resource(api):
    names = {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    made = api.objects.put({**definition, "metadata": {"name": "things.example.com"}})
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "training"}}
    path = "/apis/example.com/v1/namespaces/training/things"
    assert ask(api, "POST", path, {**thing, "spec": {"size": 1}})[0] == 201
    assert ask(api, "POST", path, {**thing, "metadata": {"name": "u"}, "spec": {"size": "big"}})[0] == 422
    api.objects.delete(made)
    assert ask(api, "GET", path)[0] == 404


def test_other_versions_show_the_same_object(api):
    api.objects.put(ray_job())
    _, body, _ = ask(api, "GET", "/apis/ray.io/v1alpha1/namespaces/training/rayjobs/llm-1")
    assert body["apiVersion"] == "ray.io/v1alpha1"


def test_every_object_of_every_example_is_taken_and_twice_is_once(shared, root):
    for example in sorted((root / "cluster_specs").glob("*.yaml")):
        file = root / "tests" / "golden" / example.name
        with ApiDouble(crds=shared / "crds") as api:
            bodies = list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
            kept = [api.objects.apply(body, manager="us", validation="Strict") for body in [*bodies, *bodies]]
            versions = [each["metadata"]["resourceVersion"] for each in kept]
            assert versions[: len(bodies)] == versions[len(bodies) :], file.name
