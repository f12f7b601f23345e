"""The door to a cluster.

    from raytrain_eks.kube.connect import connect

    with connect(context=None, namespace=None, kubeconfig=None) as client:   # nothing is contacted yet
        for pod in client.list("v1", "Pod", labels="ray.io/cluster=llm"):
            ...

What a client can do stands in `raytrain_eks.kube.client`; every error is a `raytrain_eks.kube.errors.KubeError` with a
message for people and an exit code.
"""

from typing import TYPE_CHECKING

from raytrain_eks.kube.errors import NoClient
from raytrain_eks.kube.kubeconfig import Access, find

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client


def connect(
    *, context: str | None = None, namespace: str | None = None, kubeconfig: str | None = None, tries: int = 6
) -> "Client":
    """A client for what the options, KUBECONFIG, `~/.kube/config` or the account of this pod name, in this order.

    `tries`: how often a request is sent before its failure is believed.
    Raises BadConfig for a kubeconfig that cannot be used, NoClient without the extra `kube`.
    """
    return client_of(find(kubeconfig=kubeconfig, context=context, namespace=namespace), tries=tries)


def client_of(access: Access, *, tries: int = 6) -> "Client":
    """A client for an access that is known already. Raises BadConfig, NoClient."""
    from raytrain_eks.kube.client import Client

    try:
        from raytrain_eks.kube.transport import Transport
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("lightkube", "httpx2", "msgspec"):
            raise
        raise NoClient("talking to Kubernetes needs the extra `kube`\n  pip install 'raytrain-eks[kube]'") from None
    return Client(Transport(access, tries=tries))
