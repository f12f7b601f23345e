"""`raytrain-eks doctor`: what is missing or wrong, before money is spent."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Failure, Outcome
from raytrain_eks.cli.target_options import options, say

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client
    from raytrain_eks.spec.diagnosis import Diagnosis

WORKER = "worker"
COLORS = {"green": "green", "yellow": "yellow", "red": "red"}


@click.command(
    help="What is missing or wrong, each with its fix; exit code 3 when something is red. Without --on: this machine. "
    "`--on eks [CLUSTER.yaml]`: the Kubernetes cluster. `--on http://HEAD:8265`: a Ray cluster. `doctor worker`: the "
    "pod or machine that it runs in; `doctor worker --on ...`: every node of a Ray cluster, as a job, with the network."
)
@click.argument("what", metavar="[worker|CLUSTER.yaml]", required=False)
@options
@click.option("--cluster", metavar="NAME", help="With `worker` and --on eks: the RayCluster. Default: the only one.")
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders that is tried.")
@click.option("--fabric/--no-fabric", default=True, show_default=True, help="Whether an all-reduce is measured.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is yellow or red.")
@out.option()
def command(what: str | None, on: str | None, quiet: bool, output: str, **given: Any) -> int:
    from raytrain_eks.spec.diagnosis import Level, summary

    found, findings = [], _findings(what, on, Given(**given))
    for each in findings:
        found.append(each)
        if output == "table" and not (quiet and each.level is Level.GREEN):
            click.echo(painted(each))
    if output != "table":
        kept = [each for each in found if not (quiet and each.level is Level.GREEN)]
        out.write(output, {"findings": [each.as_data() for each in kept]}, table=str)
    say(summary(found))
    return Outcome.FINDINGS if any(each.level is Level.RED for each in found) else Outcome.DONE


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the options say."""

    access: dict[str, Any]
    cluster: str | None
    storage: str | None
    fabric: bool


def painted(each: "Diagnosis") -> str:
    """A finding for people, its level in its colour where colours are welcome."""
    text, level = str(each), each.level.value
    return click.style(level, fg=COLORS[level], bold=True) + text[len(level) :] if out.colored() else text


def _findings(what: str | None, on: str | None, given: Given) -> Iterator["Diagnosis"]:
    """The findings that were asked for, as they come. Raises Failure, SpecError, TargetError, KubeError."""
    if what == WORKER:
        return _workers(on, given) if on else _this_worker(given.storage)
    if on == "eks":
        return _kubernetes(what, given)
    if what is not None:
        raise Failure(
            f"doctor {what}: a cluster file is held against a Kubernetes cluster\n"
            f"  raytrain-eks doctor --on eks {what}; `raytrain-eks validate {what}` looks at the file alone",
            Outcome.USAGE,
        )
    return _ray(on, given) if on and on != "local" else _machine(given.storage)


def _machine(storage: str | None) -> Iterator["Diagnosis"]:
    from raytrain_eks.checkpoint.default import default_storage
    from raytrain_eks.submit.doctor import credentials, local_ray, machine, packages

    yield from packages.examine()
    yield from machine.examine(storage or default_storage())
    yield from local_ray.examine()
    yield from credentials.examine()


def _this_worker(storage: str | None) -> Iterator["Diagnosis"]:
    import secrets

    from raytrain_eks.checkpoint.default import default_storage
    from raytrain_eks.train.doctor import worker
    from raytrain_eks.train.doctor.devices import Counted

    mark = f"check-{secrets.token_hex(4)}"
    # A pod by itself cannot know how many others there are; EFA that is missing is then not yet an error.
    return worker.examine(counted=Counted(), several_nodes=False, storage=storage or default_storage(), mark=mark)


def _workers(on: str, given: Given) -> Iterator["Diagnosis"]:
    from raytrain_eks.submit.doctor.job import examine

    if on != "eks":
        from raytrain_eks.cli.target_options import target_of

        target = target_of(on, given.access)
        yield from examine(target, given.storage, fabric=given.fabric, folder=Path.cwd(), say=say)
        return
    from raytrain_eks.submit.doctor.on_kubernetes import target as running

    with _client(given) as client:
        access = {name: given.access[name] for name in ("token_file", "any_version")}
        target = running(client, given.cluster, **access)
        yield from examine(target, given.storage, fabric=given.fabric, folder=Path.cwd(), say=say)


def _client(given: Given) -> "Client":
    from raytrain_eks.cli.kube_options import client_of

    return client_of({name: given.access[name] for name in ("context", "namespace", "kubeconfig")})


def _ray(on: str, given: Given) -> Iterator["Diagnosis"]:
    from raytrain_eks.cli.target_options import target_of
    from raytrain_eks.submit.cluster import RayCluster
    from raytrain_eks.submit.doctor import ray_cluster

    target = target_of(on, given.access | {"any_version": True})
    assert isinstance(target, RayCluster)
    return ray_cluster.examine(target)


def _kubernetes(file: str | None, given: Given) -> Iterator["Diagnosis"]:
    from raytrain_eks.kube.doctor.examine import examine
    from raytrain_eks.plan.cluster import resolve
    from raytrain_eks.spec.load import of_document, read_document

    plan = None
    if file is not None:
        document = read_document(file)
        plan = resolve(of_document(document, expect="Cluster"), document=document)
    with _client(given) as client:
        yield from examine(client, plan)
