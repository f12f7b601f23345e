"""What `raytrain-eks checkpoints watch` reads: which run folders are mirrored, whereto and how.

The words are those of the checkpoint manager of the guide "Training on EKS", whose ConfigMap can be used as it is.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Whole


class Watched(Model):
    """A storage of run folders and its mirror."""

    local_path: str
    """The folder (or URL) in which training keeps its run folders; each run in it is mirrored."""

    remote_path: str
    """Where they are copied to, e.g. `s3://my-bucket/checkpoints`; a run lies there under its name."""

    sync_interval: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between two passes."""

    max_checkpoints: Whole = 5
    """How many of a run's newest checkpoints stay in the mirror; the best by held-out loss stays as well."""

    compression: bool | Literal["none", "zstd", "gzip", "planes"] = "planes"
    """How data is packed. true is gzip where a level is given, as in the guide, otherwise planes; false is none."""

    compression_level: Annotated[int, Field(ge=1, le=22)] | None = None
    """The codec's level. None: its own choice, which is 1 for planes and zstd, and 6 for gzip."""

    auto_resume: bool = True
    """At the start, bring back the runs that the mirror has and the local path has not."""

    resume_from_latest: bool = True
    """Bring them back with their newest whole checkpoint; false brings back only what they are, and no checkpoint."""

    @property
    def codec(self) -> Literal["none", "zstd", "gzip", "planes"]:
        """The codec that `compression` stands for."""
        if self.compression is True:
            return "planes" if self.compression_level is None else "gzip"
        return "none" if self.compression is False else self.compression

    @rule
    def _level_of_the_codec(self) -> Iterator[Problem]:
        top = {"none": 0, "zstd": 22, "gzip": 9, "planes": 22}[self.codec]
        if self.compression_level is not None and self.compression_level > top:
            what = f"{self.codec} has levels 1 to {top}" if top else "what is not compressed has no level"
            yield Problem(path="compression_level", rule=what, fix="leave it out for the codec's own choice")


class Watch(Model):
    """The file of `raytrain-eks checkpoints watch`."""

    checkpoint: Watched
    """The storage of run folders and its mirror."""
