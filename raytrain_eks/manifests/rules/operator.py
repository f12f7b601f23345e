"""Which operator reads the objects: its version, its feature gates, and the fields that it knows.

Sources: pkg/features/features.go at v1.7.0; fields by comparing the definitions of v1.4.0 to v1.7.0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.manifests.rules.breach import Breach, Path, part

Version = tuple[int, int, int]

GATES = {
    "RayClusterStatusConditions": True,
    "RayJobDeletionPolicy": True,
    "RayMultiHostIndexing": True,
    "RayServiceIncrementalUpgrade": True,
    "RayCronJob": False,
    "SidecarSubmitterRestart": False,
    "RayClusterNetworkPolicy": False,
    "GCSFaultToleranceEmbeddedStorage": False,
    "RayClusterMTLS": False,
    "RayClusterHistoryServer": False,
    "KubernetesWAS": False,
}
"""Feature gate -> whether 1.7 has it on by default."""

_LATE_ON = {"RayJobDeletionPolicy": (1, 6, 0), "RayMultiHostIndexing": (1, 6, 0)}
"""Gates that were off by default before this version."""

SINCE: dict[Path, Version] = {
    ("authOptions",): (1, 5, 1),
    ("authOptions", "enableK8sTokenAuth"): (1, 6, 0),
    ("upgradeStrategy",): (1, 6, 0),
    ("networkPolicy",): (1, 7, 0),
    ("tlsOptions",): (1, 7, 0),
    ("historyServerOptions",): (1, 7, 0),
    ("autoscalerOptions", "version"): (1, 4, 0),
    ("autoscalerOptions", "args"): (1, 7, 0),
    ("autoscalerOptions", "command"): (1, 7, 0),
    ("gcsFaultToleranceOptions", "backend"): (1, 7, 0),
    ("gcsFaultToleranceOptions", "storage"): (1, 7, 0),
    ("headGroupSpec", "labels"): (1, 5, 0),
    ("headGroupSpec", "resources"): (1, 5, 0),
    ("headGroupSpec", "ingressOptions"): (1, 7, 0),
    ("workerGroupSpecs", "*", "labels"): (1, 5, 0),
    ("workerGroupSpecs", "*", "resources"): (1, 5, 0),
    ("workerGroupSpecs", "*", "priority"): (1, 7, 0),
}
"""Field of a RayCluster's spec -> the first operator whose definition has it; an older one drops it in silence."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The operator's version, and the gates that it was started with."""

    version: str = "1.7.0"
    gates: Mapping[str, bool] = field(default_factory=dict)

    def enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        if gate in self.gates:
            return self.gates[gate]
        return GATES.get(gate, False) and not self.before(_LATE_ON.get(gate, (0, 0, 0)))

    def before(self, version: Version) -> bool:
        """Whether the operator is older than `version`."""
        return (parsed(self.version) or (9, 0, 0)) < version


def parsed(text: str) -> Version | None:
    """`2.52.0`, `v1.7` -> numbers, as k8s.io/apimachinery's ParseGeneric reads them; None for what is no version."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d])", text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def dropped(spec: Mapping[str, Any], base: Path, operator: Operator, since: Mapping[Path, Version]) -> Iterator[Breach]:
    """V1: fields that the operator's definitions do not have yet, so that the API server drops them in silence."""
    for path, version in since.items():
        if operator.before(version):
            for found in _present(spec, path):
                first = ".".join(map(str, version))
                message = f"this field came with KubeRay {first}, and {operator.version} drops it without a word"
                yield Breach(rule="V1", at=(*base, *found), message=message)


def _present(value: Any, path: Path) -> Iterator[Path]:
    if not path:
        yield ()
    elif path[0] == "*":
        for index in range(len(value) if isinstance(value, list) else 0):
            yield from ((index, *rest) for rest in _present(value[index], path[1:]))
    elif part(value, path[0]) is not None:
        yield from ((path[0], *rest) for rest in _present(part(value, path[0]), path[1:]))
