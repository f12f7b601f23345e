"""A second home for checkpoints: committed ones are copied from where training writes to S3 (or any other storage).

A mirror is a run folder again. With codec `none` it is the same byte for byte and can be trained from as it is;
otherwise the ranks' data files are packed and `packed.json` beside them says how. As in a run, a checkpoint exists in
the mirror when its manifest is written, which comes last. Checksums go from end to end: each block is checked against
the checksum that was taken of the tensors' memory before it is packed, S3 checks what it received, and each block is
checked again when it comes back. Files that are there already are not sent again. Imports neither torch nor ray.
"""

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.checkpoint.codec import Codec
from raytrain_eks.checkpoint.manifest import (
    MANIFEST,
    PACKED,
    Damaged,
    Manifest,
    Record,
    block_checksum,
    bytes_checksum,
    committed,
)
from raytrain_eks.checkpoint.retention import Retention, being_read, prune
from raytrain_eks.checkpoint.run import ATTEMPTS, CHECKPOINTS, RUN, Fenced, RunFolder
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.checkpoint.verify import read_records, threads

KEEP = Retention(last=5, best=1)
PLANES = Codec("planes")
Packed = memoryview | bytes
ASIDE = {CHECKPOINTS, "control"}
"""Folders of a run that are not copied as they are."""


@dataclass
class Copied:
    """What one pass of the mirror did."""

    checkpoints: list[int] = field(default_factory=list)
    """Steps that the mirror has now and had not before."""
    removed: list[int] = field(default_factory=list)
    files: int = 0
    read: int = 0
    """Bytes read from the source."""
    sent: int = 0
    """Bytes written to the mirror, packed."""


