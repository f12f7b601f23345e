"""How the mirror compresses: every block of 8 MiB by itself, so that blocks are packed in parallel, read by themselves
and checked one by one. Packed blocks one after another are a plain `.zst` or `.gz` file, which `zstd -d` and `gunzip`
open; only `planes` needs this package to read it.
"""

import zlib
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["none", "zstd", "gzip", "planes"]
NAMES: tuple[Name, ...] = ("none", "zstd", "gzip", "planes")
WIDTH = 4
"""Bytes of the elements that `planes` takes apart: fp32, which weights and moments are kept in."""


@dataclass(frozen=True)
class Codec:
    """One way to pack blocks. `level` None is the codec's own choice: zstd and planes 1, gzip 6."""

    name: Name = "planes"
    level: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"{self.name!r} is no codec; there are {', '.join(NAMES)}")
        top = {"none": None, "zstd": 22, "gzip": 9, "planes": 22}[self.name]
        if self.level is not None and (top is None or not 1 <= self.level <= top):
            raise ValueError(f"{self.name} has no level {self.level}" + (f"; it has 1 to {top}" if top else ""))

    @property
    def suffix(self) -> str:
        """What is added to a packed file's name."""
        return {"none": "", "zstd": ".zst", "gzip": ".gz", "planes": ".planes"}[self.name]

    def pack(self, block: memoryview) -> memoryview | bytes:
        """A block packed; with `none` it is the block itself, not a copy. zstd and zlib release the GIL."""
        if self.name == "none":
            return block
        if self.name == "gzip":
            return zlib.compress(block, self.level or 6, wbits=31)
        packed: bytes = self._zstd().compress(_apart(block) if self.name == "planes" else block, asbytes=True)
        return packed

    def unpack(self, packed: Any, size: int) -> bytes:
        """The block of `size` bytes again. Raises ValueError when `packed` is damaged."""
        try:
            if self.name == "none":
                block = bytes(packed)
            elif self.name == "gzip":
                block = zlib.decompress(packed, wbits=31)
            else:
                block = self._zstd().decompress(packed, size, asbytes=True)
        except (zlib.error, OSError) as error:
            raise ValueError(f"not a whole {self.name} block: {error}") from None
        if len(block) != size:
            raise ValueError(f"a {self.name} block has {len(block)} bytes, {size} were packed")
        return _together(block) if self.name == "planes" else block

    def _zstd(self) -> Any:
        import pyarrow

        return pyarrow.Codec("zstd", compression_level=self.level or 1)


def _apart(block: Any) -> bytes:
    """First bytes of all elements, then second bytes, ...: sign and exponent of floats lie together and pack well."""
    import numpy as np

    data = np.frombuffer(block, np.uint8)
    whole = len(data) - len(data) % WIDTH
    return bytes(np.ascontiguousarray(data[:whole].reshape(-1, WIDTH).T)) + data[whole:].tobytes()


def _together(block: bytes) -> bytes:
    import numpy as np

    data = np.frombuffer(block, np.uint8)
    whole = len(data) - len(data) % WIDTH
    return bytes(np.ascontiguousarray(data[:whole].reshape(WIDTH, -1).T)) + data[whole:].tobytes()
