"""`Job` in Python: the job file's tree, and `submit`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raytrain_eks.api.tree import Tree, document_of, source
from raytrain_eks.spec import job as spec

if TYPE_CHECKING:
    from raytrain_eks.api.run import Run, Where
    from raytrain_eks.submit.assemble import JobFile
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
        about what happens. `access`: `headers`, `token_file`, `ca`, `any_version`, as the options of `submit`.

        Raises SpecError with every problem of the job, TargetError when the target cannot take it.
        """
        from raytrain_eks.api import run
        from raytrain_eks.spec.quantity import parse
        from raytrain_eks.submit.start import start

        place = run.opener(on, access)
        target, here = place(), Path.cwd()
        root = Path(working_dir) if working_dir is not None else here
        file = self._file(root)
        started = start(
            file.dry_run(target) if tiny else file,
            target,
            folder=here,
            working_dir=root,
            storage=None if storage is None else os.fspath(storage),
            resume=resume,
            limit=int(parse(max_upload)),
            say=say or run.quiet,
        )
        return run.Run(started.run, place, storage=started.storage, id=started.id)

    def _file(self, root: Path) -> "JobFile":
        """The job as `start` takes it: the file it was loaded from, comments and all, or its fields as YAML."""
        from raytrain_eks.submit.assemble import JobFile
        from raytrain_eks.submit.package import ALIAS

        if (known := source(self)) is not None:
            return JobFile(*known, self)
        return JobFile(root / ALIAS, self.to_yaml().encode(), document_of(self.written()), self)
