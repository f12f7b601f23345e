"""The options by which a verb finds its target, the same for all of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from raytrain_eks.submit.registry import Record
    from raytrain_eks.submit.target import Target

Command = TypeVar("Command", bound=Callable[..., Any])
NAMES = ("headers", "token_file", "ca", "any_version", "context", "namespace", "kubeconfig")


def options(command: Command) -> Command:
    """`--on` and what a cluster behind an address may need; the function gets them as `on` and `access`."""
    from functools import wraps

    @wraps(command)
    def gathered(*args: Any, **kwargs: Any) -> Any:
        return command(*args, access={name: kwargs.pop(name) for name in NAMES}, **kwargs)

    for option in (
        click.option("--any-version", is_flag=True, help="Accept a cluster of another Ray or Python version."),
        click.option("--ca", metavar="PATH", help="Certificates to trust instead of the system's, a file or a folder."),
        click.option("--token-file", metavar="PATH", help="The cluster's token; default: $RAY_AUTH_TOKEN."),
        click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Sent with each request."),
        click.option("--kubeconfig", metavar="PATH", help="With --on eks; default: $KUBECONFIG, ~/.kube/config."),
        click.option(
            "--context", metavar="NAME", help="With --on eks: the kubeconfig's context. Default: its current."
        ),
        click.option("-n", "--namespace", metavar="NAME", help="With --on eks. Default: the cluster file's."),
        click.option(
            "--on", metavar="TARGET", help="`local`, `eks`, or the address of a Ray dashboard: http://HEAD:8265."
        ),
    ):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def target_of(on: str | None, access: dict[str, Any], record: "Record | None" = None) -> "Target":
    """The target: what `--on` says, where the run was last submitted to, $RAYTRAIN_ON, or this machine."""
    from raytrain_eks.submit.targets import known_access, named, open_target

    name = named(on, record)
    return open_target(name, **known_access(access, name, record))


def storage_of(storage: str | None, record: "Record | None") -> str:
    """Where run folders are: what `--storage` says, where the run was submitted to, or this machine's default."""
    from raytrain_eks.submit.start import place_of

    return place_of(storage, record)


def say(text: str) -> None:
    """One line of talk."""
    click.echo(text, err=True)
