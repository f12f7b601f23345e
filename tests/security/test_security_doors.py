"""Who gets in: no rendered cluster can be reached from outside without a token, and TLS is verified everywhere."""

import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytrain_eks.manifests.bundle import build
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.submit import registry
from raytrain_eks.submit.doctor import job
from raytrain_eks.submit.entrypoint import shell_line
from raytrain_eks.submit.jobserver import JobServer

OUTSIDE = ("NodePort", "LoadBalancer")
BASE: dict[str, Any] = {"kind": "Cluster", "name": "c", "region": "us-west-2", "zone": "us-west-2a"}


@settings(max_examples=60)
@given(
    service=st.sampled_from(["ClusterIP", *OUTSIDE]),
    auth=st.sampled_from(["token", "disabled"]),
    host=st.booleans(),
    policy=st.booleans(),
    capacity=st.sampled_from(["on-demand", "spot"]),
)
def test_no_cluster_file_opens_a_door_without_a_token(service, auth, host, policy, capacity):
    data = BASE | {
        "auth": auth,
        "head": {"service": service},
        "network": {"host_network": host},
        "ground": {"network_policy": policy},
        "workers": [{"name": "w", "instance": "p4d.24xlarge", "nodes": 2, "capacity": capacity}],
    }
    if auth == "disabled" and service in OUTSIDE:
        with pytest.raises(SpecError, match="asks for no token"):
            Cluster.parse(data)
        return
    bodies = build(resolve(Cluster.parse(data))).bodies
    for body in bodies:
        assert body["kind"] not in ("Ingress", "Gateway", "HTTPRoute")
        if body["kind"] == "Service":
            assert body["spec"].get("type", "ClusterIP") == "ClusterIP"
        if body["kind"] == "RayCluster":
            token = body["spec"].get("authOptions", {}).get("mode") == "token"
            head = body["spec"]["headGroupSpec"]
            assert token or head.get("serviceType", "ClusterIP") == "ClusterIP"
            assert "enableIngress" not in head
            assert "--dashboard-host" not in str(body)
    policies = [body for body in bodies if body["kind"] == "NetworkPolicy"]
    assert bool(policies) is (policy and not host)


@pytest.mark.parametrize("ca", [None, "folder"])
def test_a_job_servers_certificate_is_verified_by_default(tmp_path, ca):
    server = JobServer("https://host:8265", ca=str(tmp_path) if ca else None)
    assert server.tls is not None
    assert server.tls.verify_mode is ssl.CERT_REQUIRED
    assert server.tls.check_hostname


@settings(max_examples=300)
@given(name=st.text(max_size=80))
def test_a_runs_name_is_a_label_so_a_folder_an_id_and_a_word(name):
    """Whatever else is written is refused, so that no name can leave its folder, its label or its command."""
    data = {"kind": "Job", "name": name, "model": {"name": "x"}, "data": {"train": "./x"}, "stop": {"steps": 1}}
    data |= {"optimizer": {"learning_rate": 1e-3}, "batch": {"sequences": 2}}
    try:
        found = Job.parse(data).name
    except SpecError:
        return
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", found)
    assert len(found) <= 63


@settings(max_examples=150)
@given(run=st.text(max_size=30) | st.sampled_from(["../x", "..", "/etc/passwd", ".", "a/../../b", "", "a\0b"]))
def test_a_remembered_run_is_never_read_from_elsewhere(run, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        assert registry.recall(run) is None


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for Python: prints its words, each with a zero byte behind it."""
    path = tmp_path_factory.mktemp("bin") / "python"
    path.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    path.chmod(0o755)
    return path


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(storage=words)
def test_the_storage_of_a_check_reaches_its_driver_whole(storage, interpreter, tmp_path):
    made = job.submission(storage, fabric=False, folder=tmp_path)
    line = shell_line(str(interpreter), made.job_file, made.options, script=made.script)
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, timeout=20, check=True)
    expected = ["jobs/doctor.py", f"--storage={storage}", "--no-fabric", "doctor.yaml"]
    assert done.stdout.decode().split("\0")[:-1] == expected
    assert not list(tmp_path.iterdir())
