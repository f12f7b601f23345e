"""`raytrain-eks init cluster`: a first cluster file, from options and answers; what neither knows is marked in it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli.help_layout import Sectioned
from raytrain_eks.cli.init_answers import answered, check, known, may_ask
from raytrain_eks.cli.init_file import common, place_for, where, write

if TYPE_CHECKING:
    from raytrain_eks.catalog import Instance
    from raytrain_eks.spec.first_cluster import FirstStorage

VOLUMES = {
    "fsx-lustre": ("filesystem", "mount_name", "size", "throughput", "bucket", "mount"),
    "efs": ("filesystem", "size", "mount"),
    "claim": ("claim", "mount"),
    "storage-class": ("storage_class", "size", "mount"),
}
"""Kind of the shared folder, as the file has it -> the options that are of it."""
_OF_VOLUMES = tuple(dict.fromkeys(option for options in VOLUMES.values() for option in options))
CAPACITIES = ("on-demand", "spot", "reserved", "capacity-block")
_OF_MADE_NODES = ("capacity", "reservation", "ends", "role")
SECTIONS = {
    "The cluster": ("name", "namespace", "region", "zone", "eks", "kubernetes", "image"),
    "Its workers": ("instance", "gpus", "existing_nodes", "nodes", "capacity", "reservation", "ends", "efa"),
    "Who makes the nodes": ("provisioner", "role", "subnet", "security_group"),
    "The shared folder": ("storage", *_OF_VOLUMES),
    "Around it": ("queue", "queue_name", "jupyterhub", "gitops"),
}
EXAMPLES = """\b
H100 with FSx for Lustre, EFA and Kueue:
  raytrain-eks init cluster --name h100 --gpus H100:8 --nodes 4 --zone us-west-2a --efa required \\
    --storage fsx-lustre --size 4800Gi --queue kueue
Trainium2 with JupyterHub:
  raytrain-eks init cluster --name trn2 --instance trn2.48xlarge --nodes 2 --zone us-west-2a \\
    --jupyterhub REGISTRY/HUB:TAG
A small one, delivered by Argo CD (`render --gitops`):
  raytrain-eks init cluster --name small --instance g6e.4xlarge --nodes 0:2 \\
    --gitops https://github.com/ME/CLUSTERS
kind on a laptop:
  raytrain-eks init cluster --name laptop --existing-nodes --nodes 1
