"""Requests: what is repeated, who is believed, and what an error says."""

import json
import stat
import subprocess
import sys

import pytest
import yaml

from raytrain_eks.kube import errors, transport
from raytrain_eks.kube.connect import connect

TRAINING = "training"


def config_map(name="x", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_the_client_library_is_loaded_by_the_first_connection(tmp_path):
    program = (
        "import sys, raytrain_eks.kube.connect, raytrain_eks.kube.client, raytrain_eks.kube.apply\n"
        "import raytrain_eks.kube.delete, raytrain_eks.kube.readiness, raytrain_eks.kube.reasons\n"
        "print(sorted({'lightkube', 'httpx2', 'kubernetes', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("fault", [{"code": 429, "retry_after": 1}, {"code": 500}, {"code": 503}, {"drop": True}])
def test_what_is_safe_is_repeated(kube_api, kube_client, monkeypatch, fault):
    waited = []
    monkeypatch.setattr(transport.time, "sleep", waited.append)
    if "drop" in fault:
        kube_api.faults.drop(times=2, verb="get", resource="configmaps")
    else:
        code = fault.pop("code")
        kube_api.faults.respond(code, times=2, verb="get", resource="configmaps", **fault)
    kube_api.objects.put(config_map() | {"metadata": {"name": "x", "namespace": TRAINING}})
    assert kube_client.get("v1", "ConfigMap", "x")["metadata"]["name"] == "x"
    assert len(waited) == 2
    if "retry_after" in fault:
        assert all(1 <= each < 1.5 for each in waited)


@pytest.mark.parametrize("fault", ["before", "after", "timeout"])
def test_a_new_object_whose_answer_was_lost_is_made_once(kube_api, kube_client, fault):
    if fault == "timeout":
        kube_api.faults.respond(504, times=1, verb="create", resource="configmaps")
    else:
        kube_api.faults.drop(times=1, after=fault == "after", verb="create", resource="configmaps")
    made = kube_client.create(config_map(a="1"))
    assert made["data"] == {"a": "1"}
    assert kube_api.objects.names("configmaps", TRAINING) == ["x"]
    tries = [each for each in kube_api.requests if each.verb == "create"]
    assert len(tries) == (1 if fault == "after" else 2)


def test_another_object_of_the_name_is_a_conflict_also_after_a_lost_answer(kube_api, kube_client):
    kube_api.objects.put(config_map() | {"metadata": {"name": "x", "namespace": TRAINING}})
    kube_api.faults.drop(times=1, verb="create", resource="configmaps")
    with pytest.raises(errors.Conflict, match="already exists"):
        kube_client.create(config_map())


def test_an_apply_whose_answer_was_lost_is_made_again(kube_api, kube_client, monkeypatch):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)
    kube_api.faults.drop(times=1, after=True, verb="patch", resource="configmaps")
    body, created = kube_client.apply(config_map(a="1"))
    assert body["data"] == {"a": "1"}
    assert not created


def test_an_api_that_stays_down_is_an_error_of_exit_code_4(kube_api, kube_client, monkeypatch):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)
    fault = kube_api.faults.respond(503, times=-1, path="/version")
    with pytest.raises(errors.Unreachable, match="answers 503 again and again") as caught:
        kube_client.version()
    assert caught.value.code == 4
    assert fault.hits == kube_client.transport.tries


def test_a_token_that_no_request_carries_is_not_shown(kube_api, tmp_path):
    config = {
        "clusters": [{"name": "c", "cluster": {"server": kube_api.url, "insecure-skip-tls-verify": True}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "s3cr\net"}}],
        "current-context": "c",
    }
    (tmp_path / "broken").write_text(yaml.safe_dump(config))
    with (
        connect(kubeconfig=str(tmp_path / "broken")) as client,
        pytest.raises(errors.BadConfig, match="the token holds characters") as caught,
    ):
        client.version()
    assert "s3cr" not in str(caught.value)


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(errors.Unreachable, match=r"https://127.0.0.1:9 cannot be reached: .*\n.*context c"):
        connect(kubeconfig=str(tmp_path / "config")).version()


