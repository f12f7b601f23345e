"""RayJobs."""

import logging
from typing import Any

from python_client import API, STATUS

log = logging.getLogger(__name__)


class RayjobApi:
    def submit_job(self, k8s_namespace: str = "default", job: Any = None) -> Any:
        key = ("rayjobs", k8s_namespace, job["metadata"]["name"])
        if key in API:
            log.error("error submitting ray job: (409) Conflict")
            return None
        API[key] = dict(job)
        return API[key]

    def get_job(self, name: str, k8s_namespace: str = "default") -> Any:
        if ("rayjobs", k8s_namespace, name) not in API:
            log.error(f"rayjob {name} not found in namespace {k8s_namespace}")
        return API.get(("rayjobs", k8s_namespace, name))

    def wait_until_job_finished(
        self, name: str, k8s_namespace: str = "default", timeout: int = 60, delay_between_attempts: int = 5
    ) -> bool:
        return STATUS.get(name, {}).get("jobDeploymentStatus") in ("Complete", "Failed")

    def delete_job(self, name: str, k8s_namespace: str = "default") -> bool:
        if ("rayjobs", k8s_namespace, name) not in API:
            log.error("rayjob custom resource already deleted. error = Not Found")
            return False
        del API[("rayjobs", k8s_namespace, name)]
        return True
