"""Following a job on a terminal: its lines, and a bar for its progress. Where no person looks, plain lines."""

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

from raytrain_eks.cli.outcome import Outcome
from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.follow import Follower, ending, exit_code
from raytrain_eks.submit.progress import Progress, parse
from raytrain_eks.train.progress import duration

if TYPE_CHECKING:
    from raytrain_eks.submit.target import JobState, Target

CHATTER = re.compile(
    r"Running entrypoint for job |.*\bINFO (job_manager|worker)\.py:\d+ -- |.*Runtime env is setting up\.$"
    r"|.*core_worker\.cc:\d+: Actor with class name: 'PreemptionWatcher'"
    r"|.*\t(INFO|SUCC) (cli|dashboard_sdk|packaging)\.py:\d+ -- |Waiting for Ray Dashboard GCS "
    r"|ranks on \S+ \(node \w+\): "
)
"""Ray's own lines about how a driver is submitted and how it and its watch over spot nodes start, and where ranks are,
which is for `logs --rank`; `raytrain-eks logs` shows them."""
CLEAR = "\r\x1b[K"


class Screen:
    """Lines above, the bar below. The bar is drawn only on a terminal."""

    def __init__(self, name: str, stream: TextIO | None = None):
        self.name = name
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._bar = ""

    def line(self, text: str) -> None:
        """One line of the log."""
        if CHATTER.match(text):
            return
        told = parse(text)
        if told is not None and self.live:
            self._bar = bar(self.name, told, shutil.get_terminal_size().columns)
            self.stream.write(CLEAR + self._bar)
        else:
            self.stream.write((CLEAR if self._bar else "") + text + "\n" + self._bar)
        self.stream.flush()

    def close(self) -> None:
        """Leave the last bar as a line of its own."""
        if self._bar:
            self.stream.write("\n")
            self.stream.flush()
            self._bar = ""


def bar(name: str, told: Progress, columns: int) -> str:
    """`quickstart  ━━━━━━──────  25/150  loss 6.1234  4096 tok/s  eta 1m30s`, never wider than the terminal."""
    facts = [f"{told.step}/{told.steps}"]
    if told.loss is not None:
        facts.append(f"loss {told.loss:.4f}")
    if told.tokens_per_second is not None:
        facts.append(f"{told.tokens_per_second:.0f} tok/s")
    if told.eta_s is not None:
        facts.append(f"eta {duration(told.eta_s)}")
    text = "  ".join(facts)
    width = min(max(columns - len(name) - len(text) - 5, 0), 40)
    done = round(width * told.share)
    parts = [name, "━" * done + "─" * (width - done), text] if width >= 5 else [name, text]
    return "  ".join(parts)[: max(columns - 1, 1)]


def follow(target: "Target", id: str, run: str, screen: Screen | None = None) -> "tuple[int, JobState | None]":
    """Show the job until it is over; its exit code and last state. Ctrl-C leaves the job running."""
    screen = screen or Screen(run)
    follower = Follower(target, id, say=screen.line)
    try:
        for line in follower.lines():
            screen.line(line)
    except KeyboardInterrupt:
        screen.close()
        screen.line(f"detached; {run} goes on")
        screen.line(f"  follow it again: raytrain-eks logs {run} -f      stop it: raytrain-eks cancel {run}")
        return Outcome.INTERRUPTED, follower.state
    except TargetError as error:
        screen.close()
        screen.line(str(error))
        if error.code == Outcome.FAILED:
            screen.line(f"  go on from the last checkpoint: raytrain-eks resume {run}")
        return error.code, follower.state
    finally:
        screen.close()
    assert follower.state is not None
    screen.line(f"{run}: {ending(follower.state)}")
    return exit_code(follower.state), follower.state
