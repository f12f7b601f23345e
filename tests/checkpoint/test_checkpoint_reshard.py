"""What any engine wrote at any world size is read by any other: property tests over shapes, worlds and parts."""

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.checkpoint.chunk import DTYPES, Chunk, share_out, whole
from raytrain_eks.checkpoint.manifest import Damaged, Manifest, Record, check_whole
from raytrain_eks.checkpoint.rankfile import layout
from raytrain_eks.checkpoint.reader import NoSuchTensor, Reader
from raytrain_eks.checkpoint.region import Region, covers, meet
from raytrain_eks.checkpoint.storage import Storage

shapes = st.lists(st.integers(1, 7), max_size=4).map(tuple)


@st.composite
def regions(draw, shape):
    if draw(st.booleans()):
        offsets = tuple(draw(st.integers(0, size)) for size in shape)
        sizes = tuple(draw(st.integers(0, size - offset)) for size, offset in zip(shape, offsets, strict=True))
        return Region.box(shape, offsets, sizes)
    start = draw(st.integers(0, prod(shape)))
    return Region.flat(shape, start, draw(st.integers(0, prod(shape) - start)))


def take(array, region):
    """The elements of a region, flattened: numpy's own indexing."""
    if region.flat_start is not None:
        return array.reshape(-1)[region.flat_start : region.flat_start + region.shape[0]]
    return array[tuple(slice(o, o + s) for o, s in zip(region.offsets, region.shape, strict=True))].reshape(-1)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_where_two_regions_meet(data):
    shape = data.draw(shapes)
    source, target = data.draw(regions(shape)), data.draw(regions(shape))
    array = np.arange(prod(shape)).reshape(shape)
    held, wanted = take(array, source), take(array, target)
    found = np.full(wanted.shape, -1)
    parts = meet(source, target)
    for part in parts:
        for number in range(part.count):
            at, to = part.source + number * part.source_step, part.target + number * part.target_step
            found[to : to + part.length] = held[at : at + part.length]
    expected = np.where(np.isin(wanted, held), wanted, -1)
    assert (found == expected).all()
    assert covers(parts, target.numel) == bool((expected >= 0).all())


