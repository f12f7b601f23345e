"""The thin client: kinds, lists, watches, logs, events, rights."""

import threading
import time
from datetime import UTC, datetime

import pytest

from raytrain_eks.kube import errors, podlog, transport, watch
from raytrain_eks.kube.client import ALL
from raytrain_eks.kube.podlog import Told


def pod(name, namespace="training", **labels):
    spec = {"containers": [{"name": "ray-head", "image": "ray"}], "restartPolicy": "Never"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    running = {"phase": "Running", "containerStatuses": [state(running={"startedAt": "2026-01-01T00:00:00Z"})]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": running}


def state(**how):
    fields = {"name": "ray-head", "image": "ray", "imageID": "", "ready": True, "restartCount": 0}
    return fields | {"state": how}


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch):
    monkeypatch.setattr(podlog, "_PAUSE_S", 0.01)
    monkeypatch.setattr(watch, "_PAUSE_S", 0.01)
    monkeypatch.setattr(transport, "PAUSE_S", 0.01)


def names(found):
    return sorted(each["metadata"]["name"] for each in found)


# Kinds


def test_what_is_served_and_what_is_not(kube_api, kube_client):
    assert kube_client.version() == (1, 33)
    assert kube_client.serves("ray.io/v1", "RayJob")
    assert kube_client.kind("karpenter.sh/v1", "NodePool").namespaced is False
    assert kube_client.versions("ray.io")[0] == "v1"
    assert kube_client.versions("example.com") == []
    with pytest.raises(errors.MissingKind, match="what defines it is not installed") as caught:
        kube_client.get("example.com/v1", "Thing", "x")
    assert caught.value.code == 4
    with pytest.raises(errors.MissingKind, match=r"of kueue\.x-k8s\.io it serves v1beta2"):
        kube_client.kind("kueue.x-k8s.io/v1alpha1", "LocalQueue")


@pytest.mark.parametrize("name", ["../secrets", "a/b", "x?limit=1", "é", ".."])
def test_a_name_is_one_step_of_the_path(kube_client, name):
    path = kube_client.kind("v1", "ConfigMap").path("training", name)
    assert path.startswith("/api/v1/namespaces/training/configmaps/")
    assert "/" not in path.removeprefix("/api/v1/namespaces/training/configmaps/")
    assert "?" not in path


# Lists


def test_a_list_of_many_pages_is_whole_and_has_kinds(kube_api, kube_client):
    for number in range(23):
        kube_api.objects.put(pod(f"p{number}", app="a" if number % 2 else "b"))
    found = list(kube_client.list("v1", "Pod", page=10))
    assert len({each["metadata"]["uid"] for each in found}) == 23
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "Pod")}
    assert len(list(kube_client.list("v1", "Pod", labels="app=a", page=5))) == 11
    assert names(kube_client.list("v1", "Pod", fields="metadata.name=p3")) == ["p3"]
    kube_api.objects.put(pod("elsewhere", "default"))
    assert len(list(kube_client.list("v1", "Pod", ALL))) == 24


def test_a_list_that_is_forgotten_on_the_way_is_begun_anew(kube_api, kube_client):
    for number in range(9):
        kube_api.objects.put(pod(f"p{number}"))
    found = kube_client.list("v1", "Pod", page=4)
    seen = [next(found) for _ in range(3)]
    kube_api.objects.put(pod("late"))
    kube_api.compact()
    seen += list(found)
    assert names(seen) == sorted([*(f"p{number}" for number in range(9)), "late"])


# Watches


