"""The layout of one rank's file: plain safetensors (8 bytes header length, JSON header, tensors without gaps).

So a rank's file opens with any safetensors reader. Each part of a tensor is an entry of its own; the entry's name says
which part it is: `model.w`, `model.w[0:4,0:8]` (a box), `model.w[1000:2000 flat]` (a range of the flattened tensor).
"""

import json
from collections.abc import Sequence

from raytrain_eks.checkpoint.chunk import DTYPES, Chunk
from raytrain_eks.checkpoint.manifest import Piece
from raytrain_eks.checkpoint.region import Region

ALIGNMENT = 64
"""Of the first tensor, in bytes. The header is padded with spaces, which safetensors allows."""


def entry_name(chunk: Chunk) -> str:
    """The entry of a part in the file's header."""
    region = chunk.region
    if chunk.flat_start is not None:
        return f"{chunk.name}[{chunk.flat_start}:{chunk.flat_start + chunk.tensor.numel()} flat]"
    if region == Region.all(chunk.global_shape):
        return chunk.name
    spans = zip(region.offsets or (), region.shape, strict=True)
    return f"{chunk.name}[{','.join(f'{first}:{first + size}' for first, size in spans)}]"


def layout(chunks: Sequence[Chunk]) -> tuple[bytes, list[tuple[Chunk, Piece]], int]:
    """Header, chunks with their places, and the size of the file in bytes.

    Wider types come first, so that without gaps every tensor is aligned to its type. Raises ValueError when a part
    stands twice.
    """
    order = sorted(range(len(chunks)), key=lambda index: (-chunks[index].tensor.element_size(), index))
    header: dict[str, object] = {}
    at = 0
    for index in order:
        chunk = chunks[index]
        name = entry_name(chunk)
        if name in header:
            raise ValueError(f"{name} stands twice in one checkpoint")
        span = [at, at + chunk.nbytes]
        header[name] = {"dtype": DTYPES[chunk.dtype], "shape": list(chunk.tensor.shape), "data_offsets": span}
        at += chunk.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    start = 8 + len(text)
    places, at = [], start
    for index in order:
        chunk = chunks[index]
        region = chunk.region
        piece = Piece(
            name=chunk.name,
            dtype=DTYPES[chunk.dtype],
            global_shape=tuple(chunk.global_shape),
            offsets=region.offsets,
            shape=region.shape,
            flat_start=region.flat_start,
            begin=at,
            end=at + chunk.nbytes,
        )
        places.append((chunk, piece))
        at = piece.end
    return len(text).to_bytes(8, "little") + text, places, at
