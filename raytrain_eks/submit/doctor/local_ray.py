"""The Ray of this machine: what `--on local` would find, and who else has Ray's usual ports."""

import os
import socket
from collections.abc import Iterator

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.submit import places, processes
from raytrain_eks.submit.errors import TargetError

USUAL = {8265: "a dashboard", 6379: "a Ray head (GCS)"}
"""Ray's default ports and what listens there."""
LOOPBACK = "127.0.0.1"


def examine() -> Iterator[Diagnosis]:
    """The state folder, the head of it, and ports."""
    try:
        where = str(places.state())
        places.ray_folder()
    except TargetError as error:
        what, _, fix = str(error).partition("\n")
        yield red("local.state", os.environ.get("XDG_STATE_HOME") or "~", what, fix.strip() or "make it yours: chown")
        return
    yield green("local.state", where, "is this user's alone")
    yield head(where)
    yield from ports()


def head(where: str) -> Diagnosis:
    """Whether the head that is remembered lives, and still fits this environment."""
    from raytrain_eks.submit.head import MARKER, LocalHead

    id, stop = "local.head", "raytrain-eks local stop"
    local = LocalHead()
    known = local.remembered()
    if known is None:
        return green(id, where, "no Ray of this machine is running; `--on local` starts one")
    if (why := local.broken(known)) is not None:
        left = processes.marked(MARKER, known.id)
        rest = f"; {len(left)} of its processes are left over" if left else ""
        return yellow(id, known.url, f"the local Ray is dead: {why}{rest}", f"{stop}; the next submit replaces it too")
    try:
        changes = local.outdated(known)
    except ImportError:
        changes = ["Ray is no longer installed here"]
    if changes:
        return yellow(id, known.url, f"the local Ray no longer fits: {'; '.join(changes)}", f"{stop}, when idle")
    return green(id, known.url, f"the local Ray {known.ray} lives")


def ports() -> Iterator[Diagnosis]:
    """Whether this user may listen on loopback, and what listens on Ray's usual ports."""
    try:
        with socket.socket() as one:
            one.bind((LOOPBACK, 0))
    except OSError as error:
        why = f"no port can be opened: {error.strerror}"
        yield red("local.ports", LOOPBACK, why, "`ip link set lo up`; a sandbox may forbid sockets")
        return
    taken = [f"{port} ({usual})" for port, usual in USUAL.items() if _listens(port)]
    others = f"; {', '.join(taken)} is taken already: another Ray's?" if taken else ""
    yield green("local.ports", LOOPBACK, f"ports can be opened; the local Ray takes free ones{others}")


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((LOOPBACK, port)) == 0
