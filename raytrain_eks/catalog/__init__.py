"""EC2 instance facts as data: counts, allocatable resources, accelerators, EFA, each row with a source and a date.

Pure. No number about an instance stands anywhere else in the code.
"""

from raytrain_eks.catalog.choose import Choice, resolve_gpus
from raytrain_eks.catalog.filter import where
from raytrain_eks.catalog.instance import Instance, instance, instances, known
from raytrain_eks.catalog.registry import eks_registry

__all__ = ["Choice", "Instance", "eks_registry", "instance", "instances", "known", "resolve_gpus", "where"]