def in_background(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("trouble", ["drop", "close", "expire"])
def test_a_watch_misses_nothing_whatever_ends_its_connection(kube_api, kube_client, trouble):
    first, second = kube_api.objects.put(pod("first")), kube_api.objects.put(pod("second"))
    told = []

    def follow():
        for event, body in kube_client.watch("v1", "Pod", seconds=60):
            told.append((event, body["metadata"]["name"], body["metadata"].get("labels", {}).get("n")))
            if body["metadata"]["name"] == "zz-end":
                return

    thread = in_background(follow)
    until(lambda: len(told) == 2)
    until(lambda: kube_api.watches("bookmark") == 1)
    kube_api.objects.patch(first, {"metadata": {"labels": {"n": "1"}}})
    until(lambda: len(told) == 3)
    if trouble == "expire":
        # What happens while nobody listens, and is forgotten before anybody does again.
        kube_api.faults.respond(503, times=2, verb="watch", resource="pods")
    kube_api.watches("drop" if trouble == "expire" else trouble)
    kube_api.objects.delete(second)
    kube_api.objects.patch(first, {"metadata": {"labels": {"n": "2"}}})
    if trouble == "expire":
        kube_api.compact()
    kube_api.objects.put(pod("zz-end"))
    thread.join(30)
    assert not thread.is_alive()
    assert told[:3] == [("ADDED", "first", None), ("ADDED", "second", None), ("MODIFIED", "first", "1")]
    assert sorted(told[3:]) == sorted(
        [("DELETED", "second", None), ("MODIFIED", "first", "2"), ("ADDED", "zz-end", None)]
    )


def test_a_watch_ends_in_time_and_tells_refusals(kube_api, kube_client):
    assert list(kube_client.watch("v1", "Pod", seconds=0.2)) == []
    kube_api.rbac.deny(verb="watch", resource="pods")
    with pytest.raises(errors.Forbidden, match="watch pods in namespace training"):
        list(kube_client.watch("v1", "Pod", seconds=5))


# Logs


def test_a_log_is_read_whole_from_its_end_and_with_times(kube_api, kube_client):
    kube_api.objects.put(pod("head"))
    kube_api.logs["head"] = [f"line {number}" for number in range(5)]
    assert list(kube_client.logs("head")) == [f"line {number}" for number in range(5)]
    assert list(kube_client.logs("head", tail=2)) == ["line 3", "line 4"]
    assert next(kube_client.logs("head", timestamps=True)).startswith("2026-01-01T00:00:00.")
    with pytest.raises(errors.NotFound):
        list(kube_client.logs("none"))


def test_a_followed_log_survives_cuts_with_no_line_twice_and_none_lost(kube_api, kube_client):
    body = kube_api.objects.put(pod("head"))
    log = kube_api.logs["training/head"]
    # The same text again and again, several lines in the same moment, carriage returns and characters beyond ASCII.
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    lines = ["same", "same", "bar 10%\rbar 20%", "é \u2028 x", ""] * 40
    for number, line in enumerate(lines):
        log.write(line, moment.replace(second=number // 20, microsecond=number // 4))
    log.cut_after = 33
    told = []

    def follow():
        for line in kube_client.logs("head", follow=True):
            told.append(line)
            if len(told) in (70, 140):
                log.cut_after = 25

    thread = in_background(follow)
    until(lambda: len(told) == len(lines))
    log.write("last", moment.replace(second=30))
    until(lambda: told[-1] == "last")
    kube_api.objects.patch(body, {"status": {"phase": "Succeeded"}})
    log.close()
    thread.join(20)
    assert not thread.is_alive()
    assert told == [*lines, "last"]


def test_a_log_is_waited_for_until_its_container_starts(kube_api, kube_client):
    body = pod("head")
    body["status"] = {"phase": "Pending", "containerStatuses": [state(waiting={"reason": "ContainerCreating"})]}
    made = kube_api.objects.put(body)
    told = []
    thread = in_background(lambda: told.extend(kube_client.logs("head", follow=True)))
    until(lambda: any(each.resource == "pods/log" for each in kube_api.requests))
    kube_api.objects.patch(made, {"status": {"phase": "Succeeded", "containerStatuses": []}})
    kube_api.logs["training/head"] = ["begun"]
    thread.join(20)
    assert told == ["begun"]
    kube_api.objects.put(pod("other") | {"status": {"phase": "Pending"}})
    with pytest.raises(errors.Invalid, match="waiting to start"):
        list(kube_client.logs("other"))


def stamped(number):
    return f"2026-01-01T00:00:{number // 30_000:02d}.{number:09d}+01:00 line {number % 7}"


def test_following_a_long_log_remembers_a_part_of_it_and_still_tells_no_line_twice():
    """More lines in a second than are remembered, cut twice; the kubelet sends whole seconds again."""
    told, log = Told(), [stamped(number) for number in range(50_000)]
    found = []
    for cut in (25_000, 45_000, 50_000):
        told.again()
        again = [line for line in log[:cut] if told.since is None or line[:19] >= told.since[:19]]
        found += [line for line in again if told.new(line)]
        assert len(told._lines) <= podlog.KEPT
    assert found == log
    assert told.since == "2026-01-01T00:00:00+01:00"


# Events and rights


def test_events_are_those_of_the_object_in_the_order_of_time(kube_api, kube_client):
    one, other = kube_api.objects.put(pod("one")), kube_api.objects.put(pod("other"))
    kube_api.event(one, "Scheduled", "first", type="Normal")
    kube_api.event(other, "Failed", "not this one")
    kube_api.event(one, "FailedMount", "second")
    assert sorted(each["reason"] for each in kube_client.events(one)) == ["FailedMount", "Scheduled"]
    kube_api.objects.delete(one)
    again = kube_api.objects.put(pod("one"))
    assert list(kube_client.events(again)) == []


@pytest.mark.parametrize(("verb", "allowed"), [("list", True), ("create", False)])
def test_rights_are_asked_for(kube_api, tmp_path, verb, allowed):
    from raytrain_eks.kube.connect import connect

    kube_api.rbac.deny(user="researcher", verb="create", resource="rayjobs")
    with connect(kubeconfig=str(kube_api.kubeconfig(tmp_path, user="researcher"))) as client:
        assert client.allowed(verb, "ray.io/v1", "RayJob")[0] is allowed


def test_deleting_what_is_gone_is_no_error_and_a_later_namesake_is_left(kube_api, kube_client):
    old = kube_api.objects.put(pod("p"))
    assert kube_client.delete("v1", "Pod", "p", uid=old["metadata"]["uid"])
    assert not kube_client.delete("v1", "Pod", "p")
    kube_api.objects.put(pod("p"))
    with pytest.raises(errors.Conflict):
        kube_client.delete("v1", "Pod", "p", uid=old["metadata"]["uid"])
    assert kube_client.find("v1", "Pod", "p") is not None
