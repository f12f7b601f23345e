"""Programs of the image that tell about devices, run with a limit of time."""

import os
import shutil
import subprocess
from collections.abc import Callable

FOLDERS = ("/opt/amazon/efa/bin", "/opt/aws/neuron/bin", "/usr/local/nvidia/bin")
"""Where AWS's and NVIDIA's installers put programs that are not on everybody's PATH."""
LIMIT_S = 30.0

Run = Callable[..., str | None]
"""`run("fi_info", "-p", "efa")`: what it printed; None when it is not there, fails, or does not end."""


def run(program: str, *arguments: str) -> str | None:
    """Standard output of a program of the image. Never through a shell."""
    found = find(program)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, *arguments], capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def find(program: str) -> str | None:
    """The path of a program, on the PATH or in its installer's folder."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS]))
