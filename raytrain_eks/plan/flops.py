"""Model FLOPs and their utilisation (MFU), by one stated convention.

A trained token costs 6 N + 12 L d s floating-point operations (PaLM, arXiv 2204.02311, appendix B): twice each for the
forward pass and four times for the backward pass over the N weights that take part in matrix products, and the scores
and values of attention over s positions in L layers of width d. An input embedding is looked up, not multiplied, so it
is no part of N unless the head is the same matrix (torchtitan's convention). What is computed again for activation
checkpointing, and the half of causal attention that is masked, are not counted: MFU measures the useful work.
"""

from dataclasses import dataclass

CONVENTION = "6 N + 12 L d s per token (PaLM, appendix B), N without an untied input embedding, dense bf16 peak"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the formula needs of a model."""

    parameters: int
    """All weights, tied ones once."""
    embedding: int
    """Weights of the input embedding (vocabulary x width)."""
    tied: bool
    """Whether the head is the same matrix."""
    layers: int
    width: int
    """d: heads times the width of a head."""

    def flops_per_token(self, sequence_length: int) -> float:
        """FLOPs of forward and backward for one token of a sequence of this length."""
        multiplied = self.parameters if self.tied else self.parameters - self.embedding
        return 6.0 * multiplied + 12.0 * self.layers * self.width * sequence_length


def mfu(*, tokens_per_second: float, flops_per_token: float, peak: float, accelerators: int) -> float:
    """The part of the accelerators' peak (FLOP/s of one) that the model's own FLOPs use."""
    return tokens_per_second * flops_per_token / (peak * accelerators)
