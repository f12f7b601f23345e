"""raytrain-eks: from one short YAML file to a trained model on Amazon EKS, on Ray.

The public names are the tree that a person also writes as YAML: `Cluster`, `Job`, `Sweep`. They are imported on
first use, so that `import raytrain_eks` stays free of ray, torch and pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Cluster": "raytrain_eks.spec.cluster",
    "Job": "raytrain_eks.spec.job",
    "SpecError": "raytrain_eks.spec.problem",
    "Sweep": "raytrain_eks.spec.sweep",
}
__all__ = ["Cluster", "Job", "SpecError", "Sweep", "__version__"]

if TYPE_CHECKING:
    from raytrain_eks.spec.cluster import Cluster
    from raytrain_eks.spec.job import Job
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.spec.sweep import Sweep


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
