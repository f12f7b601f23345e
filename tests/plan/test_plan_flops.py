"""MFU against figures that others published (shared/facts/planner_ground_truth.csv)."""

import pytest

from raytrain_eks.plan.flops import Shape, mfu

LLAMA_3_8B = Shape(parameters=8_030_261_248, embedding=128_256 * 4096, tied=False, layers=32, width=4096)


def mpt(parameters, layers, width) -> Shape:
    return Shape(parameters=parameters, embedding=50_432 * width, tied=True, layers=layers, width=width)


@pytest.mark.parametrize(
    ("model", "length", "speed", "peak", "expected"),
    [
        (LLAMA_3_8B, 8192, 6785, 989e12, 0.3973),  # F08: torchtitan on p5
        (mpt(6_658_859_008, 32, 4096), 2048, 10475, 989e12, 0.4571),  # F01: MPT-7B on H100
        # F05: attention dominates; the table of learned positions is as long as the sequence
        (mpt(6_658_859_008 + (65_536 - 2048) * 4096, 32, 4096), 65536, 1956, 989e12, 0.2859),
        (mpt(6_658_859_008, 32, 4096), 2048, 4641, 312e12, 0.6423),  # F06: A100
    ],
)
def test_published_utilisation(model, length, speed, peak, expected):
    per_token = model.flops_per_token(length)
    found = mfu(tokens_per_second=speed, flops_per_token=per_token, peak=peak, accelerators=1)
    assert found == pytest.approx(expected, abs=0.0005)


def test_an_untied_embedding_is_looked_up_and_a_tied_one_multiplied():
    tied = Shape(parameters=100, embedding=40, tied=True, layers=0, width=1)
    untied = Shape(parameters=100, embedding=40, tied=False, layers=0, width=1)
    assert (tied.flops_per_token(1), untied.flops_per_token(1)) == (600, 360)
