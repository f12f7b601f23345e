"""How the code of a job reaches a cluster that Kubernetes starts: one archive with the working directory, the job file
and raytrain-eks itself, which Ray unpacks as the working directory of the driver and of every worker.

- `configmap`: as one xz stream in a ConfigMap of the job, which the pod that submits unpacks; for all that is small.
- `storage`: beside the runs, in `.packages/`; for more, where the storage can be written from here: S3, or a folder
  that is mounted here under the same path.
- `image`: the image has raytrain-eks and what the job imports; only the job file goes, in a ConfigMap.
"""

import lzma
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from raytrain_eks.submit.errors import TargetError, TooLarge
from raytrain_eks.submit.package import Package, mebibytes, of_library
from raytrain_eks.submit.target import Say, Submission

How = Literal["auto", "configmap", "storage", "image"]
WAYS: tuple[How, ...] = ("auto", "configmap", "storage", "image")

CONFIG_MAP_LIMIT = 2**20 - 2**16
"""Bytes of the archive: the values of a ConfigMap may have 1 MiB together (validation.go, MaxSecretSize); 64 KiB of it
are left for whoever adds to the object on its way."""
HOPELESS = 32 * 2**20
"""Bytes before packing that are not even tried: text shrinks to a fifth."""
PACKED, UNPACKED = "/raytrain/packed", "/raytrain/unpacked"
"""Where the pod that submits sees the ConfigMap, and where its init container unpacks it."""
ARCHIVE = "working_dir.zip"
UNPACK = (
    f"import lzma, shutil; shutil.copyfileobj(lzma.open('{PACKED}/{ARCHIVE}.xz'), open('{UNPACKED}/{ARCHIVE}', 'wb'))"
)
"""The init container's program: Ray takes no archive but zip, and packs every file of a zip by itself, which makes
thousands of small files twice as large as one stream."""
PACKAGES = ".packages"
"""Beside the runs of a storage."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """An archive and its way."""

    how: Literal["configmap", "storage", "image"]
    content: bytes
    """A zip archive, in an xz stream for a ConfigMap."""
    uri: str
    """What Ray is told: a path in the pod that submits, or a URL that every node reads."""
    name: str
    """In the ConfigMap, or in the storage."""

    @property
    def mounted(self) -> bool:
        """Whether it is in a ConfigMap."""
        return self.how != "storage"

    def said(self) -> str:
        """For people."""
        size = mebibytes(len(self.content))
        if self.how == "image":
            return f"code: the image's own; the job file ({size}) goes in a ConfigMap"
        if self.how == "configmap":
            return f"code: {size} with raytrain-eks, in a ConfigMap"
        return f"code: {size} with raytrain-eks, {self.uri}"

    def put(self, storage: str) -> None:
        """Write the archive into the storage unless it is there. Raises OSError."""
        from raytrain_eks.checkpoint.storage import Storage

        place = Storage.of(storage)
        if not self.mounted and place.size(self.name) is None:
            place.write(self.name, self.content)


def pack(submission: Submission, how: How, *, storage: str, mounts: Iterable[str], say: Say) -> Code:
    """The archive of a submission, and the first way that takes it. Raises TooLarge when none does."""
    if how == "image":
        files = tuple(file for file in submission.package.files if file.name == submission.job_file)
        return _in_configmap(replace(submission.package, files=files), "image")
    whole = with_library(submission.package)
    if how == "storage":
        if not writable(storage, mounts):
            raise TargetError(
                f"--code storage: {storage} cannot be written from here\n"
                "  it must be s3://, or a volume of the cluster that is mounted here under the same path"
            )
        return _in_storage(whole, storage)
    code = _in_configmap(whole, "configmap") if whole.size <= HOPELESS else None
    if code is not None and len(code.content) <= CONFIG_MAP_LIMIT:
        return code
    if how == "auto" and writable(storage, mounts):
        say(f"the working directory has {mebibytes(whole.size)} with raytrain-eks, more than a ConfigMap takes")
        return _in_storage(whole, storage)
    raise TooLarge(_too_large(submission.package, None if code is None else len(code.content)))


def with_library(package: Package) -> Package:
    """The package with raytrain-eks in it. A working directory that is a checkout of it keeps its own."""
    names = {file.name for file in package.files}
    there = {name.partition("/")[0] for name in names if name.endswith("/__init__.py")}
    added = [file for file in of_library().files if file.name.partition("/")[0] not in there]
    return replace(package, files=tuple(sorted([*package.files, *added], key=lambda file: file.name)))


def writable(storage: str, mounts: Iterable[str]) -> bool:
    """Whether what is written into the storage here is there as well: S3, or the mount point of a volume of the
    cluster that is one on this machine too."""
    if "://" in storage:
        return storage.startswith("s3://")
    own = [mount for mount in mounts if storage == mount or storage.startswith(f"{mount}/")]
    return any(os.path.ismount(mount) for mount in own)


def _in_configmap(package: Package, how: Literal["configmap", "image"]) -> Code:
    with package.archive(level=0) as (path, _):
        content = lzma.compress(path.read_bytes())
    return Code(how=how, content=content, name=f"{ARCHIVE}.xz", uri=f"{UNPACKED}/{ARCHIVE}")


def _in_storage(package: Package, storage: str) -> Code:
    with package.archive() as (path, digest):
        content = path.read_bytes()
    place = storage.rstrip("/") if "://" in storage else f"file://{storage.rstrip('/')}"
    name = f"{PACKAGES}/{digest}.zip"
    return Code(how="storage", content=content, name=name, uri=f"{place}/{name}")


def _too_large(package: Package, packed: int | None) -> str:
    shown = [f"    {mebibytes(size):>12}  {name}" for name, size in package.largest()]
    told = f", {mebibytes(packed)} packed with raytrain-eks" if packed is not None else ""
    return "\n".join(
        [
            f"{package.root}: {mebibytes(package.size)} in {len(package.files)} files{told}; "
            f"a ConfigMap takes {mebibytes(CONFIG_MAP_LIMIT)}",
            "  the largest:",
            *shown,
            "  leave out what the job does not need in .rayignore or choose another folder with --working-dir;",
            "  or use `storage: s3://...`, which takes more; or --code image, when the image has it all",
        ]
    )
