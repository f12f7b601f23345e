"""The command that a job server runs: one line of POSIX shell out of words that may hold anything.

`exec` makes the driver take the shell's place, so that its signals and its exit code are the job's own.
"""

import shlex

SCRIPT = "jobs/train.py"
MODULE = "raytrain_eks.train"
SWEEP_SCRIPT = "jobs/sweep.py"
SWEEP_MODULE = "-m raytrain_eks.tune"
"""The driver of a sweep where its script does not travel: what stands in a script's place."""


def shell_line(
    python: str, job_file: str, options: tuple[str, ...], *, script: str | None, folder: str | None = None
) -> str:
    """The driver's command. It starts in the unpacked working directory, where `job_file` and `script` are (None: the
    package's own driver). With `folder` the driver works there instead, so that relative paths of the job file mean
    what they mean to the person who submits it.

    Raises ValueError for a zero byte, which no command can carry.
    """
    if any("\0" in word for word in (python, job_file, script or "", folder or "", *options)):
        raise ValueError("a command cannot carry a zero byte")
    # POSIX: `cd` leaves the folder it came from in OLDPWD. CDPATH would send a relative name elsewhere: it is absolute.
    begin = f"cd -- {shlex.quote(folder)} && exec" if folder is not None else "exec"
    driver = ["-m", MODULE]
    if script is not None:
        driver = script.split() if script == SWEEP_MODULE else [_unpacked(script, folder)]
    return " ".join([begin, shlex.quote(python), *driver, *map(shlex.quote, options), _unpacked(job_file, folder)])


def _unpacked(name: str, folder: str | None) -> str:
    """A file of the unpacked working directory as one shell word; never read as an option."""
    if folder is not None:
        return f'"$OLDPWD"/{shlex.quote(name)}'
    return shlex.quote(f"./{name}" if name.startswith("-") else name)
