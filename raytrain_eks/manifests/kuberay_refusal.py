"""The operator's rules against a rendered object, as problems of the cluster file that it came from."""

from raytrain_eks.manifests.object import Body
from raytrain_eks.manifests.rules import Breach, Operator, breaches
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.check import located
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.source import Document

FIELDS = {
    "gcsFaultToleranceOptions": "head.fault_tolerance",
    "authOptions": "auth",
    "autoscalerOptions": "autoscaling",
    "enableInTreeAutoscaling": "autoscaling",
    "headGroupSpec": "head",
}
"""Field of a RayCluster's spec -> where a cluster file says it."""


def refuse(body: Body, plan: ClusterPlan) -> None:
    """Raise SpecError, with all problems, for an object that the file's operator would refuse."""
    operator = Operator(version=plan.cluster.operator.version, gates=plan.cluster.operator.feature_gates)
    if found := breaches(body, operator):
        problems = [
            Problem(
                path=in_file(breach),
                rule=f"the KubeRay operator {operator.version} refuses {breach.path}: {breach.message}",
                fix=f"change it, or `operator` where its version or feature gates are others (rule {breach.rule})",
            )
            for breach in found
        ]
        raise SpecError(located(problems, plan.document or Document(file="", data=plan.cluster.written())))


def in_file(breach: Breach) -> str:
    """The field of the cluster file that a place in an object comes from."""
    steps = breach.at
    if "rayClusterSpec" in steps:
        steps = ("spec", *steps[steps.index("rayClusterSpec") + 1 :])
    if steps[0] != "spec" or len(steps) < 2:
        return "name" if steps[0] == "metadata" else "operator"
    if steps[1] == "workerGroupSpecs" and len(steps) > 2:
        return f"workers.{steps[2]}"
    return FIELDS.get(str(steps[1]), str(steps[1]))