class Mirror:
    """The copy of one run in another storage."""

    def __init__(
        self,
        run: RunFolder,
        place: str | Storage,
        *,
        keep: Retention = KEEP,
        codec: Codec = PLANES,
        say: Callable[[str], None] = lambda text: None,
    ):
        """`place` is the mirror's storage; the run lies in it under its name, beside other runs."""
        self.run = run
        self.copy = RunFolder(place, run.name)
        self.keep, self.codec, self.say = keep, codec, say
        self._known: dict[str, str] = {}
        """Small file -> checksum of what the mirror has."""

    # -- there --------------------------------------------------------------------------------------------------

    def sync(self) -> Copied:
        """Copy what the mirror has not, newest checkpoint first, then let the oldest go. Raises OSError when either
        storage does not answer; what was copied until then stays and is not copied again. Raises Fenced when the mirror
        is of a newer attempt than this run folder, or of another run."""
        done = Copied()
        self._check_owner()
        # Attempts first: they say which manifests count.
        self._small_files(done)
        there = {each.step: each for each in committed(self.copy)}
        known = {each.key for each in there.values()}
        ours = [each for each in committed(self.run) if each.key not in known]
        wanted = self.keep.stay([*there.values(), *ours])
        for manifest in sorted(ours, key=lambda each: -each.step):
            if manifest.step not in wanted:
                continue
            try:
                # There it is not yet complete, and another mirror's clearing up must not take it for an orphan.
                with being_read(self.run, manifest.step), being_read(self.copy, manifest.step):
                    self._checkpoint(manifest, done)
            except FileNotFoundError:
                # Deleted while it was copied: by the run's own retention, since newer ones are there.
                continue
            except Damaged as error:
                self.say(f"checkpoint of step {manifest.step} is not whole and is not mirrored: {error}")
                continue
            done.checkpoints.append(manifest.step)
        done.removed = prune(self.copy, self.keep, say=self.say)
        return done

    def _check_owner(self) -> None:
        theirs, ours = self.copy.identity(), self.run.identity()
        if ours is None:
            raise FileNotFoundError(2, "no run here (no run.json)", self.run.url)
        if theirs is not None and theirs["run_id"] != ours["run_id"]:
            raise Fenced(f"{self.copy.url} holds another run of the name `{self.run.name}`; give this one a new name")
        if max(self.copy.attempts(), default=0) > max(self.run.attempts(), default=0):
            raise Fenced(f"{self.copy.url} is of a newer attempt than {self.run.url}, which is out of date")

    def _small_files(self, done: Copied) -> None:
        for path, size in sorted(_small(self.run), key=lambda item: not item[0].startswith(ATTEMPTS)):
            data = self.run.storage.read(path)
            checksum = bytes_checksum(data)
            if self._known.get(path) == checksum:
                continue
            if path in self._known or not self._same(path, size, data):
                self.copy.storage.write(path, data)
                done.files += 1
                done.sent += len(data)
            done.read += len(data)
            self._known[path] = checksum

    def _same(self, path: str, size: int, data: bytes) -> bool:
        return self.copy.storage.size(path) == size and self.copy.storage.read(path) == data

    def _checkpoint(self, manifest: Manifest, done: Copied) -> None:
        source = self.run.storage.child(*manifest.folder.split("/"))
        target = self.copy.storage.child(*manifest.folder.split("/"))
        content = source.read(MANIFEST)
        packed = self._packed(target)
        for record, stored in zip(read_records(source, manifest), manifest.records, strict=True):
            if packed.get(record.file, {}).get("checksum") != record.checksum:
                sizes = self._send(source, target, record, done)
                packed[record.file] = {"checksum": record.checksum, "codec": self.codec.name, "blocks": sizes}
                # After each file, so that an upload that breaks off goes on where it stopped.
                target.write(PACKED, json.dumps(packed).encode())
            if target.size(stored.name) != stored.size:
                target.write(stored.name, source.read(stored.name))
                done.files += 1
        if not target.create(MANIFEST, content):
            target.write(MANIFEST, content)

    @staticmethod
    def _packed(target: Storage) -> dict[str, Any]:
        try:
            found = json.loads(target.read(PACKED))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _send(self, source: Storage, target: Storage, record: Record, done: Copied) -> list[int]:
        """One data file, block by block; the packed size of each block."""
        file = source.open(record.file)
        output = target.output(record.file + self.codec.suffix)
        sizes = []

        def pack(number: int) -> Packed:
            begin, size = record.span(number)
            block = memoryview(bytearray(size))
            file.read_into(begin, block)
            if block_checksum(block) != record.blocks[number]:
                raise Damaged(f"{record.file} is not what was written (block {number})")
            return self.codec.pack(block)

        try:
            for packed in in_order(pack, len(record.blocks)):
                output.write(memoryview(packed))
                sizes.append(len(packed))
            output.commit()
        except OSError as error:
            if "too early" in str(error):
                raise Damaged(f"{record.file} is shorter than what was written") from None
            raise
        finally:
            output.abort()
            file.close()
        done.files += 1
        done.read += record.size
        done.sent += sum(sizes)
        return sizes

    # -- and back -----------------------------------------------------------------------------------------------

    def bring_identity(self) -> bool:
        """Bring back what a run is (job, identity, attempts, metrics) where the run folder has none; whether it did.

        `run.json` comes last, so that a run that is half brought back is not yet one. Raises OSError when the mirror
        does not answer.
        """
        if self.run.identity() is not None or self.copy.identity() is None:
            return False
        names = [path for path, _ in _small(self.copy)]
        for path in sorted(names, key=lambda path: path == RUN):
            self.run.storage.write(path, self.copy.storage.read(path))
        self.say(f"brought `{self.run.name}` back from {self.copy.url}")
        return True

    def missing(self) -> list[int]:
        """Steps that the mirror has and that are newer than the newest here, ascending."""
        newest = max((each.step for each in committed(self.run)), default=-1)
        return [each.step for each in committed(self.copy) if each.step > newest]

    def bring(self, step: int) -> Manifest:
        """Bring a checkpoint back, each block checked; it exists here when its manifest is written. Raises Damaged
        when what the mirror has is not what was written, FileNotFoundError when it has no such checkpoint."""
        manifest = next((each for each in committed(self.copy) if each.step == step), None)
        if manifest is None:
            raise FileNotFoundError(2, "no such checkpoint in the mirror", f"{self.copy.url}/{CHECKPOINTS}/{step}")
        source = self.copy.storage.child(*manifest.folder.split("/"))
        target = self.run.storage.child(*manifest.folder.split("/"))
        packed = self._packed(source)
        with being_read(self.copy, step):
            for record, stored in zip(read_records(source, manifest), manifest.records, strict=True):
                self._receive(source, target, record, packed.get(record.file, {}))
                target.write(stored.name, source.read(stored.name))
            target.write(MANIFEST, source.read(MANIFEST))
        self.run.admit(manifest.key)
        self.say(f"brought the checkpoint of step {step} back from {self.copy.url}")
        return manifest

    @staticmethod
    def _receive(source: Storage, target: Storage, record: Record, about: dict[str, Any]) -> None:
        codec = Codec(about.get("codec", "none"))
        whole = [record.span(number)[1] for number in range(len(record.blocks))]
        sizes = about.get("blocks", whole)
        starts = [0, *itertools.accumulate(sizes)]
        try:
            file = source.open(record.file + codec.suffix)
        except FileNotFoundError:
            raise Damaged(f"{record.file}{codec.suffix} is missing in the mirror") from None
        output = target.output(record.file)

        def unpack(number: int) -> Packed:
            packed = memoryview(bytearray(sizes[number]))
            file.read_into(starts[number], packed)
            try:
                block = codec.unpack(packed, whole[number])
            except ValueError as error:
                raise Damaged(f"{record.file}: block {number}: {error}") from None
            if block_checksum(block) != record.blocks[number]:
                raise Damaged(f"{record.file}: block {number} of the mirror is not what was written")
            return block

        try:
            for block in in_order(unpack, len(record.blocks)):
                output.write(memoryview(block))
            output.commit()
        finally:
            output.abort()
            file.close()


def _small(run: RunFolder) -> Iterator[tuple[str, int]]:
    """What is copied as it is: path and size."""
    for entry in run.storage.entries():
        if not entry.is_folder:
            yield entry.name, entry.size
        elif entry.name not in ASIDE:
            yield from run.storage.files(entry.name)


def in_order(make: Callable[[int], Packed], count: int) -> Iterator[Packed]:
    """`make(0)`, `make(1)`, ... in order, a few of them ahead in threads, so that memory stays bounded."""
    ahead = 2 * threads()
    with ThreadPoolExecutor(threads(), thread_name_prefix="mirror") as pool:
        waiting: deque[Future[Packed]] = deque(pool.submit(make, number) for number in range(min(ahead, count)))
        following = len(waiting)
        while waiting:
            yield waiting.popleft().result()
            if following < count:
                waiting.append(pool.submit(make, following))
                following += 1
