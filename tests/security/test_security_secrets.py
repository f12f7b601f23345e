"""Secrets appear in no message, no file of others, no manifest and no package."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytrain_eks.manifests.bundle import build
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.diagnosis import green
from raytrain_eks.spec.load import of_document, read_document
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.secret_names import reveals
from raytrain_eks.submit import package, places, registry
from raytrain_eks.submit.cluster import connect
from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.jobserver import JobServer
from raytrain_eks.submit.targets import HEADERS_VARIABLE, parse_headers

ROOT = Path(__file__).resolve().parent.parent.parent
SPECS = sorted((ROOT / "cluster_specs").glob("*.yaml"))
SECRET = "s3cr3t-0123456789abcdef"
printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40)


@given(secret=printable, mark=st.sampled_from(["", " ", "\n", "\r\n", "\n:"]))
def test_a_header_that_is_none_is_not_repeated_in_its_error(secret, mark):
    text = mark + secret.replace(":", "").replace("=", "")
    with pytest.raises(TargetError) as caught:
        parse_headers([text])
    assert not text.strip(" :\r\n") or text.strip(" :\r\n") not in str(caught.value)


@pytest.mark.parametrize("value", [SECRET, f'["{SECRET}"]', f'{{"Authorization": "{SECRET}'])
def test_headers_of_the_environment_that_are_none_are_not_repeated(monkeypatch, value):
    monkeypatch.setenv(HEADERS_VARIABLE, value)
    with pytest.raises(TargetError) as caught:
        parse_headers([])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [f"http://me:{SECRET}@127.0.0.1:8265", f"https://{SECRET}@host"])
def test_a_password_in_an_address_is_refused_and_not_repeated_by_us(url):
    with pytest.raises(ValueError, match="would end up in logs") as caught:
        JobServer(url)
    assert SECRET not in str(caught.value)


def test_nothing_that_is_unreachable_names_the_token():
    server = JobServer("http://127.0.0.1:9", token=SECRET, headers={"X-Key": SECRET})
    with pytest.raises(TargetError) as caught:
        server.jobs()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(server)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_what_is_remembered_of_a_submission_holds_no_secret(home, tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text(SECRET)
    target = connect("http://127.0.0.1:9", headers={"Authorization": f"Bearer {SECRET}"}, token_file=str(token_file))
    record = registry.Record(
        run="r", on=target.name, id="r-1", storage=None, folder="/", working_dir="/", access=target.access()
    )
    registry.remember(record)
    files = [path for path in (home / "raytrain-eks").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert SECRET not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path for path in (home / "raytrain-eks").rglob("*") if path.is_dir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200))
def test_a_private_file_is_private_whatever_the_umask_is(tmp_path, text):
    before = os.umask(0)
    try:
        places.write_private(tmp_path / "x", text.encode("utf-8", "replace").decode())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def variables(value: Any):
    """Every entry of every `env` list in plain data."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "env" and isinstance(item, list):
                yield from item
            else:
                yield from variables(item)
    elif isinstance(value, list):
        for item in value:
            yield from variables(item)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_no_manifest_of_ours_holds_a_secret(path):
    document = read_document(path)
    for body in build(resolve(of_document(document, expect="Cluster"), document=document)).bodies:
        assert body["kind"] != "Secret"
        for entry in variables(body):
            assert not reveals(entry["name"], str(entry.get("value", ""))), entry["name"]


CLUSTER: dict[str, Any] = {
    "kind": "Cluster",
    "name": "c",
    "region": "us-west-2",
    "workers": [{"name": "w", "instance": "m6i.2xlarge", "nodes": 1}],
}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "DB_CREDENTIALS"]
)
@pytest.mark.parametrize("where", ["head", "workers"])
def test_a_secret_in_a_cluster_file_is_refused_and_not_shown(name, where):
    part = {"environment": {name: SECRET}}
    data = CLUSTER | ({"head": part} if where == "head" else {"workers": [CLUSTER["workers"][0] | part]})
    with pytest.raises(SpecError) as caught:
        Cluster.parse(data)
    assert "looks like a secret" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HF_TOKEN_PATH", "/run/secrets/token", False),
        ("TOKENIZERS_PARALLELISM", "false-or-true", False),
        ("USE_TOKEN", "1", False),
        ("NCCL_DEBUG", "INFO INFO INFO", False),
        ("AWS_ACCESS_KEY_ID", "AKIA0123456789", False),
        ("api_key", "0123456789", True),
        ("GITHUB_TOKEN", "ghp_0123456789", True),
    ],
)
def test_a_secret_is_known_by_its_name(name, value, expected):
    assert reveals(name, value) is expected


def test_a_secret_in_a_file_that_is_wrong_elsewhere_is_not_shown(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps(CLUSTER | {"head": {"environment": {"HF_TOKEN": SECRET}}, "nmae": 1}))
    with pytest.raises(SpecError) as caught:
        of_document(read_document(file))
    assert SECRET not in str(caught.value)


def test_places_of_credentials_do_not_travel(tmp_path):
    for name in (".env", ".netrc", ".aws/credentials", ".kube/config", ".ssh/id_ed25519", "train.py", "sub/.env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SECRET)
    assert [file.name for file in package.of_folder(tmp_path).files] == ["train.py"]
    (tmp_path / ".rayignore").write_text("!.env\n")
    assert ".env" in [file.name for file in package.of_folder(tmp_path).files]


@given(text=st.text(max_size=60))
def test_what_a_server_said_cannot_steer_a_terminal(text):
    shown = str(green("id", text, f"x{text}"))
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