def test_a_stranger_behind_the_address_is_not_believed(kube_api, tmp_path, monkeypatch):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: pytest.fail("trust does not come by waiting"))
    config = yaml.safe_load(kube_api.kubeconfig(tmp_path).read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    before = len(kube_api.requests)
    with pytest.raises(errors.Unreachable, match=r"is not trusted.*\n.*certificate-authority-data"):
        connect(kubeconfig=str(tmp_path / "config")).version()
    assert len(kube_api.requests) == before


def test_401_says_how_to_become_known(kube_api, tmp_path):
    client = connect(kubeconfig=str(kube_api.kubeconfig(tmp_path, user="researcher")))
    kube_api.rbac.revoke("researcher")
    with pytest.raises(errors.Unauthorized, match="does not know who asks") as caught:
        client.version()
    assert caught.value.code == 4
    assert kube_api.token("researcher") not in str(caught.value)


@pytest.mark.parametrize(
    ("api_version", "kind", "resource", "role"),
    [
        ("ray.io/v1", "RayJob", "rayjobs.ray.io", "a Role in namespace training that grants it needs the rule"),
        ("karpenter.sh/v1", "NodePool", "nodepools.karpenter.sh", "a ClusterRole that grants it needs the rule"),
    ],
)
def test_403_names_what_was_asked_and_the_role_for_it(kube_api, tmp_path, api_version, kind, resource, role):
    client = connect(kubeconfig=str(kube_api.kubeconfig(tmp_path, user="researcher")))
    kube_api.rbac.deny(user="researcher", verb="list", resource=resource.split(".")[0])
    with pytest.raises(errors.Forbidden) as caught:
        list(client.list(api_version, kind))
    text = str(caught.value)
    assert f"not allowed (403): list {resource}" in text
    group = resource.partition(".")[2]
    assert f"{role} {{apiGroups: [{group}], resources: [{resource.split('.')[0]}], verbs: [list]}}" in text
    assert caught.value.code == 4


def test_a_plugin_makes_tokens_and_a_new_one_when_the_old_is_refused(kube_api, tmp_path):
    config = yaml.safe_load(kube_api.kubeconfig(tmp_path).read_text())
    credential = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
    tokens = ["worn-out", kube_api.token()]
    for number, token in enumerate(tokens):
        (tmp_path / f"answer-{number}").write_text(json.dumps(credential | {"status": {"token": token}}))
    program = tmp_path / "bin" / "get-token"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\ncd " + str(tmp_path) + "\n"
        'echo "$1 $CLUSTER" >> calls; printf %s "$KUBERNETES_EXEC_INFO" > info\n'
        "cat answer-$(($(wc -l < calls) - 1))\n"
    )
    program.chmod(stat.S_IRWXU)
    plugin = {"apiVersion": credential["apiVersion"], "command": "bin/get-token", "args": ["--cluster"]}
    plugin |= {"env": [{"name": "CLUSTER", "value": "ml"}], "provideClusterInfo": True}
    config["users"][0]["user"] = {"exec": plugin}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    client = connect(kubeconfig=str(tmp_path / "config"))
    assert client.version() == (1, 33)
    assert client.find("v1", "ConfigMap", "none") is None
    assert (tmp_path / "calls").read_text() == "--cluster ml\n--cluster ml\n"
    spec = json.loads((tmp_path / "info").read_text())["spec"]
    assert spec["interactive"] is False
    assert spec["cluster"]["server"] == kube_api.url


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"tokenFile": "/nonexistent/token"}),
        ({"certificate-authority": "/nonexistent/ca.crt", "certificate-authority-data": None}, {"token": "t"}),
        ({"certificate-authority-data": "bm90IGEgY2VydGlmaWNhdGU="}, {"token": "t"}),
        ({}, {"client-certificate-data": "eA==", "client-key-data": "eA=="}),
        ({"server": "https://[::1"}, {"token": "t"}),
        ({"proxy-url": "socks5://127.0.0.1:9"}, {"token": "t"}),
        ({}, {"auth-provider": {"name": "gcp"}}),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}),
    ],
)
def test_a_kubeconfig_that_cannot_work_is_a_message(kube_api, tmp_path, monkeypatch, cluster, user):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)
    config = yaml.safe_load(kube_api.kubeconfig(tmp_path).read_text())
    changed = config["clusters"][0]["cluster"] | cluster
    config["clusters"][0]["cluster"] = {key: value for key, value in changed.items() if value is not None}
    config["users"][0]["user"] = user
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(errors.BadConfig) as caught:
        connect(kubeconfig=str(tmp_path / "config")).version()
    assert caught.value.code == 4
    assert "double" in str(caught.value)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "there is no program `get-token`, which makes tokens\n  pip install awscli"),
        ("echo 'expired: run aws sso login' >&2; exit 3", "ended with 3\n  expired: run aws sso login"),
        ("echo secret-token", "wrote no ExecCredential"),
    ],
)
def test_a_plugin_that_fails_says_why(kube_api, tmp_path, monkeypatch, script, says):
    config = yaml.safe_load(kube_api.kubeconfig(tmp_path).read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "get-token"}
    config["users"][0]["user"] = {"exec": plugin | {"installHint": "pip install awscli"}}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    if script is not None:
        (tmp_path / "get-token").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "get-token").chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(errors.BadConfig) as caught:
        connect(kubeconfig=str(tmp_path / "config")).version()
    assert says in str(caught.value)
    assert "secret-token" not in str(caught.value)
