"""`Sweep` in Python: the sweep file's tree."""

from raytrain_eks.api.tree import Tree
from raytrain_eks.spec import sweep as spec


class Sweep(Tree, spec.Sweep):
    """Many trainings over a space: `Sweep.load("jobs/sweep.yaml")`, or `Sweep(name=..., ...)`."""

    _spec = spec.Sweep
