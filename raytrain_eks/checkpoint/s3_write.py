"""Writing to S3: large objects in parallel parts, and files of lines that grow."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from raytrain_eks.checkpoint.s3_client import PARALLEL, client, retrying

if TYPE_CHECKING:
    from raytrain_eks.checkpoint.s3 import S3

PART = 16 * 2**20
"""Bytes of one part of a multipart upload; doubles each 2,000 parts, so that 10,000 parts (S3's limit) hold 5 TB."""


class Upload:
    """A single put while it fits into one part, otherwise a multipart upload with PARALLEL parts in flight."""

    def __init__(self, storage: "S3", path: str):
        self.storage, self.path = storage, path
        self.part = PART
        self.buffer = bytearray(0)
        """The part in the making; handed over whole, so that data is copied once."""
        self.filled = 0
        self.upload: str | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.parts: list[Future[dict[str, Any]]] = []
        self.room = threading.Semaphore(PARALLEL)

    def write(self, data: memoryview) -> None:
        while len(data):
            if self.filled == len(self.buffer):
                self._next(len(data))
            count = min(len(self.buffer) - self.filled, len(data))
            with memoryview(self.buffer) as room:
                room[self.filled : self.filled + count] = data[:count]
            self.filled += count
            data = data[count:]

    def _next(self, wanted: int) -> None:
        """Make room: the buffer grows up to the size of a part, and then it is sent."""
        if self.filled == self.part:
            self._send(self.buffer)
            self.buffer, self.filled = bytearray(self.part), 0
        else:
            self.buffer.extend(bytes(min(max(wanted, self.filled), self.part - self.filled)))

    def _send(self, piece: bytearray | memoryview) -> None:
        failed = next((part for part in self.parts[-2 * PARALLEL :] if part.done() and part.exception()), None)
        if failed is not None:
            failed.result()
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

    def _put(self, number: int, piece: bytearray | memoryview) -> dict[str, Any]:
        try:
            arguments = {
                "UploadId": self.upload,
                "PartNumber": number,
                "Body": bytearray(piece) if isinstance(piece, memoryview) else piece,
                "ChecksumAlgorithm": "CRC32",
            }
            answer = self.storage.call("upload_part", self.path, **arguments)
        finally:
            self.room.release()
        done = {"PartNumber": number, "ETag": answer["ETag"]}
        return done | ({"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {})

    def commit(self) -> None:
        if self.upload is None:
            self.storage.write(self.path, bytes(memoryview(self.buffer)[: self.filled]))
            return
        if self.filled:
            self._send(memoryview(self.buffer)[: self.filled])
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
                retrying(partial(client().abort_multipart_upload, **arguments), self.storage.place(self.path), 2)
            except OSError:
                # The error that led here is the one to hear; the bucket's lifecycle rule clears what is left.
                return

    def _stop(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None


class ObjectAppender:
    """S3 cannot append: the whole file is written anew, in the background, at most every second and a tenth of a
    second for each megabyte it has, so that a long run does not upload its metrics over and over."""

    def __init__(self, storage: "S3", path: str):
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
