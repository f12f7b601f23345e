"""How units are worked through: here, one after the other, or on the Ray cluster by Ray Data."""

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from raytrain_eks.data.corpus import Unit

Result = TypeVar("Result")
Work = Callable[[Unit], Result]
Execute = Callable[[Callable[[Unit], Any], Sequence[Unit]], Iterator[Any]]
"""How units are worked through: the work, the units -> the results in the same order."""

BLOCK_BYTES = 8 * 2**20
"""Ray Data's largest block. Its default (128 MiB) spilled to disk on a small object store, this did not."""
BLOCKS = 2_000
"""Ray Data gets at most so many input blocks; above that, several units go into one."""


def here(work: Work[Result], units: Sequence[Unit]) -> Iterator[Result]:
    """Work through the units in this process."""
    for unit in units:
        yield work(unit)


def ray_data(work: Work[Result], units: Sequence[Unit]) -> Iterator[Result]:
    """Work through the units on the cluster, in order; results come as they are ready, few at a time.

    Connects to Ray where that was not done. Tasks ask for one CPU each; where none is free (all are held by
    training), for none, and then two run at a time. Raises what `work` raised.
    """
    import ray
    from ray.exceptions import RayTaskError

    if not ray.is_initialized():
        ray.init(logging_level=logging.WARNING, log_to_driver=False)
    rows = [{"unit": pickle.dumps(unit)} for unit in units]
    with _settings():
        dataset = ray.data.from_items(rows, override_num_blocks=max(min(len(rows), BLOCKS), 1))
        try:
            yield from map(_result, dataset.map(_Step(work), **_resources()).iter_rows())
        except RayTaskError as error:
            raise _cause(error) from error


class _Step:
    """One row in, one row out: a pickled unit, a pickled result."""

    def __init__(self, work: Work[Any]):
        self.work = work

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"result": pickle.dumps(self.work(pickle.loads(row["unit"])))}


def _result(row: dict[str, Any]) -> Any:
    return pickle.loads(row["result"])


def _resources() -> dict[str, Any]:
    import ray

    free = ray.available_resources().get("CPU", 0.0)
    return {"num_cpus": 1} if free >= 1 else {"num_cpus": 0, "concurrency": 2}


def _cause(error: BaseException) -> BaseException:
    """What our own code raised, below what Ray wrapped around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError | ValueError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error


@contextmanager
def _settings() -> Iterator[None]:
    """Ray Data with small blocks, in order, without bars and banners; what was set before comes back."""
    import ray.data

    context = ray.data.DataContext.get_current()
    wanted = {"enable_progress_bars": False, "target_max_block_size": BLOCK_BYTES, "target_min_block_size": 2**20}
    before = {name: getattr(context, name) for name in wanted}
    ordered = context.execution_options.preserve_order
    loggers = {"ray.data": logging.WARNING, "ray.data._internal.progress": logging.ERROR}
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name, value in wanted.items():
        setattr(context, name, value)
    context.execution_options.preserve_order = True
    for name, level in loggers.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        context.execution_options.preserve_order = ordered
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
