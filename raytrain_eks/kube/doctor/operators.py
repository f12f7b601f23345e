"""Operators: whether their kinds are served, whether they run, in which version, with which switches."""

from collections.abc import Iterator, Mapping

from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, place, running, unready, version_of, words
from raytrain_eks.kube.presence import operators
from raytrain_eks.manifests.rules import GATES
from raytrain_eks.manifests.rules.operator import parsed
from raytrain_eks.spec.cluster_queue import Kueue, Volcano
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

IMAGES = {
    "ray.io": "kuberay/operator",
    "karpenter.sh": "karpenter/controller",
    "karpenter.k8s.aws": "karpenter/controller",
    "scheduling.volcano.sh": "vc-scheduler",
    "kueue.x-k8s.io": "kueue/kueue",
    "monitoring.coreos.com": "prometheus-operator",
    "fsx.services.k8s.aws": "fsx-controller",
    "ec2.services.k8s.aws": "ec2-controller",
    "eks.services.k8s.aws": "eks-controller",
    "kubeflow.org": "mpi-operator",
    "slinky.slurm.net": "slurm-operator",
}
"""API group -> the end of its operator's image, the tag left out. What it is called, and how it comes into a cluster,
stands in kube/operators.yaml."""
KUBERAY = IMAGES["ray.io"]
OLDEST = (1, 4, 0)
"""KubeRay before 1.4 lacks half of what is rendered: autoscaler v2, deletion policies, the light-weight submitter."""


def examine(look: Look) -> Iterator[Diagnosis]:
    """Kinds first, then the operators behind them."""
    groups = {each.body["apiVersion"]: set[str]() for each in look.bundle.objects}
    for each in look.bundle.objects:
        groups[each.body["apiVersion"]].add(each.kind)
    wanted = {"ray.io/v1": {"RayCluster", "RayJob"}} | {
        version: kinds | ({"RayJob"} if version == "ray.io/v1" else set())
        for version, kinds in groups.items()
        if version.partition("/")[0] in IMAGES
    }
    for version, kinds in wanted.items():
        yield _served(look, version, sorted(kinds))
    yield from kuberay(look)
    told = {KUBERAY}
    for group in (version.partition("/")[0] for version in wanted):
        if IMAGES[group] not in told and look.client.versions(group):
            told.add(IMAGES[group])
            yield _runs(look, group)


def _served(look: Look, api_version: str, kinds: list[str]) -> Diagnosis:
    group = api_version.partition("/")[0]
    id, where, system = "kinds." + group, api_version, operators()[group]
    missing = [kind for kind in kinds if not look.client.serves(api_version, kind)]
    if not missing:
        return green(id, where, f"{', '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} served")
    others = look.client.versions(group)
    if others:
        why = f"{', '.join(missing)} of {api_version} not served; of {group} there is {', '.join(others)}"
        return red(id, where, why, f"another version of {system['name']}: {system['install']}")
    why = f"{', '.join(missing)} not served: {system['name']} is not installed"
    return red(id, where, why, system["install"])


def _runs(look: Look, group: str) -> Diagnosis:
    name, image_end = operators()[group]["name"], IMAGES[group]
    id = f"operators.{group}"
    found = list(running(look.deployments, image_end))
    if not found:
        why = f"its kinds are served, and no Deployment with the image …/{image_end} was found"
        return yellow(id, name, why, f"is it running? {operators()[group]['install']}")
    workload, image = found[0]
    if (lacking := unready(workload)) is not None:
        return red(id, place(workload), f"{name}: {lacking}", "kubectl describe it, and read its pods' logs")
    return green(id, place(workload), f"{name} {version_of(image) or image} is ready")


