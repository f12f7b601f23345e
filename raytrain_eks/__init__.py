"""raytrain-eks: from one short YAML file to a trained model on Amazon EKS, on Ray.

The public names are the tree that a person also writes as YAML, with verbs on it: `Cluster`, `Job`, `Sweep`; and
`Run`. They are imported on first use, so that `import raytrain_eks` stays free of ray, torch and pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Cluster": "raytrain_eks.api.cluster",
    "Job": "raytrain_eks.api.job",
    "Run": "raytrain_eks.api.run",
    "SpecError": "raytrain_eks.spec.problem",
    "Sweep": "raytrain_eks.api.sweep",
    "TargetError": "raytrain_eks.submit.errors",
}
__all__ = ["Cluster", "Job", "Run", "SpecError", "Sweep", "TargetError", "__version__"]

if TYPE_CHECKING:
    from raytrain_eks.api.cluster import Cluster
    from raytrain_eks.api.job import Job
    from raytrain_eks.api.run import Run
    from raytrain_eks.api.sweep import Sweep
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.submit.errors import TargetError


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
