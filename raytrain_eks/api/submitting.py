"""Submitting from Python: a job or a sweep as the file that it is, to the target that `on` names."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raytrain_eks.api.run import Run, opener, quiet
from raytrain_eks.api.tree import Tree, document_of, source
from raytrain_eks.spec.model import Model
from raytrain_eks.spec.quantity import parse
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.submit.assemble import JobFile
from raytrain_eks.submit.package import ALIAS
from raytrain_eks.submit.start import Wish, start
from raytrain_eks.submit.target import Say

if TYPE_CHECKING:
    from raytrain_eks.api.run import Where


def submit(
    tree: Tree,
    on: "Where",
    access: dict[str, Any],
    *,
    storage: str | os.PathLike[str] | None,
    resume: bool,
    tiny: bool,
    working_dir: str | os.PathLike[str] | None,
    max_upload: str,
    say: Say | None,
) -> Run:
    """See `Job.submit`."""
    place, here = opener(on, access), Path.cwd()
    target, root = place(), Path(working_dir) if working_dir is not None else here
    file = file_of(tree, root)
    given, limit = None if storage is None else os.fspath(storage), int(parse(max_upload))
    wish = Wish(folder=here, working_dir=root, storage=given, resume=resume, limit=limit)
    started = start(file.dry_run(target) if tiny else file, target, wish, say or quiet)
    return Run(started.run, place, storage=started.storage, id=started.id)


def file_of(tree: Tree, root: Path) -> JobFile:
    """What `start` takes: the file that it was loaded from, comments and all, or its fields as YAML."""
    assert isinstance(tree, Model)
    known = source(tree)
    path, content, document = known or (root / ALIAS, tree.to_yaml().encode(), document_of(tree.written()))
    if isinstance(tree, Sweep):
        return JobFile.of_sweep(path, content, document)
    return JobFile(path, content, document, tree)  # type: ignore[arg-type]
