"""How the global batch of one step is split over workers and micro-batches.

The global batch is a property of the job and stays what it is at any number of workers. A rank's share is rounded up,
and so is its number of micro-batches; rows that the batch does not have are empty ones, without trained tokens.
"""

from dataclasses import dataclass

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job

MICRO_TOKENS = 2048
"""Tokens of a derived micro-batch on a CPU: more rows do not make a matrix product faster there, but need memory."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The shape of every step on every rank."""

    world: int
    micro: int
    """Rows of one micro-batch."""
    accumulation: int
    """Micro-batches of one step."""
    why: str
    """The rule that gave `micro`."""

    @property
    def rows(self) -> int:
        """Rows of one step on one rank, empty ones included."""
        return self.micro * self.accumulation


def split(*, global_sequences: int, world: int, sequence_length: int, micro: int | None = None) -> Split:
    """Split `global_sequences` rows over `world` ranks.

    A `micro` that was given is kept, capped at the rank's share. A derived one is the largest divisor of the share with
    at most MICRO_TOKENS tokens, so that no empty row is added by the rounding.
    """
    share = -(-global_sequences // world)
    if micro is not None:
        rows, why = min(micro, share), "as given in batch.micro, at most the rank's share"
    else:
        limit = max(MICRO_TOKENS // sequence_length, 1)
        rows = next(size for size in range(min(limit, share), 0, -1) if share % size == 0)
        why = f"the largest divisor of a rank's {share} sequences with at most {MICRO_TOKENS} tokens"
    return Split(world=world, micro=rows, accumulation=-(-share // rows), why=why)


def split_of(job: Job, world: int) -> Split:
    """The split of a job's global batch over `world` data ranks."""
    return split(
        global_sequences=job.global_sequences,
        world=world,
        sequence_length=job.data.sequence_length,
        micro=job.batch.micro,
    )


def steps_of(job: Job) -> int | None:
    """Optimizer steps after which a job stops, by `stop.steps` or `stop.tokens`, whichever comes first; None where
    only the data tells, by `stop.epochs`."""
    limits = [] if job.stop.steps is None else [job.stop.steps]
    if job.stop.tokens is not None:
        limits.append(-(-quantity.count(job.stop.tokens) // tokens_of_step(job)))
    return min(limits, default=None)


def tokens_of_step(job: Job) -> int:
    """Tokens of a global batch, padding included."""
    return job.global_sequences * job.data.sequence_length
