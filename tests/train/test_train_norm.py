"""The global gradient norm is the number that exact arithmetic gives, rounded once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.train.engines.norm import STRETCH, global_norm


def exact(gradients: list[torch.Tensor]) -> float:
    return float(torch.cat([gradient.double().reshape(-1) for gradient in gradients]).norm())


def test_many_elements():
    gradients = [torch.full((2048, 1024), 1e-3), torch.full((3,), 5.0)]
    assert float(global_norm(gradients)) == pytest.approx(exact(gradients), rel=1e-7)
    # What PyTorch's own gives is why there is another.
    assert float(torch.nn.utils.get_total_norm(gradients[:1])) != pytest.approx(exact(gradients[:1]), rel=1e-6)


@given(st.lists(st.sampled_from([0, 1, 7, STRETCH - 1, STRETCH, STRETCH + 1]), max_size=4), st.integers(0, 99))
def test_any_sizes(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(size, generator=generator) for size in sizes]
    expected = exact(gradients) if gradients else 0.0
    assert float(global_norm(gradients)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(bad):
    assert not global_norm([torch.ones(5), torch.tensor([1.0, bad])]).isfinite()
