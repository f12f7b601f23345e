"""This machine: Python, Ray and torch as they import, CPUs, memory, shared memory, storage."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.submit.doctor.packages import within
from raytrain_eks.submit.package import mebibytes

TRIED_PYTHON = ">=3.11,<3.12"
"""What the tests run on."""
IMPORT_S = 120.0
"""Ray and torch together take 4 s on a warm disk, and 30 s on a cold one."""
LITTLE_MEMORY = 4 * 2**30
"""Bytes below which Ray, two workers with torch and a small model crowd each other out."""
OBJECT_STORE = 0.3
"""Part of the memory that Ray's object store takes by default (ray._private.ray_constants)."""
LOW_SPACE, NO_SPACE = 20 * 2**30, 2**30
"""Bytes on storage: a few checkpoints of a 1-billion-parameter model; not even the quick start's data and runs."""
_PROBE = """
import json, sys
found = {}
for name in sys.argv[1:]:
    try:
        module = __import__(name)
        found[name] = {"version": str(module.__version__)}
        if name == "torch":
            found[name] |= {"cuda": module.version.cuda, "devices": module.cuda.device_count()}
    except BaseException as error:
        found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
print(json.dumps(found))
"""


def examine(storage: str) -> Iterator[Diagnosis]:
    """Every check of this machine but packages, credentials and the local Ray. `storage`: where run folders go."""
    here = socket.gethostname()
    yield python(sys.version_info[:3], here)
    yield from imports(here)
    yield from compiler(here)
    yield from resources(here)
    yield from place(storage)


def python(version: tuple[int, int, int], where: str) -> Diagnosis:
    """The interpreter; a cluster's must have the same minor version."""
    text = ".".join(map(str, version))
    if within(text, TRIED_PYTHON):
        return green("machine.python", where, f"Python {text}, {sys.executable}")
    fix = "use Python 3.11; a cluster's image must have the same minor version"
    return yellow("machine.python", where, f"Python {text}; only 3.11 was tried", fix)


def imports(where: str) -> Iterator[Diagnosis]:
    """Ray and torch, imported in a process of their own, since a broken library may end its process."""
    installed = [name for name in ("ray", "torch") if _installed(name)]
    if not installed:
        return
    command = [sys.executable, "-c", _PROBE, *installed]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_S, check=False)
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        found = {name: {"error": f"no answer within {IMPORT_S:.0f} s"} for name in installed}
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1][:300]
        found = {name: {"error": f"the interpreter ended with {done.returncode}: {last}"} for name in installed}
    for name in installed:
        yield _imported(name, found[name], where)


def _imported(name: str, about: dict[str, object], where: str) -> Diagnosis:
    id = f"machine.{name}"
    if "error" in about:
        why = f"`import {name}` fails: {about['error']}"
        return red(id, where, why, "install it anew: pip install --force-reinstall 'raytrain-eks[train]'")
    if name != "torch":
        return green(id, where, f"{name} {about['version']} imports")
    build = f"CUDA {about['cuda']}" if about["cuda"] else "CPU"
    text = f"torch {about['version']}, a build for {build}, sees {about['devices']} GPUs"
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if gpus and not about["devices"]:
        fix = "install a CUDA build of torch that fits the driver (nvidia-smi shows its CUDA version)"
        return red(id, where, f"{text}, and /dev has {', '.join(gpus)}", fix)
    return green(id, where, text)


def compiler(where: str) -> Iterator[Diagnosis]:
    """DeepSpeed builds its shared-memory communication at the first start on a CPU, by g++ and ninja."""
    if not _installed("deepspeed"):
        return
    missing = [name for name in ("g++", "ninja") if not _program(name)]
    if missing:
        why = f"{' and '.join(missing)} not found: `engine: {{kind: deepspeed}}` builds an extension on a CPU"
        yield yellow("machine.compiler", where, why, "apt install g++; pip install ninja")
    else:
        yield green("machine.compiler", where, "g++ and ninja are here, for DeepSpeed's extensions")


def resources(where: str) -> Iterator[Diagnosis]:
    """CPUs, memory and /dev/shm, as far as this process may use them."""
    from raytrain_eks.submit.head import cores

    cpus, bytes = cores(), memory()
    if cpus < 2:
        why = f"{cpus} CPU for this process: Ray, its workers and the data's tasks take turns"
        yield yellow("machine.cpus", where, why, "two or more make a job several times as fast")
    else:
        yield green("machine.cpus", where, f"{cpus} CPUs")
    if bytes < LITTLE_MEMORY:
        why = f"{mebibytes(bytes)} of memory is little for Ray, two workers and a model"
        yield yellow("machine.memory", where, why, "use `workers: {count: 1}` and a small model, or a cluster")
    else:
        yield green("machine.memory", where, f"{bytes / 2**30:.1f} GiB of memory")
    yield shared_memory(where, memory=bytes)


def shared_memory(where: str, *, memory: int, path: Path = Path("/dev/shm")) -> Diagnosis:
    """/dev/shm, where Ray's object store, NCCL and data loaders put what processes share."""
    try:
        size = shutil.disk_usage(path)
    except OSError:
        fix = "give the container one: docker run --shm-size, or an emptyDir of medium Memory"
        return yellow("machine.shm", where, f"there is no {path}; Ray's object store goes to the disk", fix)
    wanted = int(memory * OBJECT_STORE)
    if size.total <= 64 * 2**20:
        why = f"{path} has {mebibytes(size.total)}, a container runtime's default: NCCL and data loaders die in it"
        fix = "docker run --shm-size=8g; in Kubernetes an emptyDir of medium Memory, which our manifests have"
        return red("machine.shm", where, why, fix)
    if size.free < wanted:
        why = (
            f"{path} has {mebibytes(size.free)} free; Ray's object store wants {mebibytes(wanted)} (30% of the "
            "memory) and goes to the disk instead, which is slow"
        )
        return yellow("machine.shm", where, why, "make it larger, or free it: mount -o remount,size=50% /dev/shm")
    return green("machine.shm", where, f"{path} has {mebibytes(size.free)} free")


def memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its container's limit (cgroup v2)."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def place(storage: str) -> Iterator[Diagnosis]:
    """Where run folders go: whether it can be written, and what is left there."""
    from raytrain_eks.checkpoint.storage import Storage

    id, fix = "machine.storage", "give another place with --storage, `storage:` or $RAYTRAIN_STORAGE"
    try:
        opened = Storage.of(storage)
        opened.check_writable()
    except SpecError as error:
        yield red(id, storage, error.problems[0].rule, error.problems[0].fix or fix)
        return
    except ImportError as error:
        yield red(id, storage, f"{error.name} is not installed, and S3 needs it", "pip install 'raytrain-eks[train]'")
        return
    left = opened.free()
    if left is None:
        yield green(id, storage, "can be written")
    elif left < NO_SPACE:
        yield red(id, storage, f"{mebibytes(left)} left: a checkpoint would not fit", fix)
    elif left < LOW_SPACE:
        why = f"{left / 2**30:.1f} GiB left: few checkpoints of a large model fit"
        yield yellow(id, storage, why, fix)
    else:
        yield green(id, storage, f"can be written, {left / 2**30:.0f} GiB left")


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _program(name: str) -> bool:
    beside = Path(sys.executable).parent / name
    return shutil.which(name) is not None or beside.exists()
