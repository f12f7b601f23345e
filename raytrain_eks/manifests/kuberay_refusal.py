"""The operator's rules against a rendered object, as problems of the cluster file that it came from."""

from collections.abc import Iterator

from raytrain_eks.manifests.object import Body
from raytrain_eks.manifests.rules import GATES, Breach, Operator, breaches
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.check import located
from raytrain_eks.spec.problem import Problem, SpecError, nearest
from raytrain_eks.spec.source import Document

NEWEST = (1, 7)
"""The newest operator whose gates are known here."""
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
    problems = list(_unknown_gates(operator))
    if found := breaches(body, operator):
        problems += [
            Problem(
                path=in_file(breach),
                rule=f"the KubeRay operator {operator.version} refuses {breach.path}: {breach.message}",
                fix=f"change it, or `operator` where its version or feature gates are others (rule {breach.rule})",
            )
            for breach in found
        ]
    if problems:
        raise SpecError(located(problems, plan.document or Document(file="", data=plan.cluster.written())))


def _unknown_gates(operator: Operator) -> Iterator[Problem]:
    """Gates that no operator up to the newest one known has: it would not start with them."""
    for gate in operator.gates:
        if gate not in GATES and tuple(map(int, operator.version.split(".")[:2])) <= NEWEST:
            guess = nearest(gate, GATES)
            fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join(GATES)}"
            rule = f"the KubeRay operator {operator.version} has no such gate and does not start with it"
            yield Problem(path=f"operator.feature_gates.{gate}", rule=rule, fix=fix)


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
