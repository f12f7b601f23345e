"""Which files a source has: listing, glob, and a fingerprint of each that tells when prepared data is stale.

A local file's fingerprint is the BLAKE2 hash of its content up to `WHOLE` bytes, above that of evenly spaced blocks
with its size and time of change; a file on S3 has its size and time of change.
"""

import hashlib
import json
import os
import re
import stat
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import translate

from pyarrow import fs

from raytrain_eks.data.files import TEMPORARY, Place
from raytrain_eks.spec.job_data import STDLIB
from raytrain_eks.spec.problem import Problem, SpecError

STDLIB_FOREIGN = frozenset({"site-packages", "dist-packages"})
STDLIB_TESTS = frozenset({"test", "tests", "idle_test"})
STDLIB_ENOUGH = 700
"""Folders of the library's own tests are left out where at least this many files remain without them."""

SUFFIXES = {
    "text": ("",),
    "jsonl": tuple(kind + packed for kind in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".zst")),
    "parquet": (".parquet", ".pq"),
    "datasets": (".arrow",),
}
"""Format -> the endings of the files that are read when `files` is left at every file."""

EVERY_FILE = "**/*"
WHOLE = 64 * 2**20
BLOCK = 2**16


@dataclass(frozen=True)
class File:
    """One file of a source."""

    name: str
    """Relative to the source, with `/`: the same wherever the source lies."""
    url: str
    size: int
    """Bytes on disk."""
    fingerprint: str

    @property
    def root(self) -> str:
        """Where its source lies: `Place.of(root).child(name)` is the file."""
        head, mark, query = self.url.partition("?") if self.url.startswith("s3://") else (self.url, "", "")
        return head.removesuffix(self.name).rstrip("/") + mark + query


def glob(pattern: str) -> re.Pattern[str]:
    """A glob over relative paths: `**/` any folders or none, `*` and `?` within one name."""
    parts = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        if part in ("**/", "**", "*", "?"):
            parts.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[part])
        else:
            parts.append(translate(part).removeprefix("(?s:").removesuffix(r")\Z"))
    return re.compile("(?s:" + "".join(parts) + r")\Z")


def _hidden(name: str) -> bool:
    return any(part.startswith((".", TEMPORARY)) or part == "__pycache__" for part in name.split("/"))


def list_files(path: str, *, pattern: str, format: str, where: str) -> list[File]:
    """The files of a source with the fingerprints of their content, sorted by relative name.

    `where` is the field that a problem names. Raises SpecError where the path is missing or holds no such file.
    """
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(_fingerprinted, list_names(path, pattern=pattern, format=format, where=where)))


def list_names(path: str, *, pattern: str, format: str, where: str) -> list[File]:
    """The same without a look into local files, whose fingerprints are then their size and time of change; hidden ones
    and `__pycache__` are never read."""
    if path == STDLIB:
        found = _stdlib("**/*.py" if pattern == EVERY_FILE else pattern)
    else:
        found = _listed(path, pattern, format, where)
    if not found:
        shown = f"{pattern} ({', '.join(SUFFIXES[format])})" if format != "text" and pattern == EVERY_FILE else pattern
        fix = "name another folder, or change data.files or data.format"
        raise SpecError([Problem(path=where, value=path, rule=f"holds no file that matches {shown}", fix=fix)])
    return sorted(found, key=lambda file: file.name)


def _listed(path: str, pattern: str, format: str, where: str) -> list[File]:
    place = Place.of(path)
    try:
        info = place.info()
        if info.type == fs.FileType.NotFound:
            fix = "write the path of a folder or a file, or s3://bucket/prefix; relative to the working directory"
            raise SpecError([Problem(path=where, value=path, rule=f"there is nothing at {place.url}", fix=fix)])
        if info.type == fs.FileType.File:
            return [_file(place.url, info, info.base_name)]
        found = _remote(place) if place.remote else _local(place)
    except OSError as error:
        raise SpecError([Problem(path=where, value=path, rule=f"cannot be listed: {error}")]) from None
    if format == "datasets":
        found = _saved_datasets(found, path, where)
    match = glob(pattern).match
    wanted = SUFFIXES[format] if pattern == EVERY_FILE else ("",)
    wanted_name = [file for file in found if match(file.name) and file.name.endswith(wanted)]
    return [file for file in wanted_name if not _hidden(file.name)]


