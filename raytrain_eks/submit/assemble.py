"""From a job file to a submission: read, checked against the target, packed, named. Nothing is started here."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from raytrain_eks.checkpoint.default import default_storage
from raytrain_eks.spec.check import dotted, located, single
from raytrain_eks.spec.job import Job, Workers
from raytrain_eks.spec.load import content_of, of_document, text_of
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.source import Document, read_documents
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.submit import package
from raytrain_eks.submit.entrypoint import SCRIPT, SWEEP_MODULE, SWEEP_SCRIPT
from raytrain_eks.submit.errors import Busy
from raytrain_eks.submit.target import RUN, STORAGE, Placement, Submission, Target
from raytrain_eks.train.tiny import dry_run_name


@dataclass(frozen=True)
class JobFile:
    """A job as it stands in a file. What was checked is what is sent, also when the file changes meanwhile."""

    path: Path
    content: bytes
    document: Document
    job: Job
    tiny: bool = False
    """Whether it is to be run in small; `job` then says what the driver will make of it, as far as that is known."""
    sweep: Sweep | None = None
    """The sweep that the file is of, its job in place. `job` is then that job under the sweep's name and storage: what
    a target has to know of each trial."""

    @classmethod
    def read(cls, path: Path) -> "JobFile":
        """Raises SpecError with every problem of the file, OSError when it cannot be read."""
        return cls.of(path, content_of(path))

    @classmethod
    def of(cls, path: Path, content: bytes) -> "JobFile":
        """The job, or the sweep, of a text that was read from `path`. Raises SpecError with every problem."""
        document = single(read_documents(text_of(content, str(path)), str(path), lenient=True), str(path))
        if isinstance(document.data, dict) and document.data.get("kind") == "Sweep":
            return cls.of_sweep(path, content, document)
        return cls(path, content, document, of_document(document, expect="Job"))

    @classmethod
    def of_sweep(cls, path: Path, content: bytes, document: Document) -> "JobFile":
        """What travels of a sweep has its job in place: no other file is needed to go on with it."""
        from raytrain_eks.spec.sweep_job import problems, resolved
        from raytrain_eks.spec.write import to_yaml

        sweep = of_document(document, expect="Sweep")
        if found := located(problems(sweep, Path.cwd()), document):
            raise SpecError(found)
        if isinstance(sweep.job, str):
            sweep = resolved(sweep, Path.cwd())
            content = to_yaml(sweep).encode()
        changed: dict[str, object] = {"name": sweep.name, "storage": sweep.storage or sweep.job.storage}
        workers = sweep.job.workers
        if workers.nodes is not None and sweep.concurrency is not None:
            # A cluster that is made for the sweep has room for all trials that run at the same time.
            changed["workers"] = workers.model_copy(update={"nodes": workers.nodes * sweep.concurrency})
        return cls(path, content, document, sweep.job.model_copy(update=changed), sweep=sweep)

    def dry_run(self, target: Target) -> "JobFile":
        """The file as a dry run: another name, whatever workers there are, and no storage of a cluster on a laptop."""
        if self.sweep is not None:
            raise SpecError([Problem(path="kind", rule="a sweep has no dry run", fix="try its job with --tiny")])
        changed: dict[str, object] = {"name": dry_run_name(self.job.name), "workers": Workers()}
        if target.shares_files:
            changed["storage"] = None
        return replace(self, job=self.job.model_copy(update=changed), tiny=True)

    @property
    def spec(self) -> Job | Sweep:
        """What the file says: by it a run or a sweep is told from another."""
        return self.sweep if self.sweep is not None else self.job

    def placed(self, problem: Problem) -> Problem:
        """A problem whose path is of the job's tree (or the sweep's), with its place in the file and the text there."""
        if self.sweep is not None:
            own = problem.path.split(".")[0] in Sweep.model_fields
            below = problem if own else replace(problem, path=f"job.{problem.path}")
            return located([below], self.document)[0]
        path = tuple(int(part) if part.isdigit() else part for part in problem.path.split("."))
        line, column = self.document.place(path) or (None, None)
        shown = Problem(
            path=dotted(self.document.data, path),
            value=problem.value if problem.value is not None else self.document.texts.get(path),
            rule=problem.rule,
            fix=problem.fix,
        )
        return shown.at(self.document.file, line, column)


def storage_for(job: Job, target: Target, *, given: str | None, folder: Path, shared: str | None = None) -> str:
    """Where the run's folder goes. On this machine always an absolute path or a URL: a relative one starts at
    `folder`. `shared` is the cluster's own shared storage. Raises SpecError when a remote cluster is not told."""
    storage = given or job.storage
    if target.shares_files:
        storage = storage or default_storage()
        return storage if "://" in storage else str(folder / Path(os.path.expanduser(storage)))
    preset = os.environ.get("RAYTRAIN_STORAGE", "")
    storage = storage or (preset if "://" in preset else None) or shared
    if storage is None:
        rule = "a run on a cluster needs storage that all its nodes share"
        fix = "write `storage: s3://bucket/prefix` or the mount of a shared file system, or give --storage"
        raise SpecError([Problem(path="storage", rule=rule, fix=fix)])
    if "://" not in storage and not storage.startswith("/"):
        rule = "must be absolute, since a cluster's nodes have another working directory"
        raise SpecError([Problem(path="storage", value=storage, rule=rule, fix="for example /shared/runs")])
    return storage


