"""The peak of the accelerator that a worker runs on, by the catalogue; MFU is measured against it."""

from functools import cache

from raytrain_eks import catalog


@cache
def peaks() -> dict[str, float]:
    """Name of an accelerator (`H100`) -> dense bf16 FLOP/s of one, for all that the catalogue knows."""
    return {each.accelerator: float(each.bf16_flops) for each in catalog.instances() if each.bf16_flops is not None}


def peak_of(device_name: str) -> tuple[str, float] | None:
    """The catalogue's accelerator and its FLOP/s for a device's own name, such as `NVIDIA H100 80GB HBM3`.

    None for a CPU and for what the catalogue does not know. The longest name that fits counts: an L40S is no L4.
    """
    words = device_name.upper().replace("-", " ").split()
    fitting = [name for name in peaks() if name.upper() in words]
    return max(((name, peaks()[name]) for name in fitting), key=lambda found: len(found[0]), default=None)
