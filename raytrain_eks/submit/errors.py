"""What can stop a submission that is no fault of a file: each is one sentence and knows its exit code."""


class TargetError(Exception):
    """A target cannot do what was asked; the message says what, why, and what to do."""

    code = 1
    """The exit code of a verb that ends with it (see `cli.main`)."""


class Unreachable(TargetError):
    """The cluster does not answer."""

    code = 4


class NotAllowed(TargetError):
    """The cluster answers, and refuses: no token, a wrong one, no right."""

    code = 4


class Incompatible(TargetError):
    """The cluster runs another Ray or Python than this machine."""

    code = 4


class TooLarge(TargetError):
    """The working directory is over the limit of an upload."""

    code = 3


class NotFound(TargetError):
    """There is no such run or job."""

    code = 2


class Lost(TargetError):
    """The cluster that ran a job is gone, and the job with it. Its checkpoints are not."""

    code = 1


class Busy(TargetError):
    """Something that runs would be lost."""

    code = 1


class Misused(TargetError):
    """An option that has no meaning for this target."""

    code = 2


class AlreadyComplete(TargetError):
    """The run is over, and what was submitted would not extend it. Nothing is wrong."""

    code = 0
