"""The driver of a run whose steps take their time while a file is there, and which grows again soon.

python slow_driver.py FILE JOB [OPTIONS]
"""

import sys
from typing import Any

from raytrain_eks.train import driver, trainer, worker

PAUSE = 0.7
"""Seconds."""


def slowly(task: dict[str, Any]) -> None:
    """What every worker runs; it goes there by value, as all of this file."""
    import time
    from pathlib import Path

    from raytrain_eks.train.loop import Loop
    from raytrain_eks.train.worker import train_worker

    step, file = Loop._step, Path(task.pop("slow_while"))

    def slow_step(self: Loop) -> bool:
        if file.exists():
            time.sleep(pause)
        return step(self)

    pause = task.pop("pause")
    Loop._step = slow_step
    train_worker(task)


def main() -> int:
    file, plain = sys.argv[1], trainer.trainer

    def slow_trainer(job: Any, task: dict[str, Any], planned: Any = None) -> Any:
        return plain(job, task | {"slow_while": file, "pause": PAUSE}, planned)

    trainer.trainer, trainer.RESIZE, worker.train_worker = slow_trainer, 2.0, slowly
    return driver.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
