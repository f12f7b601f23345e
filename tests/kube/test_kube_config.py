"""Which cluster and which user: kubeconfig files, contexts, namespaces, the account of a pod."""

import pytest

from raytrain_eks.kube import kubeconfig
from raytrain_eks.kube.errors import BadConfig

FIRST = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: a, cluster: {server: "https://a.example", certificate-authority: ca.crt}}
users:
- {name: alice, user: {tokenFile: secrets/token}}
contexts:
- {name: one, context: {cluster: a, user: alice, namespace: training}}
- {name: lost, context: {cluster: nowhere, user: alice}}
"""
SECOND = """
current-context: two
clusters:
- {name: a, cluster: {server: "https://other.example"}}
- {name: b, cluster: {server: "https://b.example/prefix/"}}
users: [{name: bob, user: {token: secret-token}}]
contexts: [{name: two, context: {cluster: b, user: bob}}]
"""


@pytest.fixture
def files(tmp_path):
    for name, text in (("first", FIRST), ("second", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(text)
    return tmp_path


def environment(files, *names):
    return {"KUBECONFIG": ":".join(str(files / name / "config") for name in names)}


def test_of_several_files_the_first_wins_and_missing_ones_are_passed_over(files):
    joined = environment(files, "missing", "first", "second")
    found = kubeconfig.find(environment=joined)
    assert (found.context, found.server, found.namespace) == ("one", "https://a.example", "training")
    assert found.cluster["certificate-authority"] == str(files / "first" / "ca.crt")
    assert found.user["tokenFile"] == str(files / "first" / "secrets" / "token")
    other = kubeconfig.find(context="two", environment=joined)
    assert (other.server, other.namespace) == ("https://b.example/prefix", "default")
    assert kubeconfig.find(environment=environment(files, "second", "first")).context == "two"


def test_options_come_before_the_environment(files):
    path = str(files / "second" / "config")
    found = kubeconfig.find(kubeconfig=path, namespace="mine", environment=environment(files, "first"))
    assert (found.context, found.namespace) == ("two", "mine")


def test_the_default_is_in_the_home_folder(files):
    (files / ".kube").mkdir()
    (files / ".kube" / "config").write_text(SECOND)
    assert kubeconfig.find(environment={"HOME": str(files)}).context == "two"


USER = """
current-context: one
contexts: [{name: one, context: {cluster: a, user: me}}]
clusters: [{name: a, cluster: {server: "https://a.example"}}]
users: [{name: me, user: """


@pytest.mark.parametrize(
    ("context", "text", "says"),
    [
        ("ome", FIRST, "no context ome\n  did you mean one?"),
        ("lost", FIRST, "context lost names the cluster nowhere"),
        (None, FIRST.replace("current-context: one", ""), "no current context"),
        (None, FIRST.replace("https://a.example", "a.example"), "has no `server` that is a URL"),
        (None, FIRST.replace("https://a.example", "https://me:secret-token@a.example"), "would end up in logs"),
        (None, "clusters: {a: b}", "not a kubeconfig"),
        (None, "contexts: 1", "not a kubeconfig"),
        (None, USER + "{tokenFile: 1}}]", "`tokenFile` must be the name of a file"),
        (None, USER + "{client-certificate: a.crt}}]", "`client-certificate` without `client-key`"),
        (None, "- a\n- b", "a mapping is expected"),
        (None, "token: 'secret-token", "not YAML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, context, text, says):
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadConfig) as caught:
        kubeconfig.find(kubeconfig=str(tmp_path / "config"), context=context, environment={})
    assert says in str(caught.value)
    assert caught.value.code == 4
    assert "secret-token" not in str(caught.value)


def test_no_kubeconfig_names_the_places(tmp_path):
    with pytest.raises(BadConfig, match=r"\.kube/config is missing.*\n.*update-kubeconfig"):
        kubeconfig.find(environment={"HOME": str(tmp_path)})
    with pytest.raises(BadConfig, match="there is no such file"):
        kubeconfig.find(kubeconfig=str(tmp_path / "x"), environment={})


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_uses_its_account_where_there_is_no_kubeconfig(tmp_path, monkeypatch, host, server):
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    pod = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(BadConfig):
        kubeconfig.find(environment=pod)
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("hub\n")
    found = kubeconfig.find(environment=pod)
    assert (found.context, found.namespace, found.server) == ("in-cluster", "hub", server)
    assert found.user == {"tokenFile": str(tmp_path / "token")}


def test_an_access_never_shows_its_secrets(files):
    assert "secret-token" not in repr(kubeconfig.find(environment=environment(files, "second")))
