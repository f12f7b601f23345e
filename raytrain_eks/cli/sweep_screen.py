"""Following a sweep on a terminal: its log, and a table of the trials below it. Where no person looks, plain lines."""

import shutil
from typing import TextIO

from raytrain_eks.cli.following import CHATTER, Screen
from raytrain_eks.tune.history import History, Trial
from raytrain_eks.tune.table import parse, table

BELOW = "\x1b[J"
"""Clears everything below the cursor."""


class SweepScreen(Screen):
    """Lines above, the table of trials below, drawn from the driver's progress lines alone: no storage is read."""

    def __init__(self, name: str, stream: TextIO | None = None):
        super().__init__(name, stream)
        self.history = History(name=name)
        self._drawn = ""

    def line(self, text: str) -> None:
        """One line of the log."""
        if CHATTER.match(text):
            return
        told = parse(text)
        if told is None or not self.live:
            self._draw(text + "\n")
            return
        trial, metric = told
        self.history.metric = metric or self.history.metric
        self._take(trial)
        self._draw("")

    def _take(self, trial: Trial) -> None:
        known = next((each for each in self.history.trials if each.id == trial.id), None)
        if known is None:
            trial.number = len(self.history.trials) + 1
            self.history.trials.append(trial)
            return
        known.state, known.reason = trial.state, trial.reason
        known.step = trial.step if trial.step is not None else known.step
        known.points |= trial.points
        known.parameters |= trial.parameters

    def _draw(self, above: str) -> None:
        """Take the table away, write what goes above it, and draw it again as it is now."""
        up = self._drawn.count("\n")
        away = f"\x1b[{up}A\r{BELOW}" if up else ""
        if self.live and self.history.trials:
            size = shutil.get_terminal_size()
            # The summary, the headings, the line about the rest, and one line of the log stay visible.
            self._drawn = table(self.history, size.columns - 1, max(size.lines - 4, 1)) + "\n"
        self.stream.write(away + above + self._drawn)
        self.stream.flush()

    def close(self) -> None:
        """Leave the last table where it is."""
        self._drawn = ""
        self.history.trials = []
