"""Who may do what in the double, and what goes wrong on purpose."""

import json
import threading
import urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from double.asking import ask, stream
from double.bodies import config_map, ray_job

PATH = "/api/v1/namespaces/training/configmaps"
SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
HUB = "system:serviceaccount:hub:user"


def may(api, user, **attributes):
    body = {"spec": {"resourceAttributes": {"namespace": "training", **attributes}}}
    status, answer, _ = ask(api, "POST", SELF, body, token=api.token(user))
    assert status == 201
    return answer["status"]["allowed"]


def test_no_token_a_wrong_one_and_a_revoked_one(api):
    status, answer, _ = ask(api, "GET", PATH, token="")
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot list resource "configmaps"' in answer["message"]
    assert ask(api, "GET", "/version", token="")[0] == 200
    status, answer, _ = ask(api, "GET", PATH, token="wrong")
    assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")
    token = api.token("leaver")
    assert ask(api, "GET", PATH, token=token)[0] == 200
    api.rbac.revoke("leaver")
    assert ask(api, "GET", PATH, token=token)[0] == 401


def test_a_denial_says_who_and_what(api):
    api.rbac.deny(user="researcher", verb="create", resource="rayjobs")
    token = api.token("researcher")
    path = "/apis/ray.io/v1/namespaces/training/rayjobs"
    status, answer, _ = ask(api, "POST", path, ray_job(), token=token)
    assert status == 403
    assert answer["message"] == (
        'rayjobs.ray.io is forbidden: User "researcher" cannot create resource "rayjobs" in API group "ray.io" in the '
        'namespace "training"'
    )
    assert ask(api, "GET", path, token=token)[0] == 200
    assert not may(api, "researcher", verb="create", group="ray.io", resource="rayjobs")
    assert may(api, "admin", verb="create", group="ray.io", resource="rayjobs")


def test_roles_are_obeyed(api):
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create", "get"]}]
    place = {"name": "submit", "namespace": "training"}
    api.objects.put({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": place, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": "hub"}
    ref = {"apiGroup": rbac, "kind": "Role", "name": "submit"}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": place, "subjects": [subject]}
    api.objects.put({**binding, "roleRef": ref})
    api.rbac.obey_roles(HUB)
    try:
        assert may(api, HUB, verb="create", group="ray.io", resource="rayjobs")
        assert not may(api, HUB, verb="delete", group="ray.io", resource="rayjobs")
        assert not may(api, HUB, verb="create", group="ray.io", resource="rayjobs", namespace="default")
        assert not may(api, HUB, verb="get", resource="secrets")
        assert ask(api, "GET", "/api/v1/namespaces/training/secrets", token=api.token(HUB))[0] == 403
        review = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        _, answer, _ = ask(api, "POST", review, {"spec": {"namespace": "training"}}, token=api.token(HUB))
        assert answer["status"]["resourceRules"] == rules
    finally:
        for resource in ("rolebindings", "roles"):
            api.objects.delete(api.objects.get(resource, "submit"))


@pytest.mark.parametrize(
    ("code", "after", "reason"),
    [(429, 3, "TooManyRequests"), (500, 0, "InternalError"), (503, 0, "ServiceUnavailable")],
)
def test_an_injected_answer(api, code, after, reason):
    fault = api.faults.respond(code, retry_after=after, times=2, verb="list", resource="configmaps")
    for _ in range(2):
        status, answer, headers = ask(api, "GET", PATH)
        assert (status, answer["reason"]) == (code, reason)
        assert headers.get("Retry-After") == (str(after) if after else None)
    assert ask(api, "GET", PATH)[0] == 200
    assert fault.hits == 2


def test_a_cut_connection(api):
    api.faults.drop(verb="list")
    with pytest.raises((urllib.error.URLError, OSError)):
        ask(api, "GET", PATH)
    assert ask(api, "GET", PATH)[0] == 200


def test_an_answer_that_is_lost_after_the_work(api):
    api.faults.drop(verb="create", after=True)
    with pytest.raises((urllib.error.URLError, OSError)):
        ask(api, "POST", PATH, config_map())
    assert api.objects.names("configmaps") == ["settings"]
    assert ask(api, "POST", PATH, config_map())[0] == 409


def test_a_late_answer(api):
    fault = api.faults.delay(0.05, verb="list")
    assert ask(api, "GET", PATH)[0] == 200
    assert fault.hits == 1


def test_what_came_in_is_known(api):
    ask(api, "POST", PATH, config_map(), headers={"User-Agent": "raytrain-eks/0.1"})
    [seen] = api.requests
    assert (seen.method, seen.verb, seen.resource, seen.user) == ("POST", "create", "configmaps", "admin")
    assert seen.agent == "raytrain-eks/0.1"


def test_a_kubeconfig_is_for_its_owner_only(kube_api, tmp_path):
    file = kube_api.kubeconfig(tmp_path, user="researcher", namespace="team")
    assert file.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(file.read_text())
    assert config["clusters"][0]["cluster"]["server"] == kube_api.url
    assert config["contexts"][0]["context"]["namespace"] == "team"


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        text = json.dumps({"path": self.path, "headers": dict(self.headers), "body": sent}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


def test_a_proxy_leads_to_what_a_service_serves_and_keeps_the_credentials(api):
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        api.backends["training/llm-head-svc:dashboard"] = f"http://127.0.0.1:{service.server_port}"
        path = "/api/v1/namespaces/training/services/llm-head-svc:dashboard/proxy/api/a%20job/?a=%20b"
        status, seen, _ = ask(api, "POST", path, {"x": 1}, headers={"X-Ray-Authorization": "Bearer ray"})
        service.shutdown()
    assert (status, seen["path"], json.loads(seen["body"])) == (201, "/api/a%20job/?a=%20b", {"x": 1})
    given = {name.title(): value for name, value in seen["headers"].items()}
    assert given["X-Ray-Authorization"] == "Bearer ray"
    assert "Authorization" not in given
    status, answer, _ = ask(api, "POST", path.replace("llm", "other"), {})
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")


def test_a_watch_cannot_be_refused_halfway_only_before(api):
    api.faults.respond(429, retry_after=1, verb="watch")
    with pytest.raises(urllib.error.HTTPError) as caught:
        list(stream(api, f"{PATH}?watch=1"))
    assert caught.value.code == 429
