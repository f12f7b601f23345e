"""A cluster file on a real Kubernetes: looked at, applied, compared, in conflict, deleted. In this order."""

import json

import pytest

pytestmark = pytest.mark.slow


def outcomes(done):
    return {each["outcome"] for each in json.loads(done.stdout)}


def test_doctor_says_what_is_missing(site):
    done = site.run("doctor", "cluster.yaml", "--on", "eks", "-o", "json")
    assert done.returncode in (0, 3), done.stderr
    assert json.loads(done.stdout)


def test_a_dry_run_on_the_server_keeps_nothing(site):
    done = site.run("apply", "cluster.yaml", "--dry-run=server", "-o", "json")
    assert done.returncode == 0, done.stderr


def test_applied_twice_is_once(applied):
    again = applied.run("apply", "cluster.yaml", "--yes", "-o", "json")
    assert again.returncode == 0
    assert outcomes(again) == {"unchanged"}
    assert applied.run("diff", "cluster.yaml").returncode == 0


def test_a_field_of_somebody_else_is_named_and_left(applied):
    path = "raycluster", applied.name
    before = applied.kubectl("get", *path, "-o", "jsonpath={.spec.rayVersion}")
    patch = '{"spec": {"rayVersion": "2.0.0"}}'
    applied.kubectl("patch", *path, "--type=merge", "--field-manager=somebody", "-p", patch)
    refused = applied.run("apply", "cluster.yaml", "--yes")
    assert refused.returncode == 1
    assert "somebody" in refused.stdout + refused.stderr
    assert "rayVersion" in refused.stdout + refused.stderr
    assert applied.run("diff", "cluster.yaml").returncode == 1
    assert applied.run("apply", "cluster.yaml", "--yes", "--force-conflicts").returncode == 0
    assert applied.kubectl("get", *path, "-o", "jsonpath={.spec.rayVersion}") == before
