"""The Ray head of this machine: started once, found again, replaced as a whole when a part of it dies."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raytrain_eks.submit import processes
from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.head import MARKER, SPARE_CPUS, Head, LocalHead, cores
from raytrain_eks.submit.local import Local

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Iterator[LocalHead]:
    """A state folder of its own; whatever head is in it at the end is ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        local = LocalHead()
        yield local
        head = local.remembered()
        local.stop()
        assert head is None or processes.marked(MARKER, head.id) == []


def ensure(local: LocalHead) -> tuple[Head, list[str]]:
    said: list[str] = []
    return local.ensure(said.append), said


def children(head: Head, pattern: str) -> list[int]:
    """Processes of the head whose command line matches."""
    found = []
    for pid in processes.marked(MARKER, head.id):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        if re.search(pattern, command):
            found.append(pid)
    return found


def test_two_that_start_at_once_get_one_head(local):
    code = "from raytrain_eks.cli.main import main; main(['local', 'start'])"
    verb = [sys.executable, "-c", code]
    both = [subprocess.Popen(verb, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    results = [each.communicate(timeout=900) for each in both]
    assert [each.returncode for each in both] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert sum("Ray 2" in talk for _, talk in results) == 1
    head = local.alive()
    assert head is not None
    assert results[0][0].strip() == head.url
    assert len(children(head, "gcs_server")) == 1


def test_a_living_head_is_used_again(local, monkeypatch):
    first, _ = ensure(local)
    # What a notebook has in its environment once it has imported DeepSpeed and torch, and packed data.
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/tmp/elsewhere")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")
    second, said = ensure(local)
    assert second == first
    assert said == []
    assert first.cpus == cores() + SPARE_CPUS


def test_it_listens_on_loopback_only(local):
    head, _ = ensure(local)
    mine = set(processes.marked(MARKER, head.id))
    inodes = set()
    for pid in mine:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1].rpartition(":")[0])
    assert len(listening) >= 5
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert set(listening) <= loopback


def test_nobody_without_the_token_gets_in(local):
    head, _ = ensure(local)
    assert stat.S_IMODE(local.token_file.stat().st_mode) == 0o600
    for token in (None, "guess"):
        request = urllib.request.Request(f"{head.url}/api/jobs/")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        assert caught.value.code in (401, 403)
    assert head.server(token=local.token()).jobs() == []
    secret = local.token()
    for pid in processes.marked(MARKER, head.id):
        assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert secret not in local.log.read_text()
    assert secret not in local.file.read_text()


@pytest.mark.parametrize("part", [r"dashboard/dashboard\.py", r"ray.scripts.scripts start"])
def test_a_head_that_lost_a_part_is_replaced_and_leaves_nothing_behind(local, part):
    head, _ = ensure(local)
    victims = children(head, part)
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    # It is dead when the kernel has taken its memory back.
    while processes.started(victims[0]) is not None:
        time.sleep(0.01)
    again, said = ensure(local)
    assert again.id != head.id
    assert "the local Ray is replaced" in said[0]
    deadline = time.monotonic() + 10
    while (left := processes.marked(MARKER, head.id)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert local.broken(again) is None


def test_a_state_file_that_lies_is_not_believed(local):
    head, _ = ensure(local)
    about = json.loads(local.file.read_text())
    # Another process has the id by now, as after a restart of the machine.
    local.file.write_text(json.dumps(about | {"pid": os.getpid()}))
    assert local.alive() is None
    for content in ("", "{}", "nonsense", json.dumps({"pid": 1})):
        local.file.write_text(content)
        assert local.alive() is None
    local.file.write_text(json.dumps(about))
    assert local.alive() == head


def test_a_changed_environment_starts_it_anew_unless_jobs_run(local, monkeypatch):
    head, _ = ensure(local)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-show")
    server = head.server(token=local.token())
    server.submit(id="sleeper", entrypoint="exec sleep 60", runtime_env={}, metadata={})
    while (state := server.job("sleeper")) is None or state.phase.value == "PENDING":
        time.sleep(0.1)
    with pytest.raises(TargetError, match="AWS_SECRET_ACCESS_KEY changed") as caught:
        ensure(local)
    assert "sleeper" in str(caught.value)
    assert "do-not-show" not in str(caught.value) + local.file.read_text()
    server.stop("sleeper")
    while not server.job("sleeper").phase.over:
        time.sleep(0.1)
    again, said = ensure(local)
    assert again.id != head.id
    assert said[0] == "starting the local Ray anew: AWS_SECRET_ACCESS_KEY changed"


def test_stopping_ends_every_process_and_the_target_knows(local):
    head, _ = ensure(local)
    target = Local()
    assert target.lost() is None
    assert local.stop() is True
    assert processes.marked(MARKER, head.id) == []
    assert local.stop() is False
    assert target.lost() == "the local Ray is gone: its process is gone"
    assert target.jobs() == []
    assert target.job("sleeper") is None
    # The log of a job that ran there is still to be read.
    past = target.past("sleeper")
    assert past is not None
    assert b"Running entrypoint for job sleeper" in b"".join(target.log(past))
    assert target.past("nobody") is None
