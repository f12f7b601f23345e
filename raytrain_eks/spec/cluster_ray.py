"""Ray itself on Kubernetes: version and image, autoscaling, the head's fault tolerance, tokens, and the operator."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator

from raytrain_eks.spec.cluster_nodes import mapped, short
from raytrain_eks.spec.kubernetes import ObjectName, SecretKey, worded
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Duration, Memory

Version = Annotated[str, worded(re.compile(r"\d+\.\d+\.\d+\Z").match, "must be a version such as 2.60.0")]
KubernetesVersion = Annotated[
    str,
    worded(re.compile(r"1\.\d{1,2}\Z").match, 'must be a version in quotes, such as "1.33": 1.30 alone would be 1.3'),
]
Image = Annotated[
    str,
    worded(
        re.compile(r"[^\s@:]+(:\d+)?(/[^\s@:]+)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?\Z").match, "no image name"
    ),
]


class Ray(Model):
    """Ray's version and the image that all pods run unless their group says otherwise."""

    version: Version = "2.60.0"
    """Ray's version in the image; the operator chooses its features by it."""

    image: Image | None = None
    """The image of head and workers. None: Ray's own public one, `rayproject/ray`, which has no EFA and no Neuron."""

    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes pull the image."""

    pull_secrets: list[ObjectName] = []
    """Existing Secrets with registry credentials."""


class Autoscaling(Model):
    """Ray's own autoscaler, which asks the operator for worker pods; Karpenter follows with nodes."""

    enabled: bool | None = None
    """None: on when a group's `min` and `max` differ and the queue is not Kueue."""

    version: Literal["v1", "v2"] = "v2"
    """The autoscaler's version."""

    idle: Duration = "10m"
    """How long a worker without work stays."""

    upscaling: Literal["Default", "Conservative", "Aggressive"] = "Default"
    """How fast workers are asked for."""


def switched(value: object) -> object:
    """`autoscaling: on`, `off`, `true` and `false` are its field `enabled`."""
    words = {"on": True, "off": False}
    if isinstance(value, str) and value in words:
        return {"enabled": words[value]}
    return {"enabled": value} if isinstance(value, bool) else mapped(value, "on, off, or a mapping")


RedisAddress = Annotated[
    str, worded(re.compile(r"(rediss?://)?[^\s/]+\Z").match, "must be a server such as redis.data.svc:6379")
]


class RedisTolerance(Model):
    """The head's state in a Redis outside of the cluster."""

    kind: Literal["redis"] = "redis"
    """State in Redis."""

    address: RedisAddress
    """The server: `redis.data.svc:6379`, or `rediss://` in front for TLS."""

    password: SecretKey | None = None
    """The Secret with the password. None: the server asks for none."""

    username: SecretKey | None = None
    """The Secret with the user name."""


class EmbeddedTolerance(Model):
    """The head's state in RocksDB on a volume of its own (operator 1.7, an alpha feature)."""

    kind: Literal["rocksdb"] = "rocksdb"
    """State in RocksDB on a volume."""

    claim: ObjectName | None = None
    """An existing claim. None: the operator makes one of `size`."""

    size: Memory = "10Gi"
    """The new claim's size."""

    storage_class: ObjectName | None = None
    """The new claim's storage class. None: the cluster's default one."""

    keep: bool = False
    """Keep the new claim when the cluster is deleted."""

    @rule
    def claim_or_new(self) -> Iterator[Problem]:
        given = sorted({"size", "storage_class"} & self.model_fields_set)
        if self.claim and given:
            yield Problem(path=given[0], rule="an existing claim has it already", fix="leave it out")


Tolerance = Annotated[RedisTolerance | EmbeddedTolerance, Discriminator("kind")]
AnyTolerance = RedisTolerance | EmbeddedTolerance


class Auth(Model):
    """Who may use the dashboard, the Jobs API and the client port."""

    mode: Literal["token", "disabled"] = "token"
    """`token`: the operator makes a token and keeps it in a Secret with the cluster's name; needs Ray 2.52."""

    secret: ObjectName | None = None
    """An existing Secret with the token under the key `auth_token`."""

    @rule
    def secret_has_a_use(self) -> Iterator[Problem]:
        if self.secret and self.mode == "disabled":
            yield Problem(path="secret", rule="without tokens there is none", fix="write `mode: token`")


AuthOrMode = Annotated[Auth, short("mode", Auth)]


class Operator(Model):
    """The KubeRay operator that will read the objects: what it knows and refuses depends on it."""

    version: Version = "1.7.0"
    """The operator's version."""

    feature_gates: dict[str, bool] = {}
    """Feature gates that it was started with, where they differ from its defaults."""
