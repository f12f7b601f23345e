"""Files behind a path or a URL: one way to list, read and write them in a folder and on S3.

S3 goes through pyarrow's own filesystem, which takes credentials from the environment, a profile, a web identity or
the instance's role, and honours `AWS_ENDPOINT_URL`. Local writes appear whole (temporary name, then rename); an object
on S3 appears whole when its upload completes.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qsl

from pyarrow import fs

from raytrain_eks.spec.problem import Problem, SpecError

TEMPORARY = ".tmp-"
"""The prefix of a name that is being written; a file of that name is the rest of a killed process."""

S3_OPTIONS = {"region": "region", "endpoint": "endpoint_override", "role": "role_arn", "scheme": "scheme"}
"""What may follow `?` in an S3 URL, beside `anonymous=true` -> the argument of pyarrow's S3FileSystem."""


def _s3(bucket: str, query: str) -> fs.S3FileSystem:
    """The filesystem of a bucket: what the URL says, then the environment, then what S3 says about its region."""
    options = dict(parse_qsl(query))
    unknown = set(options) - set(S3_OPTIONS) - {"anonymous"}
    if unknown:
        rule = f"unknown option of an S3 URL: {', '.join(sorted(unknown))}"
        fix = f"known here: {', '.join([*S3_OPTIONS, 'anonymous'])}"
        raise SpecError([Problem(path="(url)", rule=rule, value=query, fix=fix)])
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    # pyarrow's constructor leaves the endpoint's variables to its URL parser, so they are read here.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options = {"region": region or "", "endpoint": endpoint or "", **options}
    return _filesystem(bucket, tuple(sorted(options.items())))


@lru_cache(maxsize=64)
def _filesystem(bucket: str, options: tuple[tuple[str, str], ...]) -> fs.S3FileSystem:
    arguments: dict[str, Any] = {S3_OPTIONS[key]: value for key, value in options if key in S3_OPTIONS and value}
    scheme, mark, host = arguments.get("endpoint_override", "").partition("://")
    if mark:
        arguments |= {"endpoint_override": host.rstrip("/"), "scheme": scheme}
    arguments["anonymous"] = dict(options).get("anonymous") == "true"
    if not arguments.keys() & {"region", "endpoint_override"}:
        with suppress(OSError):
            arguments["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(**arguments)


@dataclass(frozen=True)
class Place:
    """A folder or file: its filesystem and its path there."""

    url: str
    """As the user wrote it, a local path made absolute."""

    @classmethod
    def of(cls, path: object) -> "Place":
        """The place of a path or an `s3://` URL. Raises SpecError for another scheme."""
        text = os.fspath(path) if isinstance(path, os.PathLike) else str(path)
        if text.startswith("s3://"):
            return cls(text)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" in text:
            fix = "write a folder, a file or s3://bucket/prefix"
            raise SpecError([Problem(path="(url)", rule="this scheme is not known here", value=text, fix=fix)])
        return cls(os.path.abspath(os.path.expanduser(text)))

    @property
    def remote(self) -> bool:
        return self.url.startswith("s3://")

    @property
    def filesystem(self) -> fs.FileSystem:
        if self.remote:
            return _s3(self.path.partition("/")[0], self.url.partition("?")[2])
        return fs.LocalFileSystem()

    @property
    def path(self) -> str:
        """The path within the filesystem: `bucket/prefix` on S3."""
        return self.url.removeprefix("s3://").partition("?")[0].rstrip("/") if self.remote else self.url

    def child(self, name: str) -> "Place":
        """The place of a file or folder below this one."""
        if self.remote:
            head, mark, query = self.url.partition("?")
            return Place(f"{head.rstrip('/')}/{name}{mark}{query}")
        return Place(os.path.join(self.url, name))

    def info(self) -> fs.FileInfo:
        return self.filesystem.get_file_info(self.path)

    def exists(self) -> bool:
        return bool(self.info().type != fs.FileType.NotFound)

    def read(self) -> bytes:
        """All bytes of the file. Raises OSError (FileNotFoundError where it is missing)."""
        with self.filesystem.open_input_file(self.path) as file:
            return bytes(file.read())

    def write(self, data: bytes) -> None:
        """Write the file so that it is either there whole or not at all; its folder is made. Raises OSError."""
        if self.remote:
            with self.filesystem.open_output_stream(self.path) as file:
                file.write(data)
            return
        folder, name = os.path.split(self.path)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}-{name}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def walk(self) -> Iterator[fs.FileInfo]:
        """Every file below this folder, none where the folder is missing; in no stated order."""
        selector = fs.FileSelector(self.path, recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield info

    def relative(self, info: fs.FileInfo) -> str:
        """The name of a file that `walk` gave, relative to this folder, with `/`."""
        return str(PurePosixPath(info.path).relative_to(PurePosixPath(self.path)))

    def delete(self, name: str) -> None:
        self.filesystem.delete_file(self.child(name).path)
