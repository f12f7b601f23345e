"""The driver's progress lines, read back: `step 25/150  loss 6.1234  lr 2.9e-03  4096 tok/s  eta 1m30s`."""

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"step (?P<step>\d+)/(?P<steps>\d+)"
    r"(?:  loss (?P<loss>\S+))?(?:  lr (?P<lr>\S+))?(?:  (?P<rate>[\d.]+) tok/s)?(?:  eta (?P<eta>\S+))?(?:  .*)?"
)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    step: int
    steps: int
    loss: float | None
    """Nats per token."""
    learning_rate: float | None
    tokens_per_second: float | None
    eta_s: float | None

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        return min(self.step / self.steps, 1.0) if self.steps else 0.0


def parse(line: str) -> Progress | None:
    """The progress that a line of a driver's log tells; None for every other line."""
    match = _LINE.fullmatch(line.strip())
    if match is None or all(match[key] is None for key in ("loss", "lr", "rate", "eta")):
        return None
    return Progress(
        step=int(match["step"]),
        steps=int(match["steps"]),
        loss=_number(match["loss"]),
        learning_rate=_number(match["lr"]),
        tokens_per_second=_number(match["rate"]),
        eta_s=_seconds(match["eta"]),
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    match = _DURATION.fullmatch(text) if text else None
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
