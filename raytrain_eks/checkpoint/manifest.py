"""What makes a checkpoint exist: its manifest, and the records of the ranks that the manifest names.

    checkpoints/step-00000050/a0002-3f9c2d110001-r00000.safetensors   data of rank 0, a plain safetensors file
    checkpoints/step-00000050/a0002-3f9c2d110001-r00000.json          its record: tensors, checksums of its blocks
    checkpoints/step-00000050/manifest.json                           written last

File names carry the attempt and a token of the save, so that no two saves ever write the same file. Checksums are
XXH3-128 of blocks of 8 MiB, so that many threads may check one file; a file's checksum is that of its blocks'
checksums. The manifest carries a checksum of itself (BLAKE2b). Imports neither torch nor ray.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

from raytrain_eks.checkpoint.run import CHECKPOINTS, RunFolder

MANIFEST = "manifest.json"
PACKED = "packed.json"
"""In a mirror: how data files are packed."""
PACKED_SUFFIXES = (".zst", ".gz", ".planes")
FORMAT = 1
BLOCK = 8 * 2**20
"""Bytes of a block with a checksum of its own."""
_STEP = re.compile(r"step-(\d{8,})")
_BAD = re.compile(r"step-(\d{8,})\.bad-(\d+)")


class Damaged(Exception):
    """A checkpoint that cannot be used; says which file and why."""


def step_folder(step: int) -> str:
    """Where the checkpoint of a step lies, relative to the run folder."""
    return f"{CHECKPOINTS}/step-{step:08d}"


def block_checksum(data: Any) -> bytes:
    """16 bytes: XXH3-128 of a block (any buffer). Releases the GIL."""
    import xxhash

    return xxhash.xxh3_128_digest(data)


def parts_checksum(parts: Iterable[Any]) -> bytes:
    """That of a block which comes part after part."""
    import xxhash

    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.digest()


def file_checksum(blocks: Iterable[bytes]) -> str:
    """The checksum of a file from those of its blocks, in hex."""
    return block_checksum(b"".join(blocks)).hex()


def bytes_checksum(data: bytes) -> str:
    """The checksum of a small file that is at hand."""
    return file_checksum(block_checksum(data[at : at + BLOCK]) for at in range(0, max(len(data), 1), BLOCK))


@dataclass(frozen=True)
class Piece:
    """A part of a logical tensor in a rank's file: an N-D box, or a 1-D range of the flattened tensor."""

    name: str
    dtype: str
    """safetensors' name: F32, BF16, I64, ..."""
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...] | None
    """Of the box; None for a flat range."""
    shape: tuple[int, ...]
    """Of the box; `(length,)` for a flat range."""
    flat_start: int | None
    """First element of the flat range; None for a box."""
    begin: int
    """First byte in the file."""
    end: int
    """One past the last byte."""


@dataclass(frozen=True)
class Record:
    """What one rank wrote."""

    file: str
    rank: int
    size: int
    """Bytes of the file."""
    block: int
    """Bytes of a block; the last one may be shorter."""
    blocks: tuple[bytes, ...]
    """Checksum of each block."""
    pieces: tuple[Piece, ...]
    meta: dict[str, Any] = field(default_factory=dict)
    """What this rank wants to find again at the same world size."""

    def dump(self) -> bytes:
        """As JSON; pieces as short lists, since there may be a hundred thousand."""
        columns = ("name", "dtype", "global_shape", "offsets", "shape", "flat_start", "begin", "end")
        pieces = [[getattr(piece, column) for column in columns] for piece in self.pieces]
        body = {"format": FORMAT, "file": self.file, "rank": self.rank, "size": self.size, "block": self.block}
        body |= {"blocks": b"".join(self.blocks).hex(), "columns": columns, "pieces": pieces, "meta": self.meta}
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes) -> "Record":
        """Raises Damaged when it is no record."""
        try:
            body = json.loads(data)
            digests = bytes.fromhex(body["blocks"])
            pieces = tuple(
                Piece(name, dtype, tuple(whole), None if offsets is None else tuple(offsets), tuple(shape), *rest)
                for name, dtype, whole, offsets, shape, *rest in body["pieces"]
            )
            blocks = tuple(digests[at : at + 16] for at in range(0, len(digests), 16))
            return cls(body["file"], body["rank"], body["size"], body["block"], blocks, pieces, body["meta"])
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"not a rank's record: {error}") from None

    def span(self, number: int) -> tuple[int, int]:
        """First byte of a block, and how many it has."""
        begin = number * self.block
        return begin, min(self.block, self.size - begin)

    @property
    def checksum(self) -> str:
        """Of the file."""
        return file_checksum(self.blocks)


