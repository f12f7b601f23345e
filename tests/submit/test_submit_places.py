"""What this machine remembers, and who may read it."""

import os
import stat
import subprocess
import sys
import time

import pytest

from raytrain_eks.submit import places, processes, registry
from raytrain_eks.submit.errors import TargetError


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_the_state_folder_is_this_users_only(home):
    assert places.state() == home / "state" / "raytrain-eks"
    assert mode(places.state()) == 0o700
    places.state().chmod(0o755)
    assert mode(places.state()) == 0o700


def test_a_relative_state_home_is_ignored(home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(home))
    assert places.state() == home / ".local" / "state" / "raytrain-eks"


@pytest.mark.parametrize("depth", [0, 60])
def test_rays_sockets_fit_however_long_the_state_folder_is(home, monkeypatch, depth):
    monkeypatch.setenv("XDG_STATE_HOME", f"/tmp/{'d' * depth}raytrain-test-{os.getpid()}")
    folder = places.ray_folder()
    try:
        assert len(os.fsencode(folder)) + places.SOCKET_SUFFIX <= places.SOCKET_PATH_LIMIT
        assert mode(folder) == 0o700
        assert places.ray_folder() == folder
    finally:
        subprocess.run(["rm", "-r", str(folder), os.environ["XDG_STATE_HOME"]], check=False)


def test_a_link_in_the_place_of_a_folder_is_refused(home):
    (home / "target").mkdir()
    (home / "link").symlink_to(home / "target")
    with pytest.raises(TargetError, match="not a folder of yours"):
        places.private(home / "link")


def test_what_is_written_privately_is_private_and_whole(home):
    old = os.umask(0)
    try:
        places.write_private(home / "file", "ünï")
        places.write_private(home / "file", '{"a": 1}')
    finally:
        os.umask(old)
    assert mode(home / "file") == 0o600
    assert places.read_json(home / "file") == {"a": 1}
    assert [path.name for path in home.iterdir()] == ["file"]


@pytest.mark.parametrize("content", ["", "{", "[1]", "\0"])
def test_a_broken_file_is_as_good_as_none(home, content):
    (home / "file").write_text(content)
    assert places.read_json(home / "file") is None


def test_a_run_is_remembered(home):
    record = registry.Record(run="q", on="local", id="q-1", storage="/runs", folder="/here", working_dir="/here")
    registry.remember(record)
    assert registry.recall("q") == record
    assert registry.recall("other") is None
    assert registry.recall("../local/head") is None
    (places.state() / "runs" / "q.json").write_text('{"run": "q"}')
    assert registry.recall("q") is None


def test_a_process_is_known_by_its_start(home):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        born = processes.started(child.pid)
        assert born == processes.started(child.pid)
        assert born is not None
    finally:
        child.kill()
    while child.poll() is None and processes.started(child.pid) is not None:
        time.sleep(0.01)
    # A corpse that nobody has buried counts as dead.
    assert processes.started(child.pid) is None
    child.wait()
    assert processes.started(child.pid) is None


def test_processes_are_found_by_their_marker_and_ended(home):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    marked = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"MARK": "a b"}, stdout=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"MARK": "a"}, stdout=subprocess.PIPE)
    try:
        assert marked.stdout is not None
        assert other.stdout is not None
        marked.stdout.read(1)
        other.stdout.read(1)
        assert processes.marked("MARK", "a b") == [marked.pid]
        assert processes.end([marked.pid], grace=0.1) == [marked.pid]
        assert marked.wait(5) == -9
        assert other.poll() is None
    finally:
        for child in (marked, other):
            child.kill()
            child.wait()