def check(
    file: JobFile, target: Target, storage: str, *, folder: Path, resume: bool, place: Placement | None = None
) -> None:
    """Everything that is cheap to know before anything starts. Raises SpecError with all of it."""
    problems = list(target.check(file.job))
    problems += place.storage_problems(storage) if place is not None else []
    if target.shares_files and not file.tiny:
        problems += _missing(file.job, folder)
    found = [file.placed(problem) for problem in problems]
    if "://" not in storage and target.shares_files:
        from raytrain_eks.checkpoint.run import RunFolder
        from raytrain_eks.checkpoint.storage import Storage

        try:
            Storage.of(storage).check_writable()
            if not resume and not file.tiny:
                found += [file.placed(each) for each in RunFolder(storage, file.job.name).differences(file.spec)]
        except SpecError as error:
            found += error.problems
    if found:
        raise SpecError(found)


def _missing(job: Job, folder: Path) -> Iterator[Problem]:
    """Data and models that the file says are on this machine, and that are not."""
    train = job.data.train
    sources = {"data.train": train} if isinstance(train, str) else {}
    if not isinstance(train, str):
        sources |= {f"data.train.{index}.path": source.path for index, source in enumerate(train)}
    if job.data.evaluate is not None:
        sources["data.evaluate"] = job.data.evaluate
    for path, source in sources.items():
        if "://" in source or source.startswith("python-stdlib:"):
            continue
        place = folder / Path(os.path.expanduser(source))
        if not place.exists():
            fix = "a relative path starts where `submit` is run"
            yield Problem(path=path, rule=f"there is no such file or folder ({place})", fix=fix)
        elif place.is_dir() and not any(place.iterdir()):
            yield Problem(path=path, rule="the folder is empty")
    name = job.model.name
    if name is not None and (name.startswith((".", "/", "~")) or (folder / name).is_dir()):
        place = folder / Path(os.path.expanduser(name))
        if not (place / "config.json").is_file():
            rule = "the folder has no config.json" if place.is_dir() else f"there is no such folder ({place})"
            yield Problem(path="model.name", rule=rule, fix="give a folder that save_pretrained wrote")


def assemble(
    file: JobFile, target: Target, storage: str, *, folder: Path, working_dir: Path, resume: bool, limit: int
) -> Submission:
    """Pack the working directory with the job file in it. Raises TooLarge, OSError."""
    root = working_dir.resolve()
    name = _name_in(root, file.path)
    runs = (Path(storage),) if "://" not in storage else ()
    packed = package.of_folder(root, without=runs, extra={name: file.content})
    packed.check(limit)
    script, module = (SCRIPT, None) if file.sweep is None else (SWEEP_SCRIPT, SWEEP_MODULE)
    driver = script if any(each.name == script for each in packed.files) else module
    return Submission(
        # A name with a random end: unique on any cluster, and never more than 64 characters.
        id=f"{file.job.name}-{secrets.token_hex(4)}",
        run=file.job.name,
        job_file=name,
        script=driver,
        options=(f"--storage={storage}", *(("--resume",) if resume else ()), *(("--tiny",) if file.tiny else ())),
        folder=str(folder),
        package=packed,
        environment=dict(file.job.environment),
        metadata={RUN: file.job.name, STORAGE: storage},
    )


def refuse_twice(submission: Submission, target: Target) -> None:
    """Raises Busy when a job of the same run is on the target and not over: a second attempt would fence it."""
    for state in target.jobs():
        same = all(state.metadata.get(key) == submission.metadata[key] for key in (RUN, STORAGE))
        if same and not state.phase.over:
            raise Busy(
                f"{submission.run} runs already, as {state.id} on {target.name}\n"
                f"  follow it: raytrain-eks logs {submission.run} -f      stop it: raytrain-eks cancel {submission.run}"
            )


def _name_in(root: Path, path: Path) -> str:
    """The job file's name in the package: its own where that is in the working directory and can be carried."""
    try:
        name = path.resolve().relative_to(root).as_posix()
    except ValueError:
        return package.ALIAS
    return name if package.fits(name) else package.ALIAS