def _saved_datasets(found: list[File], path: str, where: str) -> list[File]:
    """The Arrow files that belong to data sets which `save_to_disk` wrote; of a dictionary of splits, `train`.

    Files of `map`'s cache lie beside them and are none of the data.
    """
    by_name = {file.name: file for file in found}
    if "dataset_dict.json" in by_name:
        splits = json.loads(Place.of(by_name["dataset_dict.json"].url).read())["splits"]
        if "train" not in splits:
            fix = f"write {path.rstrip('/')}/{splits[0]}" if splits else "save it again"
            rule = f"has the splits {', '.join(splits)} and no train"
            raise SpecError([Problem(path=where, value=path, rule=rule, fix=fix)])
        found = [file for file in found if file.name.startswith("train/")]
    states = [file for file in found if file.name.rpartition("/")[2] == "state.json"]
    if not states:
        return [file for file in found if not file.name.rpartition("/")[2].startswith("cache-")]
    kept = []
    for state in states:
        folder = state.name.removesuffix("state.json")
        content = json.loads(Place.of(state.url).read())
        if content.get("_indices_data_files"):
            rule = f"{state.name} says that its rows were selected or shuffled, and the order lies elsewhere"
            fix = "save it again: dataset.flatten_indices().save_to_disk(...)"
            raise SpecError([Problem(path=where, value=path, rule=rule, fix=fix)])
        names = [folder + entry["filename"] for entry in content["_data_files"]]
        kept += [by_name[name] if name in by_name else File(name, state.url, 0, "missing") for name in names]
    return kept


def _remote(place: Place) -> list[File]:
    named = ((place.relative(info), info) for info in place.walk())
    return [_file(place.child(name).url, info, name) for name, info in named]


def _local(root: Place, foreign: frozenset[str] = frozenset()) -> list[File]:
    """Every file below a local folder that is not hidden; a link to nowhere as well, since reading it must fail."""

    def failed(error: OSError) -> None:
        raise error

    found = []
    for folder, below, names in os.walk(root.url, onerror=failed):
        below[:] = [name for name in below if name not in foreign and not _hidden(name)]
        for name in names:
            full = os.path.join(folder, name)
            status = os.stat(full) if os.path.exists(full) else os.lstat(full)
            relative = os.path.relpath(full, root.url).replace(os.sep, "/")
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                found.append(File(relative, full, status.st_size, f"{status.st_size}-{status.st_mtime_ns}"))
    return found


def _file(url: str, info: fs.FileInfo, name: str) -> File:
    return File(name=name, url=url, size=info.size, fingerprint=f"{info.size}-{info.mtime_ns}")


def stdlib_folder() -> str:
    """The folder with the source of the standard library of this interpreter."""
    return sysconfig.get_paths()["stdlib"]


def _stdlib(pattern: str) -> list[File]:
    matches = glob(pattern)
    found = _local(Place.of(stdlib_folder()), STDLIB_FOREIGN)
    found = [file for file in found if matches.match(file.name) and not _hidden(file.name)]
    own = [file for file in found if not STDLIB_TESTS.intersection(file.name.split("/")[:-1])]
    return own if len(own) >= STDLIB_ENOUGH else found


def _fingerprinted(file: File) -> File:
    """A local file with the hash of its content; one that cannot be read keeps size and time (reading counts it)."""
    if file.url.startswith("s3://"):
        return file
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open(file.url, "rb") as opened:
            if file.size <= WHOLE:
                while block := opened.read(2**20):
                    digest.update(block)
            else:
                digest.update(file.fingerprint.encode())
                for start in range(0, file.size, max(file.size // 64, BLOCK)):
                    opened.seek(start)
                    digest.update(opened.read(BLOCK))
    except OSError:
        return file
    return File(name=file.name, url=file.url, size=file.size, fingerprint=digest.hexdigest())


def total_bytes(files: Iterable[File]) -> int:
    return sum(file.size for file in files)
