"""A Kubernetes API server for tests, true to the protocol and offline.

    from double import ApiDouble                       # any test: tests/kube is on pytest's path (pyproject.toml)

    def test_something(kube_api, tmp_path):            # or: with ApiDouble(crds=shared / "crds") as api:
        config = kube_api.kubeconfig(tmp_path)         # for kubectl and clients; user=..., namespace=..., plugin=True
        kube_api.objects.put({...})                    # and .get("rayjobs", name), .all, .patch, .set_status, .delete
        kube_api.event(body, "FailedScheduling", "0/3 nodes are available: ...")
        kube_api.logs["training/head"].write("line")   # kept; .close() ends it; = lambda: lines for a log without end
        kube_api.faults.respond(429, retry_after=1, verb="list", resource="rayjobs")    # .delay, .drop, .clear
        kube_api.watches("drop")                       # "close", "expire" (410 Gone), "bookmark"; .compact() forgets
        kube_api.rbac.deny(user="researcher", verb="create", resource="rayjobs")        # 403
        kube_api.rbac.obey_roles("system:serviceaccount:hub:user")     # only what stored roles and bindings allow
        kube_api.rbac.revoke("researcher")             # 401
        kube_api.requests                              # what came in
        kube_api.backends["training/x-head-svc:8265"] = "http://127.0.0.1:8265"         # where service proxies lead

The fixtures are in `double.fixtures`; tests/kube has them, another folder's conftest.py imports them. `kube_api` is a
server for one test; `api` (with `_one_api`) is one for all tests of a session, emptied after each.
It serves create, read, replace, the four patches with server-side apply (managers, conflicts, force), watches, pages,
selectors, dry runs, tables, deletion with finalizers and owners, and it refuses with the real one's texts. What
controllers do is left to the test or to `Operator` (KubeRay, with scheduler, kubelet and Kueue as far as a RayJob
meets them), except for garbage collection and the end of namespaces, which happen at once. Beside it: `happenings`, the
texts of events; `bodies`, small objects; `kubelet`, pods in any state; `asking`, requests with no client between;
`entrypoint.OnRay` with `volumes.Volumes`, which run a RayJob for real. It must never be imported by the package itself.
"""

from double.access import Denial
from double.api import ADMIN, ApiDouble
from double.entrypoint import OnRay, Scripted
from double.faults import Fault
from double.operator import Operator
from double.podlogs import Log

__all__ = ["ADMIN", "ApiDouble", "Denial", "Fault", "Log", "OnRay", "Operator", "Scripted"]
