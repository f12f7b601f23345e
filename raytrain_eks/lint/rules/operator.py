"""RT801: what the KubeRay operator refuses, said before anything is applied, by `manifests.rules`."""

from collections.abc import Iterator

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.manifests.rules import Operator, breaches


def _refused(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    operator = Operator(version=settings.operator, gates=settings.gates)
    for resource in bundle.resources:
        if resource.group != "ray.io":
            continue
        for breach in breaches(resource.data, operator):
            reason = f"{breach.message} (operator {settings.operator}, rule {breach.rule})"
            fix = "the operator does not create pods until it is corrected"
            yield Hit(on=resource, path=(*resource.base, *breach.at), reason=reason, fix=fix)


RULES = (
    Rule(
        id="RT801",
        severity="error",
        title="The KubeRay operator refuses the object",
        why="The API server takes the object, and the operator refuses it in its reconcile loop: a RayCluster gets a "
        "Warning event and nothing else, a RayJob the status ValidationFailed. Source: validation.go of KubeRay 1.7. "
        "State the operator with --operator-version and --feature-gates.",
        fix="Correct the field that is named.",
        check=_refused,
    ),
)
