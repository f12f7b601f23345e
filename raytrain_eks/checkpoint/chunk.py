"""What a rank gives to a checkpoint: parts of logical tensors, named by what they are and not by who holds them.

A checkpoint is a flat mapping of logical tensors (`model.layers.0.weight`, `exp_avg.layers.0.weight`). DDP gives the
whole of each, FSDP2 and tensor parallelism give boxes, ZeRO gives 1-D ranges of flattened tensors; so what one engine
wrote at one world size is read by any other at any other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from raytrain_eks.checkpoint.region import Region

DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""torch's types and safetensors' names for them."""
TORCH = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class Chunk:
    """A part of a logical tensor that this rank holds.

    Exactly one of `offsets` (an N-D box whose shape is the tensor's) and `flat_start` (a 1-D range of the row-major
    flattened tensor; the given tensor is 1-D) is set; with neither it is the whole tensor. Raises ValueError when the
    part is not inside `global_shape`, TypeError for a dtype that cannot be stored.
    """

    name: str
    global_shape: tuple[int, ...]
    dtype: torch.dtype
    tensor: torch.Tensor
    offsets: tuple[int, ...] | None = None
    flat_start: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or self.dtype != self.tensor.dtype:
            raise TypeError(f"{self.name}: cannot store {self.tensor.dtype} as {self.dtype}")
        if self.offsets is not None and self.flat_start is not None:
            raise ValueError(f"{self.name}: a part is a box or a flat range, not both")
        if self.offsets is None and self.flat_start is None:
            object.__setattr__(self, "offsets", (0,) * len(self.global_shape))
        if self.flat_start is not None and self.tensor.dim() != 1:
            raise ValueError(f"{self.name}: a flat range needs a 1-D tensor, this one is {tuple(self.tensor.shape)}")
        self.region  # noqa: B018  (its checks)

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> "Chunk":
        """A whole tensor."""
        return cls(name, tuple(tensor.shape), tensor.dtype, tensor)

    @property
    def region(self) -> Region:
        """Which part of the tensor this is."""
        if self.flat_start is not None:
            return Region.flat(self.global_shape, self.flat_start, self.tensor.numel())
        try:
            return Region.box(self.global_shape, self.offsets or (), tuple(self.tensor.shape))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return self.tensor.numel() * self.tensor.element_size()


def whole(state: dict[str, torch.Tensor]) -> list[Chunk]:
    """A chunk for each tensor of a flat state, all of it."""
    return [Chunk.of(name, tensor) for name, tensor in state.items()]


def share_out(chunks: Iterable[Chunk], index: int, count: int) -> list[Chunk]:
    """What replica `index` of `count` writes of parts that all replicas hold alike (DDP: all ranks; HSDP: the ranks of
    a replica group): the same number of bytes each, every byte exactly once, the same split on every rank.

    The parts are laid end to end in the order given, which must be the same everywhere, and cut into `count` equal
    stretches. A whole tensor or a flat range is cut at any element, a box between rows of its first dimension.
    """
    listed = list(chunks)
    total = sum(chunk.nbytes for chunk in listed)
    low, high = total * index // count, total * (index + 1) // count
    mine, at = [], 0
    for chunk in listed:
        size = chunk.nbytes
        begin, end = at, at + size
        at = end
        if size == 0:
            if index == 0:
                mine.append(chunk)
        elif begin >= low and end <= high:
            mine.append(chunk)
        elif begin < high and end > low:
            mine += _cut(chunk, (low - begin) / size, (high - begin) / size)
    return mine


def _cut(chunk: Chunk, low: float, high: float) -> list[Chunk]:
    """The part of a chunk between two fractions; neighbours that cut at the same fraction share no element."""
    shape = tuple(chunk.tensor.shape)
    is_flat = chunk.flat_start is not None or shape == chunk.global_shape
    size = chunk.tensor.numel() if is_flat else shape[0]
    first, last = round(size * max(low, 0.0)), round(size * min(high, 1.0))
    if first == last:
        return []
    if is_flat:
        part = chunk.tensor.reshape(-1)[first:last]
        return [replace(chunk, tensor=part, offsets=None, flat_start=(chunk.flat_start or 0) + first)]
    offsets = chunk.offsets or ()
    return [replace(chunk, tensor=chunk.tensor[first:last], offsets=(offsets[0] + first, *offsets[1:]))]