"""


@click.command(
    "cluster",
    cls=Sectioned,
    sections=SECTIONS,
    help=f"Write a cluster on EKS: nodes, storage, queue, notebooks. {where('cluster_specs')} Ids, ARNs and images "
    "that only your account knows and no option says are examples in the file, marked FILL IN.",
    epilog=EXAMPLES,
)
@common
@click.option("--namespace", metavar="NAME", help="The namespace of its objects. Default: training.")
@click.option("--region", metavar="REGION", help="The AWS region. Default: $AWS_REGION.")
@click.option("--zone", metavar="ZONE", help="The availability zone; EFA and a new FSx for Lustre need one.")
@click.option("--eks", metavar="NAME", help="The EKS cluster's name. Default: the same name.")
@click.option("--kubernetes", metavar="VERSION", help="The EKS cluster's version. Default: 1.33.")
@click.option("--image", metavar="IMAGE", help="The image of head and workers. Default: Ray's own, without torch.")
@click.option("--instance", metavar="TYPE", help="The workers' EC2 type: p5.48xlarge, trn2.48xlarge, g6e.4xlarge.")
@click.option("--gpus", metavar="NAME:COUNT", help="Instead of a type: H100:8, the smallest type that has them.")
@click.option("--existing-nodes", is_flag=True, help="CPU workers on nodes that exist already, e.g. kind on a laptop.")
@click.option("--nodes", metavar="N|MIN:MAX", help="How many there are. Default: 0:4, none until a job needs them.")
@click.option("--capacity", type=click.Choice(CAPACITIES), help="Default: on-demand.")
@click.option("--reservation", multiple=True, metavar="ID", help="Of reserved capacity or a block; can be repeated.")
@click.option("--ends", metavar="TIME", help="When the capacity block ends: 2026-12-24T11:30:00Z.")
@click.option("--efa", type=click.Choice(["auto", "required", "none"]), help="Default: auto, where the type has it.")
@click.option("--provisioner", type=click.Choice(["karpenter", "managed", "none"]), help="Default: karpenter.")
@click.option("--role", metavar="ROLE", help="The nodes' IAM role: a name for karpenter, an ARN for managed.")
@click.option("--subnet", metavar="ID", help="Of a new FSx file system, else of the nodes. Default: found by tags.")
@click.option("--security-group", multiple=True, metavar="ID", help="Of the same; can be repeated.")
@click.option("--storage", type=click.Choice(list(VOLUMES)), help="What the folder is that all pods share.")
@click.option("--filesystem", metavar="ID", help="An existing FSx or EFS file system. FSx without it: a new one.")
@click.option("--mount-name", metavar="NAME", help="Of the existing FSx file system.")
@click.option("--size", metavar="SIZE", help="How large: 4800Gi.")
@click.option("--throughput", type=click.IntRange(1), metavar="N", help="MB/s for each TiB, of a new FSx file system.")
@click.option("--bucket", metavar="URL", help="s3://bucket/prefix whose objects appear in FSx for Lustre.")
@click.option("--mount", metavar="PATH", help="Where pods see it. Default: /shared.")
@click.option("--claim", metavar="NAME", help="The existing PersistentVolumeClaim.")
@click.option("--storage-class", metavar="NAME", help="The existing StorageClass.")
@click.option("--queue", type=click.Choice(["volcano", "kueue"]), help="Who decides when a job starts.")
@click.option("--queue-name", metavar="NAME", help="The queue, which the file makes. Default: training.")
@click.option("--jupyterhub", metavar="IMAGE", help="Notebooks on the cluster's nodes, with this image.")
@click.option("--gitops", metavar="REPOSITORY", help="Delivery by Argo CD, from this Git repository.")
def command(file: str | None, force: bool, yes: bool, existing_nodes: bool, **given: Any) -> None:
    from raytrain_eks.spec.first_cluster import FirstCluster

    asking = may_ask(yes)
    if existing_nodes:
        _refuse(given, ("efa", "provisioner"), "is of nodes that are made, not of --existing-nodes")
    answers = _workers(given, existing_nodes, asking)
    answers = _shared_folder(answers, asking)
    _refuse_what_has_no_place(answers)
    found = _instance(answers)
    answers = _placed(answers, found, asking)
    answers = answered(answers, _around(), asking, _field)
    if not answers["queue"]:
        _refuse(answers, ("queue_name",), "is of a queue: say which kind by --queue")
    if answers["queue"] == "kueue":
        answers["nodes"] = (answers["nodes"][1],) * 2  # Kueue admits a fixed number of pods
    target = place_for(file, answers["name"], "cluster_specs")
    made = FirstCluster(**_fields(answers), neuron=found is not None and found.vendor == "aws")
    write(target, made.text(target), verb="render", force=force, check=checked)


def _refuse(given: Mapping[str, Any], options: tuple[str, ...], why: str) -> None:
    for option in options:
        if given[option]:
            raise click.UsageError(f"--{option.replace('_', '-')} {why}")


def _workers(given: dict[str, Any], existing_nodes: bool, asking: bool) -> dict[str, Any]:
    """What the workers are, and the names that everything else stands on."""
    chosen = [given["instance"], given["gpus"], existing_nodes or None]
    if sum(one is not None for one in chosen) > 1:
        raise click.UsageError("give one of --instance, --gpus and --existing-nodes")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-west-2"
    questions: dict[str, tuple[str, Any]] = {"name": ("Name of the cluster", "first"), "region": ("AWS region", region)}
    if not any(chosen):
        if not asking:
            raise click.UsageError("say what the workers are: --instance TYPE, --gpus H100:8, or --existing-nodes")
        questions["instance"] = ("Workers: an EC2 type or GPUs as H100:8 (empty: nodes that exist already)", "")
    questions["nodes"] = ("Nodes, as 4 or 0:16", "0:4")
    answers = answered(given, questions, asking, _field)
    if answers["instance"] and ":" in answers["instance"]:
        answers["gpus"], answers["instance"] = answers["instance"], None
    if not (answers["instance"] or answers["gpus"]):
        answers["provisioner"] = "none"
    answers["nodes"] = _range(answers["nodes"])
    return answers


def _shared_folder(answers: dict[str, Any], asking: bool) -> dict[str, Any]:
    """What the shared folder is; options that are of another kind of folder are refused."""
    answers = dict(answers)
    for option, kind in (("claim", "claim"), ("storage_class", "storage-class")):
        if answers[option] and not answers["storage"]:
            answers["storage"] = kind
    if not answers["storage"]:
        _refuse(answers, _OF_VOLUMES, "is of a shared folder: say which by --storage")
    kinds = ", ".join(VOLUMES)
    answers = answered(answers, {"storage": (f"Shared folder: {kinds} (empty: none)", "")}, asking, _field)
    kind = answers["storage"]
    if kind is None:
        return answers
    _refuse(answers, tuple(each for each in _OF_VOLUMES if each not in VOLUMES[kind]), f"is not of --storage {kind}")
    unknown = {"fsx-lustre": "a new one", "efs": "to fill in later"}
    questions: dict[str, tuple[str, Any]] = {}
    if kind in unknown:
        questions["filesystem"] = (f"The id of an existing file system (empty: {unknown[kind]})", "")
    elif kind == "claim":
        questions["claim"] = ("The existing claim (empty: to fill in later)", "")
    else:
        questions["storage_class"] = ("The existing storage class (empty: to fill in later)", "")
    answers = answered(answers, questions, asking, _field)
    if kind == "fsx-lustre" and answers["filesystem"]:
        questions = {"mount_name": ("The file system's mount name (empty: to fill in later)", "")}
        answers = answered(answers, questions, asking, _field)
    return answers


def _makes_lustre(answers: Mapping[str, Any]) -> bool:
    return answers["storage"] == "fsx-lustre" and not (answers["filesystem"] or answers["mount_name"])


def _refuse_what_has_no_place(answers: Mapping[str, Any]) -> None:
    """Usage errors for options that the file, as it will be, would have to forget."""
    if answers["provisioner"] == "none":
        _refuse(answers, _OF_MADE_NODES, "is of nodes that are made, and these exist already")
        if not _makes_lustre(answers):
            _refuse(answers, ("subnet", "security_group"), "is of nodes that are made, or of a new FSx file system")
    if answers["filesystem"] or answers["mount_name"]:
        _refuse(answers, ("throughput",), "is of a new file system, and this one exists")


def _instance(answers: dict[str, Any]) -> "Instance | None":
    """The type of the nodes; None when they exist already, or the type is not known, which is said later."""
    from raytrain_eks import catalog
    from raytrain_eks.spec.problem import SpecError

    try:
        if answers["instance"]:
            return catalog.instance(answers["instance"])
        return catalog.resolve_gpus(answers["gpus"], path="gpus")[0].instance if answers["gpus"] else None
    except SpecError:
        return None


def _placed(answers: dict[str, Any], found: "Instance | None", asking: bool) -> dict[str, Any]:
    """EKS cluster, zone and image. Raises a usage error for a zone that is needed, not said, and not asked for."""
    needed = {}
    if found is not None and found.efa and found.accelerators and answers["nodes"][1] > 1 and answers["efa"] != "none":
        needed["zone"] = "EFA works within one availability zone"
    elif _makes_lustre(answers):
        needed["zone"] = "a new FSx for Lustre lies in one availability zone"
    if "zone" in needed and not answers["zone"] and not asking:
        raise click.UsageError(f"{needed['zone']}: add --zone, such as {answers['region']}a")
    questions = {}
    if answers["instance"] or answers["gpus"]:
        questions["eks"] = (f"The EKS cluster's name (empty: {answers['name']})", "")
    if questions or needed:
        questions["zone"] = (f"Availability zone ({needed.get('zone', 'empty: any')})", "")
    if found is not None and found.vendor == "aws":
        questions["image"] = ("Image, built on AWS's Neuron image (empty: to fill in later)", "")

    def valid(key: str, value: Any) -> None:
        if key in needed and not value:
            raise ValueError(needed[key])
        _field(key, value)

    return answered(answers, questions, asking, valid)


def _around() -> dict[str, tuple[str, Any]]:
    return {
        "queue": ("Queue: kueue or volcano (empty: a job starts at once)", ""),
        "jupyterhub": ("JupyterHub: the image of its notebooks (empty: no hub)", ""),
        "gitops": ("Argo CD: the Git repository that it follows (empty: no Argo CD)", ""),
    }


def _field(key: str, value: Any) -> None:
    """Raises ValueError with the rule for an answer that the file would not take; an empty one is none."""
    from raytrain_eks.spec.cluster import Cluster, WorkerGroup
    from raytrain_eks.spec.cluster_jupyter import JupyterHub
    from raytrain_eks.spec.cluster_operations import GitOps
    from raytrain_eks.spec.cluster_ray import Ray
    from raytrain_eks.spec.cluster_storage import Claim, Efs, FsxLustre, StorageClass

    words = {"storage": tuple(VOLUMES), "queue": ("kueue", "volcano")}
    owners = {
        "image": (Ray, "image"),
        "filesystem": (Efs, "filesystem"),
        "mount_name": (FsxLustre, "mount_name"),
        "claim": (Claim, "claim"),
        "storage_class": (StorageClass, "name"),
        "jupyterhub": (JupyterHub, "image"),
        "gitops": (GitOps, "repository"),
    }
    if key == "nodes":
        _range(value)
    elif not value:
        return
    elif key in words:
        if value not in words[key]:
            raise ValueError(f"must be {' or '.join(words[key])}")
    elif key == "instance":
        check(WorkerGroup, "gpus" if ":" in value else "instance", value)
    else:
        check(*owners.get(key, (Cluster, key)), value)


def _range(value: str) -> tuple[int, int]:
    low, colon, high = value.partition(":")
    if not (low.isdecimal() and (not colon or high.isdecimal())) or int(high or low) < max(int(low), 1):
        raise click.UsageError(f"nodes are a number or MIN:MAX, such as 4 or 0:16, not {value}")
    return int(low), int(high or low)


def _fields(answers: dict[str, Any]) -> dict[str, Any]:
    """The answers by the names of FirstCluster; what nobody gave has its default there."""
    found = known({name: value for name, value in answers.items() if name not in (*_OF_VOLUMES, "storage")})
    found["reservations"] = found.pop("reservation", ())
    found["security_groups"] = found.pop("security_group", ())
    found["storage"] = _volume(answers)
    if hub := found.pop("jupyterhub", None):
        found["hub"] = hub
    return found


def _volume(answers: dict[str, Any]) -> "FirstStorage | None":
    from raytrain_eks.spec.first_cluster import FirstStorage

    if answers["storage"] is None:
        return None
    kept = known({name: answers[name] for name in VOLUMES[answers["storage"]]})
    name = kept.pop("claim", None) or kept.pop("storage_class", None)
    return FirstStorage(kind=answers["storage"], name=name, **kept)


def checked(text: str, file: str) -> None:
    """The text as `validate` checks it, rendered objects included. Raises SpecError."""
    from raytrain_eks.cli import bundles
    from raytrain_eks.spec.check import single
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.spec.source import read_documents

    if found := list(bundles.problems(single(read_documents(text, file, lenient=True), file))):
        raise SpecError(found)