@dataclass(frozen=True)
class Stored:
    """A file of a checkpoint, as the manifest names it."""

    name: str
    size: int
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """A checkpoint: it exists when this is written."""

    step: int
    attempt: int
    token: str
    """Of the worker group that wrote it."""
    world: int
    files: tuple[Stored, ...]
    """Data files and records, of all ranks."""
    meta: dict[str, Any]
    """What the training loop needs to go on: data state, schedule, random state."""
    loss: float | None
    """Held-out loss by which the best are kept; None when it was not measured."""
    spec: str
    """Hash of the run's identity."""
    run_id: str
    versions: dict[str, str]
    created: str

    @property
    def key(self) -> tuple[int, int, str]:
        """Which save it was: two manifests with the same key are the same."""
        return self.step, self.attempt, self.token

    @property
    def folder(self) -> str:
        """Relative to the run folder."""
        return step_folder(self.step)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def records(self) -> list[Stored]:
        """The records of its ranks, by rank."""
        return sorted((file for file in self.files if file.name.endswith(".json")), key=lambda file: file.name)

    @property
    def data(self) -> list[Stored]:
        """The data files of its ranks, by rank."""
        return sorted((file for file in self.files if not file.name.endswith(".json")), key=lambda file: file.name)

    def dump(self) -> bytes:
        """As JSON with its own checksum."""
        body = {"format": FORMAT} | asdict(self)
        body["checksum"] = _checksum(body)
        return (json.dumps(body, indent=1) + "\n").encode()

    @classmethod
    def load(cls, data: bytes) -> "Manifest":
        """Raises Damaged when it is torn, flipped or of a later format."""
        try:
            body = json.loads(data)
            checksum = body.pop("checksum")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise Damaged("manifest.json is torn or damaged") from None
        if checksum != _checksum(body):
            raise Damaged("manifest.json does not match its own checksum")
        if (written := body.pop("format")) != FORMAT:
            raise Damaged(f"manifest.json has format {written}, this version reads {FORMAT}")
        body["files"] = tuple(Stored(**file) for file in body["files"])
        return cls(**body)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def check_whole(records: Iterable[Record]) -> None:
    """Raises Damaged when a tensor is smaller than it says, over all ranks: empty shards saved as if they were
    something, a rank that left its part out, or ranks that do not agree about a shape."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    parts: dict[str, dict[object, int]] = {}
    for record in records:
        for piece in record.pieces:
            about = found.setdefault(piece.name, (piece.global_shape, piece.dtype))
            if about != (piece.global_shape, piece.dtype):
                other = f"{piece.global_shape} {piece.dtype}"
                raise Damaged(f"ranks disagree about {piece.name}: {about[0]} {about[1]} and {other}")
            place = (piece.offsets, piece.shape, piece.flat_start)
            parts.setdefault(piece.name, {})[place] = prod(piece.shape)
    for name, (shape, _) in found.items():
        given, total = sum(parts[name].values()), prod(shape)
        if given < total:
            raise Damaged(f"{name}: only {given} of its {total} elements were given by any rank")


def read_manifest(run: RunFolder, step: int) -> Manifest | None:
    """The manifest of a step whether or not it counts; None when there is none. Raises Damaged."""
    try:
        return Manifest.load(run.storage.read(f"{step_folder(step)}/{MANIFEST}"))
    except FileNotFoundError:
        return None


def steps(run: RunFolder) -> list[int]:
    """Steps that have a folder, complete or not, ascending."""
    matches = (_STEP.fullmatch(entry.name) for entry in run.storage.entries(CHECKPOINTS) if entry.is_folder)
    return sorted(int(match.group(1)) for match in matches if match)


def quarantined(run: RunFolder) -> list[str]:
    """Names of the folders that were set aside, such as `step-00000050.bad-1`."""
    return [entry.name for entry in run.storage.entries(CHECKPOINTS) if _BAD.fullmatch(entry.name)]


def counts(manifest: Manifest, inventories: dict[int, set[tuple[int, int, str]]]) -> bool:
    """Whether a manifest exists for readers. One that an older attempt wrote after a newer one had taken its inventory
    is in no newer inventory: it came too late and does not count."""
    newer = [found for number, found in inventories.items() if number > manifest.attempt]
    return not newer or any(manifest.key in found for found in newer)


def inspect(run: RunFolder) -> tuple[list[Manifest], dict[int, str]]:
    """Complete checkpoints by step, ascending; and steps whose manifest is there but damaged, with the reason."""
    inventories = run.inventories()
    found, damaged = [], {}
    for step in steps(run):
        try:
            manifest = read_manifest(run, step)
        except Damaged as error:
            damaged[step] = str(error)
            continue
        if manifest is not None and counts(manifest, inventories):
            found.append(manifest)
    return found, damaged


def committed(run: RunFolder) -> list[Manifest]:
    """The complete checkpoints of a run, by step, ascending. Their data is not looked at."""
    return inspect(run)[0]
