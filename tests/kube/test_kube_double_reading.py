"""Lists, pages, selectors, watches and logs of the double."""

import itertools
from datetime import UTC, datetime

import pytest
from double import selectors
from double.asking import ask, events, stream
from double.bodies import config_map, pod

PATH = "/api/v1/namespaces/training/configmaps"


def names(body):
    return [item["metadata"]["name"] for item in body["items"]]


def test_a_list_says_of_what_it_is(api):
    api.objects.put(config_map("b"))
    api.objects.put(config_map("a"))
    _, body, _ = ask(api, "GET", PATH)
    assert (body["kind"], names(body)) == ("ConfigMapList", ["a", "b"])
    assert body["metadata"]["resourceVersion"] == str(api.store.version)
    assert names(ask(api, "GET", "/api/v1/configmaps")[1]) == ["a", "b"]


def test_pages_show_the_list_as_it_was(api):
    for name in "abcde":
        api.objects.put(config_map(name))
    _, body, _ = ask(api, "GET", f"{PATH}?limit=2")
    assert (names(body), body["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    api.objects.put(config_map("bb"))
    _, body, _ = ask(api, "GET", f"{PATH}?limit=2&continue={body['metadata']['continue']}")
    assert names(body) == ["c", "d"]
    token = body["metadata"]["continue"]
    assert names(ask(api, "GET", f"{PATH}?limit=2&continue={token}")[1]) == ["e"]
    api.compact()
    status, answer, _ = ask(api, "GET", f"{PATH}?limit=2&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("app=x", True),
        ("app==x,tier!=y", True),
        ("app!=x", False),
        ("app in (x, z),!none", True),
        ("app notin (x)", False),
        ("none notin (x)", True),
        ("app", True),
        ("none", False),
        ("", True),
    ],
)
def test_label_selectors(selector, fits):
    assert selectors.labels(selector)({"metadata": {"labels": {"app": "x"}}}) == fits


def test_selectors_of_a_request(api):
    api.objects.put(pod("a", labels={"app": "x"}))
    api.objects.put(pod("b"))
    api.kubelet.running(api.objects.get("pods", "b"))
    pods = "/api/v1/namespaces/training/pods"
    assert names(ask(api, "GET", f"{pods}?labelSelector=app%3Dx")[1]) == ["a"]
    assert names(ask(api, "GET", f"{pods}?fieldSelector=status.phase%3DRunning")[1]) == ["b"]
    assert names(ask(api, "GET", f"{pods}?fieldSelector=metadata.name%21%3Da")[1]) == ["b"]
    status, answer, _ = ask(api, "GET", f"{pods}?fieldSelector=spec.other%3D1")
    assert (status, answer["message"]) == (400, "field label not supported: spec.other")
    assert ask(api, "GET", f"{pods}?labelSelector=a%20b")[0] == 400


def test_a_watch_tells_from_a_version_on(api):
    first = api.objects.put(config_map("a"))
    api.objects.put(config_map("b"))
    version = first["metadata"]["resourceVersion"]
    feed = events(api, f"{PATH}?watch=1&resourceVersion={version}")
    api.objects.patch(first, {"data": {"x": "1"}})
    api.objects.delete(first)
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in itertools.islice(feed, 3)]
    assert seen == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_watch_without_a_version_begins_with_what_is_there(api):
    api.objects.put(config_map("a"))
    feed = events(api, f"{PATH}?watch=1")
    assert next(feed)["object"]["metadata"]["name"] == "a"
    feed = events(
        api, f"{PATH}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    )
    assert [event["type"] for event in itertools.islice(feed, 2)] == ["ADDED", "BOOKMARK"]


def test_a_watch_by_selector_tells_when_an_object_leaves_it(api):
    made = api.objects.put(pod("a", labels={"app": "x"}))
    feed = events(api, "/api/v1/namespaces/training/pods?watch=1&labelSelector=app%3Dx")
    assert next(feed)["type"] == "ADDED"
    api.objects.patch(made, {"metadata": {"labels": {"app": "y"}}})
    assert next(feed)["type"] == "DELETED"


def test_an_old_version_is_gone(api):
    version = api.objects.put(config_map("a"))["metadata"]["resourceVersion"]
    api.objects.put(config_map("b"))
    api.compact()
    [event] = events(api, f"{PATH}?watch=1&resourceVersion={version}")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


@pytest.mark.parametrize("what", ["bookmark", "close", "drop", "expire"])
def test_a_test_ends_or_marks_open_watches(api, what):
    api.objects.put(config_map("a"))
    feed = events(api, f"{PATH}?watch=1&allowWatchBookmarks=true")
    next(feed)
    assert api.watches(what) == 1
    if what == "bookmark":
        event = next(feed)
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
        assert int(event["object"]["metadata"]["resourceVersion"]) == api.store.version
        api.watches("close")
    elif what == "expire":
        assert next(feed)["object"]["code"] == 410
    assert list(feed) == []


def test_a_watch_ends_with_its_time(api):
    assert list(events(api, f"{PATH}?watch=1&timeoutSeconds=0.05")) == []


def log_path(**query):
    return "/api/v1/namespaces/training/pods/head/log?" + "&".join(f"{key}={value}" for key, value in query.items())


def test_logs(api):
    api.objects.put(pod())
    api.logs["training/head"] = "one\ntwo\nthree\n"
    assert ask(api, "GET", log_path())[1] == "one\ntwo\nthree\n"
    assert ask(api, "GET", log_path(tailLines=1))[1] == "three\n"
    assert ask(api, "GET", log_path(limitBytes=5))[1] == "one\nt"
    stamped = ask(api, "GET", log_path(timestamps="true", tailLines=1))[1]
    assert stamped == "2026-01-01T00:00:00.000002000Z three\n"
    since = ask(api, "GET", log_path(sinceTime="2026-01-01T00:00:00.000001Z"))[1]
    assert since == "two\nthree\n"


def test_a_log_is_followed_until_its_container_ends(api):
    api.objects.put(pod())
    log = api.logs["training/head"]
    log.write("one", datetime(2026, 1, 1, tzinfo=UTC))
    lines = stream(api, log_path(follow="true"))
    assert next(lines) == b"one\n"
    log.write("two")
    assert next(lines) == b"two\n"
    log.close()
    assert list(lines) == []


def test_a_log_may_be_cut(api):
    api.objects.put(pod())
    api.logs["training/head"] = "one\ntwo\nthree"
    api.logs["training/head"].cut_after = 2
    assert list(stream(api, log_path(follow="true"))) == [b"one\n", b"two\n"]
    assert list(stream(api, log_path(follow="true"))) == [b"one\n", b"two\n", b"three\n"]


def test_a_container_has_to_be_named_and_to_have_started(api):
    made = api.objects.put(pod("head", "ray-head", "side"))
    status, answer, _ = ask(api, "GET", log_path())
    assert status == 400
    assert answer["message"] == "a container name must be specified for pod head, choose one of: [ray-head side]"
    assert "is waiting to start: ContainerCreating" in ask(api, "GET", log_path(container="side"))[1]["message"]
    api.kubelet.running(made)
    api.logs["training/head/side"] = "from the side"
    assert ask(api, "GET", log_path(container="side"))[1] == "from the side\n"
    assert "not valid for pod" in ask(api, "GET", log_path(container="none"))[1]["message"]
    assert "previous terminated container" in ask(api, "GET", log_path(container="side", previous="true"))[1]["message"]


def test_a_log_may_be_made_while_it_is_read(api):
    api.objects.put(pod())
    api.logs["training/head"] = lambda: (f"line {number}" for number in range(10**4))
    assert sum(1 for _ in stream(api, log_path(follow="true"))) == 10**4
