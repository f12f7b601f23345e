"""`Cluster` in Python: the cluster file's tree, what it becomes, and the way from a notebook into it."""

from typing import TYPE_CHECKING, Any

from raytrain_eks.api.tree import Tree, source
from raytrain_eks.spec import cluster as spec
from raytrain_eks.spec.problem import Problem, SpecError

if TYPE_CHECKING:
    from raytrain_eks.api.connection import Connection
    from raytrain_eks.api.result import Table
    from raytrain_eks.kube.apply import Result
    from raytrain_eks.manifests.bundle import Bundle
    from raytrain_eks.manifests.compare import Change
    from raytrain_eks.plan.cluster import ClusterPlan
    from raytrain_eks.submit.target import Say


class Manifests(list[dict[str, Any]]):
    """Kubernetes objects as plain data, in the order of applying. As text they are YAML."""

    def __init__(self, bundle: "Bundle", warnings: tuple[str, ...] = ()):
        super().__init__(bundle.bodies)
        self.notes = bundle.notes
        """What no object can do, as sentences for the person who applies it."""
        self.warnings = warnings
        """What lint finds odd, though it can run."""

    def __str__(self) -> str:
        from raytrain_eks.manifests import text

        return text.yaml(self)

    def _repr_html_(self) -> str:
        from raytrain_eks.api import html

        rows = [
            {"kind": each["kind"], "name": each["metadata"]["name"], "namespace": each["metadata"].get("namespace")}
            for each in self
        ]
        return html.table(rows)


class Cluster(Tree, spec.Cluster):
    """A training cluster: `Cluster.load("cluster_specs/gpu-a100.yaml")`, or `Cluster(name=..., ...)`."""

    _spec = spec.Cluster

    def plan(self) -> "ClusterPlan":
        """Every decision: what a pod asks for, where it runs, and why. Raises SpecError with every problem."""
        from raytrain_eks.plan.cluster import resolve

        known = source(self)
        return resolve(self, document=known[2] if known is not None else None)

    def render(self, *only: str) -> Manifests:
        """Every Kubernetes object, or those whose kind or system is among `only`; `str()` of it is YAML.

        Raises SpecError for what cannot run, with every reason; ValueError for a word of `only` that names nothing.
        """
        from raytrain_eks.lint import lint_objects
        from raytrain_eks.lint.of_cluster import settings
        from raytrain_eks.manifests.bundle import build

        plan = self.plan()
        bundle = build(plan)
        found = lint_objects(bundle.bodies, settings(plan))
        errors = [
            Problem(path=f"{each.object}: {each.path}", rule=f"{each.reason} ({each.rule})", fix=each.fix)
            for each in found
            if each.severity == "error"
        ]
        if errors:
            raise SpecError(errors, consequence="nothing rendered")
        known = {word.lower() for word in bundle.words()}
        if unknown := [word for word in only if word.lower() not in known]:
            raise ValueError(f"nothing of this bundle is called {unknown[0]!r}; there are {', '.join(bundle.words())}")
        return Manifests(bundle.only(only) if only else bundle, tuple(map(str, found)))

    def apply(
        self,
        *,
        wait: bool = True,
        timeout: str = "15m",
        dry_run: bool = False,
        force: bool = False,
        say: "Say | None" = None,
        **where: Any,
    ) -> "Table[Result]":
        """Bring its objects into a Kubernetes cluster, as `raytrain-eks apply` does; twice is once. `dry_run` lets the
        API do all of it and keep nothing; `force` takes what others own. `where`: `context`, `namespace`, `kubeconfig`.

        Raises SpecError for what cannot run, KubeError for what the API refuses, NotReady after `timeout`.
        """
        from raytrain_eks.api.applying import apply
        from raytrain_eks.api.run import quiet

        return apply(self.render(), where, wait=wait, timeout=timeout, dry_run=dry_run, force=force, say=say or quiet)

    def diff(self, *, say: "Say | None" = None, **where: Any) -> "Table[Change]":
        """What `apply` would change in a Kubernetes cluster, and what it would leave behind; empty for nothing. `where`
        and errors are those of `apply`."""
        from raytrain_eks.api.applying import diff
        from raytrain_eks.api.run import quiet

        return diff(self.render(), self.name, where, say or quiet)

    def connect(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca: str | None = None,
        any_version: bool = False,
        client_address: str | None = None,
    ) -> "Connection":
        """The way into the running cluster from a pod of the same Kubernetes cluster, such as a hub's notebook.

        `address`: of its dashboard; None: its head's service. The token is `token`, that of `token_file`,
        $RAY_AUTH_TOKEN or $RAY_AUTH_TOKEN_PATH, or the Secret that the operator keeps it in, where this pod's account
        may read it. `client_address`: `ray://...`; None: port 10001 of the same host.

        Raises Unreachable, NotAllowed, Incompatible (both versions named), each with what to do.
        """
        from raytrain_eks.api.connection import connect

        return connect(
            self,
            address=address,
            token=token,
            token_file=token_file,
            ca=ca,
            any_version=any_version,
            client_address=client_address,
        )
