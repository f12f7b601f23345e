"""A stretch of a flattened part, such as ZeRO keeps of what AutoTP has cut, is told as regions of the whole."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.checkpoint.region import Region
from raytrain_eks.train.engines.auto_tp import stretches


@st.composite
def cuts(draw):
    """The shape of a whole, a slice of one of its axes, and a stretch of that slice."""
    whole = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=2)))
    axis = draw(st.integers(0, len(whole) - 1))
    begin = draw(st.integers(0, whole[axis] - 1))
    size = draw(st.integers(1, whole[axis] - begin))
    shape = tuple(size if at == axis else length for at, length in enumerate(whole))
    offsets = tuple(begin if at == axis else 0 for at in range(len(whole)))
    box = Region.box(whole, offsets, shape)
    start = draw(st.integers(0, box.numel - 1))
    return box, start, draw(st.integers(1, box.numel - start))


@given(cuts())
@settings(max_examples=200, deadline=None)
def test_a_stretch_is_its_regions_one_after_the_other(cut):
    box, start, length = cut
    whole = torch.arange(torch.Size(box.whole).numel()).reshape(box.whole)

    def numbers(region: Region) -> torch.Tensor:
        if region.flat_start is not None:
            return whole.reshape(-1)[region.flat_start : region.flat_start + region.numel]
        slices = [slice(at, at + size) for at, size in zip(region.offsets, region.shape, strict=True)]
        return whole[tuple(slices)].reshape(-1)

    found, at = [], start
    for region, first in stretches(box, start, length):
        assert first == at
        found.append(numbers(region))
        at += region.numel
    assert torch.equal(torch.cat(found), numbers(box)[start : start + length])
    assert len(found) <= 3
