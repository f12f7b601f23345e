"""Small objects for tests."""

from typing import Any

from double.store import Body


def config_map(name: str = "settings", *, namespace: str = "training", **data: str) -> Body:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def pod(
    name: str = "head", *containers: str, namespace: str = "training", labels: dict[str, str] | None = None
) -> Body:
    """A pod with containers of these names."""
    made = [{"name": each, "image": "registry.example/ray:2.60.0"} for each in containers or ("ray-head",)]
    meta: Body = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": made}}


def _template(name: str, image: str, gpus: int) -> Body:
    limits = {"cpu": "4", "memory": "16Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {"spec": {"containers": [{"name": name, "image": image, "resources": {"limits": limits}}]}}


def cluster_spec(*, workers: int = 2, gpus: int = 8, image: str = "registry.example/ray:2.60.0") -> Body:
    """The spec of a RayCluster with one group of workers, `a100`."""
    group = {"groupName": "a100", "replicas": workers, "minReplicas": workers, "maxReplicas": workers}
    return {
        "rayVersion": "2.60.0",
        "headGroupSpec": {"rayStartParams": {}, "template": _template("ray-head", image, 0)},
        "workerGroupSpecs": [{**group, "rayStartParams": {}, "template": _template("ray-worker", image, gpus)}],
    }


def ray_cluster(name: str = "llm", *, namespace: str = "training", **options: Any) -> Body:
    """A RayCluster; options are those of `cluster_spec`."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": cluster_spec(**options)}


def ray_job(
    name: str = "llm-1",
    *,
    namespace: str = "training",
    entrypoint: str = "python train.py",
    labels: dict[str, str] | None = None,
    spec: Body | None = None,
    **options: Any,
) -> Body:
    """A RayJob in a cluster of its own; `spec` is laid over its spec, options are those of `cluster_spec`."""
    whole = {"entrypoint": entrypoint, "rayClusterSpec": cluster_spec(**options), **(spec or {})}
    meta: Body = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": whole}
