"""Our objects through KubeRay's own Python client, for who has it in use already.

It is on no package index; `INSTALL` is how to get it (its distribution `python-client`, its package `python_client`,
kuberay v1.7, clients/python-client). It takes plain mappings, so what is rendered goes in unchanged. Two habits of it
are taken care of: the namespace is an argument and not the object's own, and whatever the API answers, it writes into
a log and returns None, or False. Importing it sets up Python's root logger and reads the kubeconfig.

    client = KubeRayClient()
    client.create(cluster.render("RayCluster")[0])
    client.wait("RayCluster", "llm", "training", timeout=600)
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raytrain_eks.submit.errors import NotFound, TargetError

INSTALL = (
    "pip install 'python-client @ git+https://github.com/ray-project/kuberay@v1.7.0#subdirectory=clients/python-client'"
)
KINDS = ("RayCluster", "RayJob")
Body = Mapping[str, Any]


class KubeRayClient:
    """RayClusters and RayJobs by an installed `python_client`. Every method raises TargetError with what its log said
    when the API did not do what was asked."""

    def __init__(self) -> None:
        """Raises TargetError when it is not installed, or finds no way to a cluster."""
        try:
            from python_client.kuberay_cluster_api import RayClusterApi
            from python_client.kuberay_job_api import RayjobApi
        except ImportError as error:
            if (error.name or "").split(".")[0] not in ("python_client", "kubernetes"):
                raise
            raise TargetError(f"KubeRay's Python client is not installed\n  {INSTALL}") from None
        try:
            self.clusters, self.jobs = RayClusterApi(), RayjobApi()
        except Exception as error:
            raise TargetError(f"KubeRay's Python client finds no Kubernetes cluster: {error}") from None

    def create(self, body: Body) -> dict[str, Any]:
        """Create a RayCluster or a RayJob as it was rendered; what the API has then. ValueError: another kind."""
        kind, name, namespace = _named(body)
        with _heard() as said:
            if kind == "RayCluster":
                made = self.clusters.create_ray_cluster(body=dict(body), k8s_namespace=namespace)
            else:
                made = self.jobs.submit_job(k8s_namespace=namespace, job=dict(body))
        if not made:
            raise TargetError(_refused(f"{kind} {name} was not created in namespace {namespace}", said))
        return dict(made)

    def patch(self, body: Body) -> None:
        """Change a RayCluster into what is rendered now (a merge patch: lists are replaced). ValueError: a RayJob."""
        kind, name, namespace = _named(body)
        if kind != "RayCluster":
            raise ValueError("KubeRay's Python client changes RayClusters only; a RayJob is submitted anew")
        with _heard() as said:
            done = self.clusters.patch_ray_cluster(name=name, ray_patch=dict(body), k8s_namespace=namespace)
        if not done:
            raise TargetError(_refused(f"RayCluster {name} was not changed", said))

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        """The object. Raises NotFound when there is none, or the API did not say."""
        with _heard() as said:
            if _known(kind) == "RayCluster":
                found = self.clusters.get_ray_cluster(name=name, k8s_namespace=namespace)
            else:
                found = self.jobs.get_job(name=name, k8s_namespace=namespace)
        if not found:
            raise NotFound(_refused(f"no {kind} {name} in namespace {namespace}", said))
        return dict(found)

    def wait(self, kind: str, name: str, namespace: str, *, timeout: int = 600, every: int = 5) -> None:
        """Until a RayCluster is ready, or a RayJob is over. Raises TimeoutError after `timeout` seconds."""
        times = {"timeout": timeout, "delay_between_attempts": every}
        with _heard() as said:
            if _known(kind) == "RayCluster":
                done = self.clusters.wait_until_ray_cluster_running(name, k8s_namespace=namespace, **times)
            else:
                done = self.jobs.wait_until_job_finished(name, k8s_namespace=namespace, **times)
        if not done:
            waited = "ready" if kind == "RayCluster" else "over"
            raise TimeoutError(_refused(f"{kind} {name} is not {waited} after {timeout} s", said))

    def delete(self, kind: str, name: str, namespace: str) -> None:
        """Delete the object. Raises TargetError when that failed, or there is none."""
        with _heard() as said:
            if _known(kind) == "RayCluster":
                done = self.clusters.delete_ray_cluster(name=name, k8s_namespace=namespace)
            else:
                done = self.jobs.delete_job(name=name, k8s_namespace=namespace)
        if not done:
            raise TargetError(_refused(f"{kind} {name} was not deleted", said))


def _named(body: Body) -> tuple[str, str, str]:
    metadata = body["metadata"]
    return _known(str(body["kind"])), str(metadata["name"]), str(metadata.get("namespace") or "default")


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"KubeRay's Python client knows {' and '.join(KINDS)}, not {kind}")
    return kind


def _refused(what: str, said: list[str]) -> str:
    return f"{what}\n  {said[-1][:500]}" if said else f"{what}, and its client does not say why"


class _Ear(logging.Handler):
    """Keeps what a logger says."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(" ".join(record.getMessage().split()))


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the client writes into its log meanwhile: the only place where it tells why something failed. It goes there
    and not to standard error."""
    logger, ear = logging.getLogger("python_client"), _Ear()
    before = logger.propagate
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield ear.said
    finally:
        logger.removeHandler(ear)
        logger.propagate = before
