"""Where this machine keeps what it must remember between two commands (XDG Base Directory Specification 0.8)."""

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from raytrain_eks.submit.errors import TargetError

APPLICATION = "raytrain-eks"

SOCKET_PATH_LIMIT = 107
"""Bytes of the path of an AF_UNIX socket (unix(7): 108 with the closing zero)."""

SOCKET_SUFFIX = len("/session_2026-11-30_13-20-24_237001_4194304/sockets/plasma_store_xxxxxxxxxxxx")
"""Bytes that Ray appends to its folder for its longest socket, the process id at its longest."""


def state() -> Path:
    """`$XDG_STATE_HOME/raytrain-eks` (`~/.local/state/raytrain-eks`), made for this user only."""
    home = os.environ.get("XDG_STATE_HOME") or ""
    # The specification: a relative path is invalid and is to be ignored.
    base = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"
    return private(base / APPLICATION)


def ray_folder() -> Path:
    """The folder of the local Ray head: in the state folder, or in the system's temporary folder where that is too
    long for the sockets in it. Raises TargetError when somebody else owns the one that is to be used."""
    inside = state() / "ray"
    if len(os.fsencode(inside)) + SOCKET_SUFFIX <= SOCKET_PATH_LIMIT:
        return private(inside)
    tag = hashlib.sha256(os.fsencode(inside)).hexdigest()[:8]
    for base in (tempfile.gettempdir(), "/tmp"):
        short = Path(base) / f"{APPLICATION}-{os.getuid()}-{tag}"
        if len(os.fsencode(short)) + SOCKET_SUFFIX <= SOCKET_PATH_LIMIT:
            return private(short)
    raise TargetError(f"{base}: too long for Ray's sockets ({SOCKET_PATH_LIMIT} bytes)\n  set TMPDIR to a short path")


def private(folder: Path) -> Path:
    """`folder`, made with mode 0700. Raises TargetError when it is not a folder of this user's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except OSError as error:
        raise TargetError(f"{folder}: {error.strerror}\n  set XDG_STATE_HOME to a folder you may write") from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise TargetError(f"{folder} is not a folder of yours; it would hold your token, so it is not used")
    if stat.S_IMODE(about.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only this user may read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None when the file is missing or broken, which means the same: nothing is known."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
