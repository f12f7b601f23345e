"""What must be in the cluster before a bundle is applied: the kinds of its objects, and their namespaces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import Forbidden, KubeError, MissingKind

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client


class Missing(KubeError):
    """The cluster lacks what the objects need; the message names all of it."""

    code = 4


@cache
def operators() -> dict[str, dict[str, str]]:
    """API group -> `name`, `install` and `source` of what serves it."""
    from ruamel.yaml import YAML

    text = resources.files(__package__).joinpath("operators.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def require(client: "Client", bodies: Sequence[Mapping[str, Any]]) -> None:
    """Raises Missing with every kind and namespace that is neither in the cluster nor among the objects."""
    problems = [*_kinds(client, bodies), *_namespaces(client, bodies)]
    if problems:
        count = f"{len(problems)} thing{'s' if len(problems) != 1 else ''} missing in the cluster"
        raise Missing("\n".join([*problems, f"{count}, nothing applied"]))


def _kinds(client: "Client", bodies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    defined = {
        (body["spec"]["group"], body["spec"]["names"]["kind"])
        for body in bodies
        if body["kind"] == "CustomResourceDefinition"
    }
    told: set[str] = set()
    for api_version, kind in dict.fromkeys((str(body["apiVersion"]), str(body["kind"])) for body in bodies):
        group = api_version.rpartition("/")[0]
        if (group, kind) in defined or api_version in told:
            continue
        try:
            client.kind(api_version, kind)
        except MissingKind as error:
            told.add(api_version)
            yield f"{error}{_how(group)}"


def _how(group: str) -> str:
    known = operators().get(group)
    return f"\n  {known['name']}: {known['install']}\n  {known['source']}" if known else ""


def _namespaces(client: "Client", bodies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    bodies = list(bodies)
    made = {str(body["metadata"]["name"]) for body in bodies if body["kind"] == "Namespace"}
    needed = {str(name): body for body in bodies if (name := body["metadata"].get("namespace"))}
    for name, body in needed.items():
        try:
            found = client.find("v1", "Namespace", name)
        except Forbidden:
            # Who may write into a namespace often may not look at it; applying tells.
            continue
        if found is None and name not in made:
            what = f"{body['kind']}/{body['metadata']['name']}"
            yield f"no namespace {name}, which {what} is for\n  kubectl create namespace {name}"
        elif found is not None and (found.get("status") or {}).get("phase") == "Terminating":
            yield f"namespace {name} is being deleted\n  wait until it is gone, then repeat the command"