def kuberay(look: Look) -> Iterator[Diagnosis]:
    """The operator that reads RayJobs and RayClusters, against what the file says of it."""
    found = list(running(look.deployments, KUBERAY))
    id = "operators.kuberay"
    if not found:
        if look.client.versions("ray.io"):
            why = "its kinds are served, and no Deployment with the image …/kuberay/operator was found"
            yield red(id, "KubeRay", why, "nothing happens to a RayJob without it: install the chart kuberay-operator")
        return
    workload, image = found[0]
    where, version = place(workload), version_of(image)
    if len(found) > 1:
        others = ", ".join(place(each) for each, _ in found[1:])
        yield yellow(id, where, f"there are others: {others}", "two operators must not watch one namespace")
    if (lacking := unready(workload)) is not None:
        yield red(id, where, f"KubeRay: {lacking}", "kubectl describe it, and read its pods' logs")
    elif version is None:
        yield yellow(id, where, f"KubeRay's version cannot be told from {image}", "use an image with a version's tag")
    elif (parsed(version) or OLDEST) < OLDEST:
        yield red(id, where, f"KubeRay {version} is too old", "1.4 is the oldest that was considered; use 1.7")
    else:
        yield _against_file(look, where, version)
    yield from _switches(look, workload, where)


def _against_file(look: Look, where: str, version: str) -> Diagnosis:
    said = look.plan.cluster.operator.version if look.plan is not None else None
    if said is not None and parsed(said) != parsed(version):
        why = f"KubeRay {version} runs; the file was checked for {said}"
        fix = f'write `operator: {{version: "{version}"}}` and look at what lint then finds, or upgrade it'
        return yellow("operators.kuberay", where, why, fix)
    return green("operators.kuberay", where, f"KubeRay {version} is ready")


def _switches(look: Look, workload: Body, where: str) -> Iterator[Diagnosis]:
    """Feature gates, watched namespaces and the batch scheduler, by the operator's arguments."""
    arguments = words(workload)
    watched = _option(arguments, "watch-namespace")
    if watched and look.namespace not in watched.split(","):
        why = f"it watches {watched} only, and not {look.namespace}"
        fix = f"add {look.namespace} to watchNamespace of its chart"
        yield red("operators.kuberay.namespaces", where, why, fix)
    on = gates(arguments)
    if look.plan is None:
        return
    for gate, wanted in look.plan.cluster.operator.feature_gates.items():
        have = on.get(gate, GATES.get(gate, False))
        if have != wanted:
            why = f"feature gate {gate} is {_word(have)}, and the file counts on {_word(wanted)}"
            fix = f"start it with --feature-gates={gate}={str(wanted).lower()} (featureGates of its chart)"
            yield red("operators.kuberay.gates", where, why, fix)
    yield from _scheduler(look, arguments, where)


def _scheduler(look: Look, arguments: list[str], where: str) -> Iterator[Diagnosis]:
    assert look.plan is not None
    queue, chosen = look.plan.cluster.queue, _option(arguments, "batch-scheduler")
    if chosen is None and ("--enable-batch-scheduler" in arguments or "--enable-batch-scheduler=true" in arguments):
        chosen = "volcano"
    id = "operators.kuberay.scheduler"
    if isinstance(queue, Volcano) and chosen != "volcano":
        why = (
            f"its batch scheduler is {chosen or 'none'}, so the queue {queue.name} is not asked: pods start one by one"
        )
        yield red(id, where, why, "start it with --batch-scheduler=volcano (batchScheduler.name of its chart)")
    elif isinstance(queue, Kueue) and chosen:
        why = f"its batch scheduler {chosen} and Kueue both hold pods back"
        yield yellow(id, where, why, "leave batchScheduler out of its chart, or use one of the two")
    elif queue is not None:
        yield green(id, where, f"batch scheduler: {chosen or 'none'}, as {queue.kind} needs it")


def gates(arguments: list[str]) -> Mapping[str, bool]:
    """`--feature-gates=A=true,B=false`, given once or more."""
    found = {}
    for index, word in enumerate(arguments):
        value = word.partition("feature-gates=")[2] if "feature-gates=" in word else ""
        if word in ("--feature-gates", "-feature-gates") and index + 1 < len(arguments):
            value = arguments[index + 1]
        for entry in filter(None, value.split(",")):
            name, _, state = entry.partition("=")
            found[name.strip()] = state.strip().lower() == "true"
    return found


def _option(arguments: list[str], name: str) -> str | None:
    """The value of `--name=value` or `--name value`; Go takes one dash as well."""
    for index, word in enumerate(arguments):
        key, mark, value = word.lstrip("-").partition("=")
        if word.startswith("-") and key == name:
            return value if mark else (arguments[index + 1] if index + 1 < len(arguments) else None)
    return None


def _word(state: bool) -> str:
    return "on" if state else "off"
