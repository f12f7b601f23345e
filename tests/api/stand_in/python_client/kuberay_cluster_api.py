"""RayClusters."""

import logging
from typing import Any

from python_client import API, STATUS

log = logging.getLogger(__name__)


class RayClusterApi:
    def create_ray_cluster(self, body: Any, k8s_namespace: str = "default") -> Any:
        key = ("rayclusters", k8s_namespace, body["metadata"]["name"])
        if body["metadata"].get("namespace", k8s_namespace) != k8s_namespace:
            log.error("error creating custom resource: the namespace of the object does not match")
            return None
        if key in API:
            log.error("raycluster resource already exists. error = Conflict")
            return None
        API[key] = {**body, "metadata": {**body["metadata"], "uid": "1"}}
        return API[key]

    def get_ray_cluster(self, name: str, k8s_namespace: str = "default") -> Any:
        if ("rayclusters", k8s_namespace, name) not in API:
            log.error("raycluster resource is not found. error = (404)")
        return API.get(("rayclusters", k8s_namespace, name))

    def patch_ray_cluster(self, name: str, ray_patch: Any, k8s_namespace: str = "default") -> Any:
        if ("rayclusters", k8s_namespace, name) not in API:
            log.error("raycluster `%s` failed to patch, with error: (404)", name)
            return False
        API[("rayclusters", k8s_namespace, name)] |= ray_patch
        return True

    def wait_until_ray_cluster_running(
        self, name: str, k8s_namespace: str = "default", timeout: int = 60, delay_between_attempts: int = 5
    ) -> bool:
        return STATUS.get(name, {}).get("state") == "ready"

    def delete_ray_cluster(self, name: str, k8s_namespace: str = "default") -> bool:
        if ("rayclusters", k8s_namespace, name) not in API:
            log.error("raycluster custom resource already deleted. error = Not Found")
        return API.pop(("rayclusters", k8s_namespace, name), None)
