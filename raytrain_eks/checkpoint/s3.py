"""S3 as storage: conditional writes for fencing, ranged reads, parallel multipart writes, retries with jitter.

boto3 and not pyarrow's S3FileSystem, since that one cannot write conditionally (`If-None-Match: *`), and fencing
stands on it. Region, credentials and AWS_ENDPOINT_URL are found the way every AWS tool finds them; with
AWS_S3_ANONYMOUS=1 requests are not signed.
"""

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from raytrain_eks.checkpoint.storage import TEMPORARY, Entry, Storage
from raytrain_eks.spec.problem import Problem, SpecError

Result = TypeVar("Result")

PART = 16 * 2**20
"""Bytes of one part of a multipart upload; grows for files over PART * 10,000 (S3's limit of parts)."""
PARALLEL = 8
"""Requests in flight for one file."""
ATTEMPTS = 6
"""Tries of one request: waits of up to 0.2, 0.4, 0.8, 1.6, 3.2 s between them, full jitter (AWS Architecture Blog,
"Exponential Backoff And Jitter", 2015)."""
_MISSING = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}
_TAKEN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_FINAL = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidRange", "InvalidBucketName"}
_FINAL |= {"ExpiredToken", "InvalidToken", "EntityTooLarge", "NoSuchUpload", "MethodNotAllowed"}


@lru_cache(maxsize=8)
def _client(endpoint: str | None, anonymous: bool, process: int) -> Any:
    """One client per endpoint and process (a client must not cross a fork)."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        # Retries are ours: botocore would not retry a body that breaks off, and two layers of waiting add up.
        retries={"total_max_attempts": 1},
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=4 * PARALLEL,
        signature_version=UNSIGNED if anonymous else "s3v4",
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    session = boto3.session.Session()
    return session.client("s3", config=config, endpoint_url=endpoint, region_name=region or session.region_name)


def client() -> Any:
    """The boto3 client of this process for the endpoint and the credentials of its environment."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    return _client(endpoint, os.environ.get("AWS_S3_ANONYMOUS") == "1", os.getpid())


