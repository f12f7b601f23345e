"""What a Kubernetes API answers, in the words of a target."""

from collections.abc import Iterator
from contextlib import contextmanager

from raytrain_eks.kube.errors import Forbidden, KubeError, Unauthorized
from raytrain_eks.kube.errors import NotFound as NoObject
from raytrain_eks.kube.errors import Unreachable as Silent
from raytrain_eks.submit.errors import NotAllowed, NotFound, TargetError, Unreachable


class Refused(TargetError):
    """The API does not take an object, or a kubeconfig cannot be used; the exit code is that of its error."""

    def __init__(self, error: KubeError):
        super().__init__(str(error))
        self.code = error.code


@contextmanager
def told() -> Iterator[None]:
    """Turn KubeError into TargetError."""
    try:
        yield
    except Silent as error:
        raise Unreachable(str(error)) from None
    except (Forbidden, Unauthorized) as error:
        raise NotAllowed(str(error)) from None
    except NoObject as error:
        raise NotFound(str(error)) from None
    except KubeError as error:
        raise Refused(error) from None