def split(draw, name, tensor, world):
    """One engine's way of dividing a tensor among ranks: (rank, chunk) pairs."""
    way = draw(st.sampled_from(["ddp", "rows", "columns", "flat", "replicated"]))
    shape = tuple(tensor.shape)
    if way == "ddp" or not shape:
        return [(rank, chunk) for rank in range(world) for chunk in share_out(whole({name: tensor}), rank, world)]
    if way == "replicated":
        return [(rank, Chunk.of(name, tensor)) for rank in range(world)]
    if way == "flat":
        size = -(-tensor.numel() // world)
        spans = [(rank, rank * size, min((rank + 1) * size, tensor.numel())) for rank in range(world)]
        flat = tensor.reshape(-1)
        return [(r, Chunk(name, shape, tensor.dtype, flat[a:b], None, a)) for r, a, b in spans if a < b]
    axis = 0 if way == "rows" else len(shape) - 1
    size = -(-shape[axis] // world)
    found = []
    for rank in range(world):
        first = min(rank * size, shape[axis])
        part = tensor.narrow(axis, first, min(size, shape[axis] - first))
        offsets = tuple(first if dimension == axis else 0 for dimension in range(len(shape)))
        found.append((rank, Chunk(name, shape, tensor.dtype, part, offsets)))
    return found


def stored(folder, chunks_of_ranks):
    """A reader of files written without a saver, since here only their layout matters."""
    storage, records = Storage.of(folder), []
    for rank, chunks in enumerate(chunks_of_ranks):
        header, places, size = layout(chunks)
        content = bytearray(header) + bytearray(size - len(header))
        for chunk, piece in places:
            content[piece.begin : piece.end] = chunk.tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        storage.write(f"r{rank}.safetensors", bytes(content))
        records.append(Record(f"r{rank}.safetensors", rank, size, 1, (), tuple(piece for _, piece in places)))
    check_whole(records)
    manifest = Manifest(1, 1, "t", len(records), (), {}, None, "", "", {}, "")
    return Reader(storage, manifest, records)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_part_is_read_back_whatever_wrote_it(tmp_path_factory, data):
    read_back(tmp_path_factory, data)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_part_is_read_back_whatever_wrote_it_many_times(tmp_path_factory, data):
    read_back(tmp_path_factory, data)


def read_back(tmp_path_factory, data):
    world = data.draw(st.integers(1, 4))
    dtypes = data.draw(st.lists(st.sampled_from(list(DTYPES)), min_size=1, max_size=3))
    state = {}
    for number, dtype in enumerate(dtypes):
        shape = data.draw(shapes)
        raw = np.random.default_rng(number).integers(0, 2, prod(shape) * dtype.itemsize, np.uint8)
        state[f"t{number}"] = torch.from_numpy(raw).view(dtype).reshape(shape)
    ranks = [[] for _ in range(world)]
    for name, tensor in state.items():
        for rank, chunk in split(data.draw, name, tensor, world):
            ranks[rank].append(chunk)
    with stored(tmp_path_factory.mktemp("ranks"), ranks) as reader:
        assert reader.names() == sorted(state)
        for name, tensor in state.items():
            bits = tensor.reshape(-1).view(torch.uint8).reshape(-1, tensor.element_size()).numpy()
            region = data.draw(regions(tuple(tensor.shape)))
            if region.flat_start is not None:
                got = reader.flat(name, region.flat_start, region.shape[0])
            else:
                got = reader.box(name, region.offsets, region.shape)
            assert got.dtype == tensor.dtype
            assert tuple(got.shape) == region.shape
            numbers = take(np.arange(tensor.numel()).reshape(tuple(tensor.shape)), region)
            assert (got.reshape(-1).view(torch.uint8).numpy() == bits[numbers].reshape(-1)).all()
            whole_bits = reader.full(name).reshape(-1).view(torch.uint8).numpy()
            assert (whole_bits == bits.reshape(-1)).all()


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_short_runs_by_the_slab_and_long_runs_alike(tmp_path, monkeypatch, cut):
    from raytrain_eks.checkpoint import reader as module

    tensor = torch.arange(64 * 96, dtype=torch.float32).reshape(64, 96)
    size = 96 // cut
    parts = [
        [Chunk("w", (64, 96), torch.float32, tensor[:, r * size : (r + 1) * size], (0, r * size))] for r in range(cut)
    ]
    parts[-1] = [Chunk("w", (64, 96), torch.float32, tensor[:, (cut - 1) * size :], (0, (cut - 1) * size))]
    for direct, gap, slab in [(1, 0, 64), (10**9, 10**9, 500), (10**9, 10**9, 2**20), (10**9, 8, 2**20)]:
        for name, value in (("DIRECT", direct), ("GAP", gap), ("RUN", slab)):
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(Storage, "slab", slab)
        with stored(tmp_path / f"{direct}{gap}{slab}", parts) as reader:
            assert torch.equal(reader.full("w"), tensor)
            assert torch.equal(reader.box("w", (3, 5), (40, 80)), tensor[3:43, 5:85])
            assert torch.equal(reader.flat("w", 100, 5000), tensor.reshape(-1)[100:5100])


@given(st.data())
def test_replicas_share_the_work_by_bytes(data):
    count = data.draw(st.integers(1, 9))
    sizes = data.draw(st.lists(st.integers(0, 5000), min_size=1, max_size=8))
    chunks = whole({f"t{number}": torch.empty(size) for number, size in enumerate(sizes)})
    shares = [sum(chunk.nbytes for chunk in share_out(chunks, index, count)) for index in range(count)]
    assert sum(shares) == 4 * sum(sizes)
    assert max(shares) - min(shares) <= 4 * len(sizes) + 4


def test_a_box_is_shared_between_rows():
    chunk = Chunk("w", (8, 6), torch.float32, torch.arange(24.0).reshape(4, 6), (4, 0))
    parts = [share_out([chunk], index, 3) for index in range(3)]
    assert [part[0].offsets for part in parts] == [(4, 0), (5, 0), (7, 0)]
    assert torch.equal(torch.cat([part[0].tensor for part in parts]), chunk.tensor)


def test_another_model_is_named(tmp_path):
    with stored(tmp_path, [whole({"model.weight": torch.ones(4, 4)})]) as reader:
        with pytest.raises(NoSuchTensor, match=r"no tensor model\.wieght.*near: model\.weight"):
            reader.full("model.wieght")
        with pytest.raises(NoSuchTensor, match=r"shape \(4, 4\).*\(4, 5\) is expected"):
            reader.fill([("model.weight", Region.all((4, 5)), torch.empty(4, 5))])
        with pytest.raises(ValueError, match="not inside"):
            reader.box("model.weight", (0, 1), (4, 4))


def test_a_target_may_be_of_another_type_or_not_contiguous(tmp_path):
    tensor = torch.randn(6, 4)
    with stored(tmp_path, [whole({"w": tensor})]) as reader:
        into = torch.zeros(4, 6, dtype=torch.float64).t()
        assert torch.equal(reader.full("w", out=into), tensor.double())


def test_parts_that_nobody_gave_are_refused():
    def record(*chunks):
        return Record("f", 0, 0, 1, (), tuple(piece for _, piece in layout(chunks)[1]))

    half = Chunk("w", (8,), torch.float32, torch.ones(4), None, 0)
    empty = Chunk("w", (8,), torch.float32, torch.ones(0), None, 0)
    other = Chunk("w", (9,), torch.float32, torch.ones(4), None, 4)
    for records, message in [
        ([record(half)], "only 4 of its 8"),
        ([record(half), record(half)], "only 4 of its 8"),
        ([record(empty)], "only 0 of its 8"),
        ([record(half), record(other)], "disagree"),
    ]:
        with pytest.raises(Damaged, match=message):
            check_whole(records)


def test_the_file_is_plain_safetensors(tmp_path):
    from safetensors.torch import load_file

    state = {"a": torch.randn(3, 5), "b": torch.arange(7, dtype=torch.int8), "c": torch.randn(2, 2).bfloat16()}
    with stored(tmp_path, [[*whole(state), Chunk("d", (8,), torch.float64, torch.ones(4).double(), None, 4)],
                           [Chunk("d", (8,), torch.float64, torch.ones(4).double(), None, 0)]]):  # fmt: skip
        found = load_file(tmp_path / "r0.safetensors")
    assert set(found) == {"a", "b", "c", "d[4:8 flat]"}
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