def _code(error: Exception) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def retrying(call: Callable[[], Result], place: str, attempts: int = ATTEMPTS) -> Result:
    """`call()`, tried again after what may pass: 5xx, SlowDown, time-outs, reset connections, bodies that break off.

    Raises FileNotFoundError for a missing object, PermissionError for a refusal, FileExistsError when a condition
    did not hold, and otherwise OSError(EIO) with the last reason once all attempts are spent.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
    from urllib3.exceptions import HTTPError

    for attempt in range(attempts):
        try:
            return call()
        except ClientError as error:
            code = _code(error)
            if code in _MISSING:
                raise FileNotFoundError(errno.ENOENT, "no such object", place) from None
            # 409 says that another conditional write is under way: it has to be tried again to know who won.
            if code in _TAKEN and code not in ("ConditionalRequestConflict", "409"):
                raise FileExistsError(errno.EEXIST, "already there", place) from None
            if code in _FINAL:
                raise PermissionError(errno.EACCES, f"S3 answers {code}", place) from None
            reason: str = f"S3 answers {code}"
        except NoCredentialsError as error:
            raise PermissionError(errno.EACCES, str(error), place) from None
        except (HTTPClientError, HTTPError, BotoCoreError, OSError) as error:
            if isinstance(error, FileNotFoundError | PermissionError | FileExistsError):
                raise
            reason = f"{type(error).__name__}: {error}"
        if attempt + 1 < attempts:
            time.sleep(random.uniform(0, 0.2 * 2**attempt))
    raise OSError(errno.EIO, f"{reason} (tried {attempts} times)", place)


class S3(Storage):
    """A prefix of a bucket."""

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

    def output(self, path: str) -> "_Upload":
        return _Upload(self, path)

    def open(self, path: str) -> "_Object":
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.place(path))
        return _Object(self, path, size)

    def appender(self, path: str) -> "_ObjectAppender":
        return _ObjectAppender(self, path)

    def _pages(self, prefix: str, **extra: Any) -> Iterator[Any]:
        token: dict[str, str] = {}
        while True:
            page = retrying(
                lambda token=token: client().list_objects_v2(Bucket=self.bucket, Prefix=prefix, **extra, **token),
                f"s3://{self.bucket}/{prefix}",
            )
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
                listed = {"Objects": keys, "Quiet": True}
                place = f"s3://{self.bucket}/{prefix}"
                answer = retrying(
                    lambda listed=listed: client().delete_objects(Bucket=self.bucket, Delete=listed), place
                )
                for failed in answer.get("Errors", ()):
                    raise PermissionError(errno.EACCES, f"not deleted: {failed['Code']}", failed["Key"])

    def move(self, source: str, target: str) -> None:
        names = sorted((name for name, _ in self.files(source)), key=lambda name: not name.endswith("/manifest.json"))
        for name in names:
            there = target + name[len(source) :]
            copied = {"Bucket": self.bucket, "Key": self.key(name)}
            # boto3's `copy` copies in parts what is over 5 GB; both on the server's side.
            retrying(
                lambda copied=copied, there=there: client().copy(copied, self.bucket, self.key(there)), self.place(name)
            )
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


class _Upload:
    """A single put while it fits into one part, otherwise a multipart upload with PARALLEL parts in flight."""

    def __init__(self, storage: S3, path: str):
        self.storage, self.path = storage, path
        self.buffer = bytearray()
        self.part = PART
        self.upload: str | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.parts: list[Future[dict[str, Any]]] = []
        self.room = threading.Semaphore(PARALLEL)

    def write(self, data: memoryview) -> None:
        self.buffer += data
        while len(self.buffer) >= self.part:
            piece = bytes(memoryview(self.buffer)[: self.part])
            del self.buffer[: self.part]
            self._send(piece)

    def _send(self, piece: bytes) -> None:
        if self.upload is None:
            answer = self.storage.call("create_multipart_upload", self.path, ChecksumAlgorithm="CRC32")
            self.upload = answer["UploadId"]
            self.pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="s3-part")
        assert self.pool is not None
        number = len(self.parts) + 1
        if number % 2000 == 0:
            self.part *= 2
        self.room.acquire()
        self.parts.append(self.pool.submit(self._put, number, piece))

    def _put(self, number: int, piece: bytes) -> dict[str, Any]:
        try:
            arguments = {"UploadId": self.upload, "PartNumber": number, "Body": piece, "ChecksumAlgorithm": "CRC32"}
            answer = self.storage.call("upload_part", self.path, **arguments)
        finally:
            self.room.release()
        done = {"PartNumber": number, "ETag": answer["ETag"]}
        return done | ({"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {})

    def commit(self) -> None:
        if self.upload is None:
            self.storage.write(self.path, bytes(self.buffer))
            self.buffer.clear()
            return
        if self.buffer:
            self._send(bytes(self.buffer))
            self.buffer.clear()
        parts = [part.result() for part in self.parts]
        self.storage.call(
            "complete_multipart_upload", self.path, UploadId=self.upload, MultipartUpload={"Parts": parts}
        )
        self.upload = None
        self._stop()

    def abort(self) -> None:
        if self.upload is not None:
            self._stop()
            upload, self.upload = self.upload, None
            try:
                arguments = {"Bucket": self.storage.bucket, "Key": self.storage.key(self.path), "UploadId": upload}
                retrying(lambda: client().abort_multipart_upload(**arguments), self.storage.place(self.path), 2)
            except OSError:
                # The error that led here is the one to hear; the bucket's lifecycle rule clears what is left.
                return

    def _stop(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None


class _ObjectAppender:
    """S3 cannot append: the whole file is written anew, in the background, at most every second and a tenth of a
    second for each megabyte it has, so that a long run does not upload its metrics over and over."""

    def __init__(self, storage: S3, path: str):
        self.storage, self.path = storage, path
        try:
            self.content = bytearray(storage.read(path))
        except FileNotFoundError:
            self.content = bytearray()
        if self.content and not self.content.endswith(b"\n"):
            self.content += b"\n"
        self.sent = len(self.content)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.error: OSError | None = None
        self.thread = threading.Thread(target=self._run, name=f"append-{path}", daemon=True)
        self.thread.start()

    def write(self, data: bytes) -> None:
        with self.lock:
            self.content += data

    def _flush(self) -> None:
        with self.lock:
            content = bytes(self.content) if len(self.content) != self.sent else None
        if content is None:
            return
        try:
            self.storage.write(self.path, content)
            self.sent, self.error = len(content), None
        except OSError as error:
            self.error = error

    def _run(self) -> None:
        while not self.closing.wait(1 + len(self.content) / 1e7):
            self._flush()

    def close(self) -> None:
        if not self.closing.is_set():
            self.closing.set()
            self.thread.join()
            self._flush()
            if self.error is not None:
                raise self.error
