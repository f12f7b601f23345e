"""TorchTrainer without the actors that a run of ours has no use for.

Ray Train starts a process for each of them: it costs a second of CPU at the start of every attempt, and a hundred
wake-ups a second from then on, beside training where that is on the same cores. The names are Ray's own inside ones,
of the release that pyproject.toml pins.
"""

from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

UNNEEDED = {
    DatasetsCallback: "an actor that splits Ray Data sets between workers; ours read the prepared rows themselves",
    PlacementGroupCleanerCallback: "an actor that asks the state API each second whether the controller lives, to free "
    "its placement group where the Ray job goes on without it; ours ends with its controller, and Ray frees the group",
}
"""Callback of Ray Train -> what it starts, and why a run does without it."""


class LeanTrainer(TorchTrainer):
    """For the one training of a Ray job, without `datasets`."""

    def _create_default_callbacks(self) -> list[Any]:
        return [found for found in super()._create_default_callbacks() if type(found) not in UNNEEDED]
