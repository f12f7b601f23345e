"""Exit codes, and how an error becomes one: a person's mistake is a message, only our own bug is a traceback."""

import errno
import os
import sys
from enum import IntEnum

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a write to standard output fails with when it goes to a file: the disk is full, or broken."""

NO_NAME = "a FILE's name is empty; was a variable meant?"
_PATH_MAX = 4096
_NO_HOME = "Could not determine home directory."
"""What `Path.home()` raises for a user without HOME and without an account, as a container may run."""


class Failure(Exception):
    """A verb that cannot go on, with one clear message and an exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Outcome(IntEnum):
    """What the process's exit code says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    FINDINGS = 3
    UNREACHABLE = 4
    TIMEOUT = 5
    INTERRUPTED = 130

    @classmethod
    def of(cls, error: BaseException) -> int:
        """Say on stderr what happened and return the exit code; an unknown error is our bug and is raised again."""
        from raytrain_eks.cli.meant import NO_FOLDER, in_a_folder, meant
        from raytrain_eks.kube.errors import KubeError
        from raytrain_eks.spec.problem import SpecError, shown
        from raytrain_eks.submit.errors import TargetError

        if isinstance(error, TargetError | KubeError):
            print(error, file=sys.stderr)
            return error.code
        if isinstance(error, SpecError):
            print(error, file=sys.stderr)
            return cls.FINDINGS
        if isinstance(error, Failure):
            print(error, file=sys.stderr)
            return error.code
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
            cls._forget_what_is_left()
            return cls.FAILED
        if isinstance(error, OSError) and error.filename is not None:
            if not error.filename:
                print(NO_NAME, file=sys.stderr)
                return cls.USAGE
            name = os.fsdecode(error.filename)
            print(f"{shown(name, most=_PATH_MAX)}: {error.strerror}", file=sys.stderr)
            if isinstance(error, FileNotFoundError):
                print(f"  {meant(name)}", file=sys.stderr)
            return cls.USAGE
        if isinstance(error, FileNotFoundError) and not in_a_folder():
            print(NO_FOLDER, file=sys.stderr)
            return cls.USAGE
        if isinstance(error, RuntimeError) and str(error) == _NO_HOME:
            print("no home folder is known for this user\n  set HOME, or say --storage", file=sys.stderr)
            return cls.USAGE
        raise error

    @staticmethod
    def _forget_what_is_left() -> None:
        """Keep the interpreter from trying once more at its end, with a message of its own."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
