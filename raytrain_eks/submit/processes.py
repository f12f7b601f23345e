"""Processes of this machine by id, start time and marker: who still lives, and whose they are.

A process id alone proves nothing after a while, ids are used again; with its start time it does (proc(5), field 22).
"""

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")


def started(pid: int) -> str | None:
    """When the process began, in a form that only compares; None when there is no such process, or only its corpse."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        if PROC.joinpath("self").exists():
            return None
        return _started_elsewhere(pid)
    # The command's name in parentheses may hold anything; what counts comes after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _started_elsewhere(pid: int) -> str | None:
    """Without /proc (macOS): by ps(1)."""
    import subprocess

    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def children(parent: int) -> dict[int, str]:
    """Living children of a process, with the name of the program that each runs (of its script, for Python)."""
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] not in "ZX":
            programs = [os.path.basename(os.fsdecode(word)) for word in words if word and not word.startswith(b"-")]
            is_script = len(programs) > 1 and programs[0].startswith("python")
            found[int(entry.name)] = programs[1] if is_script else programs[0] if programs else ""
    return found


def marked(variable: str, value: str) -> list[int]:
    """Living processes of this user whose environment has `variable=value`: all that a marked process ever started."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and started(int(entry.name)) is not None:
            found.append(int(entry.name))
    return sorted(found)


def end(pids: list[int], *, grace: float) -> list[int]:
    """SIGTERM, and SIGKILL to those that live on after `grace` seconds. Returns the ones that had to be killed."""
    born = {pid: when for pid in pids if (when := started(pid)) is not None}
    _signal(born, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := _alive(born)) and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal({pid: born[pid] for pid in left}, signal.SIGKILL)
    return left


def _alive(born: dict[int, str]) -> list[int]:
    return [pid for pid, when in born.items() if started(pid) == when]


def _signal(born: dict[int, str], number: signal.Signals) -> None:
    for pid in _alive(born):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
