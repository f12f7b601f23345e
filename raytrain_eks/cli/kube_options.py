"""The options by which a verb finds its Kubernetes cluster, the same for all of them, and its client."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """`--context`, `-n`, `--kubeconfig`; the function gets them together, as `where`."""
    from functools import wraps

    @wraps(command)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        where = {name: kwargs.pop(name) for name in ("context", "namespace", "kubeconfig")}
        return command(*args, where=where, **kwargs)

    for option in (
        click.option("--kubeconfig", metavar="PATH", help="Instead of $KUBECONFIG or ~/.kube/config."),
        click.option("-n", "--namespace", metavar="NAME", help="Of objects that name none; default: the context's."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig; default: its current one."),
    ):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def client_of(where: dict[str, Any]) -> "Client":
    """A client of the cluster that the options name; nothing is contacted. Raises KubeError."""
    from raytrain_eks.kube.connect import connect

    client = connect(**where)
    for warning in _warnings(client):
        click.echo(f"warning: {warning}", err=True)
    return client


def _warnings(client: "Client") -> list[str]:
    address = urlsplit(client.server)
    if address.scheme == "http" and address.hostname not in ("127.0.0.1", "localhost", "::1"):
        return [f"{client.server} is not encrypted: whoever listens can act as you"]
    if client.transport.access.cluster.get("insecure-skip-tls-verify"):
        return [f"context {client.context} does not verify who answers (insecure-skip-tls-verify)"]
    return []
