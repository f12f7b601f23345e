"""`Sweep` in Python: the sweep file's tree, `submit`, and what the sweep has come to."""

import os
from typing import TYPE_CHECKING, Any

from raytrain_eks.api.tree import Tree
from raytrain_eks.spec import sweep as spec

if TYPE_CHECKING:
    from pandas import DataFrame

    from raytrain_eks.api.run import Run, Where
    from raytrain_eks.submit.target import Say
    from raytrain_eks.tune.results import Results


class Sweep(Tree, spec.Sweep):
    """Many trainings over a space: `Sweep.load("jobs/sweep.yaml")`, or `Sweep(name=..., ...)`."""

    _spec = spec.Sweep

    def submit(
        self,
        on: "Where" = None,
        *,
        storage: str | os.PathLike[str] | None = None,
        resume: bool = False,
        working_dir: str | os.PathLike[str] | None = None,
        max_upload: str = "100Mi",
        say: "Say | None" = None,
        **access: Any,
    ) -> "Run":
        """Start it as `raytrain-eks sweep` does; what comes back is its driver, to wait for, follow and cancel. The
        arguments are those of `Job.submit`, and so are the errors."""
        from raytrain_eks.api.submitting import submit

        return submit(
            self,
            on,
            access,
            storage=storage,
            resume=resume,
            tiny=False,
            working_dir=working_dir,
            max_upload=max_upload,
            say=say,
        )

    def results(self, storage: str | os.PathLike[str] | None = None) -> "DataFrame":
        """A row for each trial of the sweep of this name, running or over, with state, reason, step, objective and
        parameters. `storage` wins over the sweep's. Raises FileNotFoundError when it was never started there."""
        return self.outcome(storage).frame()

    def outcome(self, storage: str | os.PathLike[str] | None = None) -> "Results":
        """The sweep of this name as its folder tells it: `.frame()`, `.metrics(trial)`, `.run(trial)`, and
        `.leaderboard()`. Reading begins with the first of these."""
        from raytrain_eks.submit import registry
        from raytrain_eks.submit.start import place_of
        from raytrain_eks.tune.results import Results

        given = os.fspath(storage) if storage is not None else self.storage
        return Results(place_of(given, registry.recall(self.name)), self.name)
