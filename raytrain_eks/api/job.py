"""`Job` in Python: the job file's tree, and `submit`."""

import os
from typing import TYPE_CHECKING, Any

from raytrain_eks.api.tree import Tree
from raytrain_eks.spec import job as spec

if TYPE_CHECKING:
    from raytrain_eks.api.run import Run, Where
    from raytrain_eks.submit.target import Say


class Job(Tree, spec.Job):
    """A training job: `Job.load("jobs/quickstart.yaml")`, or `Job(name=..., model={...}, ...)` with a file's fields."""

    _spec = spec.Job

    def submit(
        self,
        on: "Where" = None,
        *,
        storage: str | os.PathLike[str] | None = None,
        resume: bool = False,
        tiny: bool = False,
        working_dir: str | os.PathLike[str] | None = None,
        max_upload: str = "100Mi",
        say: "Say | None" = None,
        **access: Any,
    ) -> "Run":
        """Start it, as `raytrain-eks submit` does; the same name and storage go on where they stopped.

        `on`: `local`, `http://HEAD:8265`, `eks`, or what `cluster.connect()` returned; None: $RAYTRAIN_ON, else this
        machine. `storage` wins over the job's; `resume` goes on even if the job has changed; `tiny` is the same job in
        small. `working_dir` travels with it (None: the current folder), at most `max_upload` of it. `say` takes lines
        about what happens. `access` are the options of `submit`: `headers`, `token_file`, `ca`, `any_version`, and for
        `eks` `context`, `namespace`, `kubeconfig`, `cluster`, `code`.

        Raises SpecError with every problem of the job, TargetError when the target cannot take it.
        """
        from raytrain_eks.api.submitting import submit

        return submit(
            self,
            on,
            access,
            storage=storage,
            resume=resume,
            tiny=tiny,
            working_dir=working_dir,
            max_upload=max_upload,
            say=say,
        )
