"""What a rule is, what it finds, and what the person who asks may tell it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from raytrain_eks.spec.source import Mark, Path

if TYPE_CHECKING:
    from raytrain_eks.lint.bundle import Bundle
    from raytrain_eks.lint.resource import Resource

Severity = Literal["error", "warning"]
"""`error`: it cannot work as written. `warning`: it runs, but loses money, speed or work."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the manifests do not say themselves."""

    kubernetes: str = "1.33"
    """Minor version of the cluster, `1.33`."""
    operator: str = "1.7.0"
    """Version of the KubeRay operator."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates of that operator that differ from its defaults."""
    external: frozenset[str] = frozenset()
    """What exists outside of the files: `kind/name` or `kind/namespace/name`, such as `secret/training/hf-token`; a
    star as the name stands for all of a kind. A node label is `node/key=value`."""
    daemon_cpu: Decimal = Decimal("0.15")
    """CPUs that EKS's own daemon sets request on every node: aws-node 2 x 25m, kube-proxy 100m."""
    daemon_memory: Decimal = Decimal(0)
    """Bytes of memory; those two request none."""

    def has(self, kind: str, name: str, namespace: str | None = None) -> bool:
        """Whether the object was declared to exist outside of the files."""
        forms = {f"{kind}/{name}", f"{kind}/*", f"{kind}/{namespace}/{name}", f"{kind}/{namespace}/*"}
        return any(form.lower() in self.external for form in forms)

    def before(self, version: str) -> bool:
        """Whether the cluster's Kubernetes is older than `version`."""
        return minor(self.kubernetes) < minor(version)


def minor(version: str) -> tuple[int, int]:
    """`1.33`, `v1.33.2` -> (1, 33). Raises ValueError for what is no version."""
    parts = version.strip().removeprefix("v").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise ValueError(f"{version!r} is not a Kubernetes version such as 1.33")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True, kw_only=True)
class Hit:
    """Where a rule found something, before it gets the rule's id and a line."""

    on: "Resource"
    path: Path
    """Inside the document."""
    reason: str
    """What is wrong, as a sentence without a full stop, with the values concerned."""
    fix: str
    key: bool = False
    """Whether the key at the path is the culprit, and not its value."""
    mark: Mark | None = None
    """Line and column, where they are known better than by the path."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that is looked for. The texts are what `explain RULE` prints."""

    id: str
    """Stable: a rule never changes its id, and an id is never used again."""
    severity: Severity
    title: str
    why: str
    """What happens when nobody notices, and the source of the rule."""
    fix: str
    check: Callable[["Bundle", Settings], Iterable[Hit]]

    def explanation(self) -> str:
        """The rule as text for people."""
        silence = f'raytrain-eks/lint-ignore: "{self.id}=why it is meant so"'
        return (
            f"{self.id}  {self.title}  ({self.severity})\n\n{self.why}\n\n{self.fix}\n\n"
            f"To silence it on one object, annotate the object or its pod template:\n  {silence}"
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding, ready to be shown."""

    rule: str
    severity: Severity
    file: str
    line: int | None
    column: int | None
    object: str
    """`Kind namespace/name`."""
    path: str
    """Inside the object, in dots; a list entry by its name where it has one."""
    reason: str
    fix: str

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part not in (None, ""))

    def __str__(self) -> str:
        rule = self.rule if self.severity == "error" else f"{self.rule} {self.severity}"
        head = "  ".join(part for part in (self.place, rule, self.object, self.path) if part)
        return f"{head}\n  {self.reason}\n  {self.fix}"

    def as_data(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "file": self.file or None,
            "line": self.line,
            "column": self.column,
            "object": self.object,
            "path": self.path,
            "reason": self.reason,
            "fix": self.fix,
        }
