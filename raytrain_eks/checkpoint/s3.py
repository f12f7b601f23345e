"""S3 as storage: conditional writes for fencing, ranged reads, parallel multipart writes, lines that are appended."""

import errno
from collections.abc import Iterator
from functools import partial
from typing import Any

from raytrain_eks.checkpoint.s3_client import client, retrying
from raytrain_eks.checkpoint.s3_write import ObjectAppender, Upload
from raytrain_eks.checkpoint.storage import TEMPORARY, Entry, Storage
from raytrain_eks.spec.problem import Problem, SpecError


class S3(Storage):
    """A prefix of a bucket."""

    slab = 16 * 2**20
    is_far = True

    def __init__(self, bucket: str, prefix: str):
        self.bucket = bucket
        self.prefix = prefix
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")

    @classmethod
    def parse(cls, url: str) -> "S3":
        """The prefix of an `s3://bucket/prefix` URL. Raises SpecError when it names no bucket."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            rule = "an s3:// URL names a bucket"
            raise SpecError([Problem(path="storage", value=url, rule=rule, fix="for example s3://my-bucket/runs")])
        return cls(bucket, prefix.strip("/"))

    def child(self, *names: str) -> "S3":
        return S3(self.bucket, "/".join([*([self.prefix] if self.prefix else []), *names]))

    def key(self, path: str) -> str:
        """The object's key of a path."""
        return "/".join(part for part in (self.prefix, path) if part)

    def place(self, path: str) -> str:
        """The object's URL, for messages."""
        return f"{self.url}/{path}" if path else self.url

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """One request on the object of a path, with retries."""
        function = getattr(client(), method)
        return retrying(lambda: function(Bucket=self.bucket, Key=self.key(path), **arguments), self.place(path))

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        span = f"bytes={start}" if start < 0 else f"bytes={start}-{'' if length is None else start + length - 1}"
        ranged = {} if start == 0 and length is None else {"Range": span}

        def get() -> bytes:
            answer = client().get_object(Bucket=self.bucket, Key=self.key(path), **ranged)
            body: bytes = answer["Body"].read()
            if len(body) != answer["ContentLength"]:
                raise OSError(errno.EIO, "the body broke off", self.place(path))
            return body[:length] if start < 0 and length is not None else body

        try:
            return retrying(get, self.place(path))
        except PermissionError as error:
            if "InvalidRange" in str(error):
                return b""
            raise

    def write(self, path: str, data: bytes) -> None:
        # Without a checksum of its own S3 would store a body that was damaged on its way.
        self.call("put_object", path, Body=data, ChecksumAlgorithm="CRC32")

    def create(self, path: str, data: bytes) -> bool:
        """As `Storage.create`. A retry that finds the object taken compares contents: it may be our own, whose answer
        was lost on the way. (Two writers of equal content must so not both ask: ours carry a random token.)"""
        try:
            self.call("put_object", path, Body=data, ChecksumAlgorithm="CRC32", IfNoneMatch="*")
        except FileExistsError:
            return self.read(path) == data
        return True

    def exchange(self, path: str, old: bytes, new: bytes) -> bool:
        def get() -> tuple[bytes, str]:
            answer = client().get_object(Bucket=self.bucket, Key=self.key(path))
            return answer["Body"].read(), answer["ETag"]

        try:
            content, tag = retrying(get, self.place(path))
            if content != old:
                return False
            self.call("put_object", path, Body=new, ChecksumAlgorithm="CRC32", IfMatch=tag)
        except FileNotFoundError:
            return False
        except FileExistsError:
            return self.read(path) == new
        return True

    def output(self, path: str) -> "Upload":
        return Upload(self, path)

    def open(self, path: str) -> "_Object":
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.place(path))
        return _Object(self, path, size)

    def appender(self, path: str) -> "ObjectAppender":
        return ObjectAppender(self, path)

    def _pages(self, prefix: str, **extra: Any) -> Iterator[Any]:
        token: dict[str, str] = {}
        while True:
            listing = partial(client().list_objects_v2, Bucket=self.bucket, Prefix=prefix, **extra, **token)
            page = retrying(listing, f"s3://{self.bucket}/{prefix}")
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def entries(self, path: str = "") -> list[Entry]:
        prefix = f"{key}/" if (key := self.key(path)) else ""
        found = []
        for page in self._pages(prefix, Delimiter="/"):
            for item in page.get("Contents", ()):
                name = item["Key"][len(prefix) :]
                if name and not name.startswith(TEMPORARY):
                    found.append(Entry(name, False, item["Size"]))
            folders = (item["Prefix"] for item in page.get("CommonPrefixes", ()))
            found += [Entry(folder[len(prefix) : -1], True, 0) for folder in folders]
        return sorted(found, key=lambda entry: entry.name)

    def _head(self, path: str) -> Any:
        try:
            return self.call("head_object", path)
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        head = self._head(path)
        return None if head is None else int(head["ContentLength"])

    def modified(self, path: str) -> float | None:
        head = self._head(path)
        return None if head is None else float(head["LastModified"].timestamp())

    def remove(self, path: str) -> None:
        self.call("delete_object", path)

    def remove_tree(self, path: str) -> None:
        prefix = f"{self.key(path)}/"
        for page in self._pages(prefix):
            keys = [{"Key": item["Key"]} for item in page.get("Contents", ())]
            if keys:
                delete = partial(client().delete_objects, Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})
                answer = retrying(delete, f"s3://{self.bucket}/{prefix}")
                for failed in answer.get("Errors", ()):
                    raise PermissionError(errno.EACCES, f"not deleted: {failed['Code']}", failed["Key"])

    def remove_empty(self, path: str) -> None:
        """A prefix without objects does not exist."""

    def move(self, source: str, target: str) -> None:
        names = sorted((name for name, _ in self.files(source)), key=lambda name: not name.endswith("/manifest.json"))
        for name in names:
            there = target + name[len(source) :]
            copied = {"Bucket": self.bucket, "Key": self.key(name)}
            # boto3's `copy` copies in parts what is over 5 GB; both on the server's side.
            retrying(partial(client().copy, copied, self.bucket, self.key(there)), self.place(name))
            self.remove(name)

    def free(self) -> int | None:
        return None


class _Object:
    def __init__(self, storage: S3, path: str, size: int):
        self.storage, self.path, self.size = storage, path, size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset + len(buffer) > self.size:
            reason = f"has {self.size} bytes, {offset + len(buffer)} are expected"
            raise OSError(errno.EIO, reason, self.storage.place(self.path))
        buffer[:] = self.storage.read(self.path, offset, len(buffer))

    def close(self) -> None:
        """Nothing is held open."""
