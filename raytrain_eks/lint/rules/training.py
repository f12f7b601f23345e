"""RT50x: how training processes are started and find each other."""

import re
from collections.abc import Iterator

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.pods import Container, Pod
from raytrain_eks.lint.programs import Program, option, programs
from raytrain_eks.lint.rules.fit import candidates
from raytrain_eks.lint.rules.network import several
from raytrain_eks.lint.tree import get, text
from raytrain_eks.spec.source import Path

_TORCHRUN = re.compile(r"\btorchrun\b|torch\.distributed\.(run|launch)\b")
_TRAINING = re.compile(r"\btorchrun\b|\bmpirun\b|\bdeepspeed\b|\baccelerate launch\b|\btrain\w*\.py\b")
_RENDEZVOUS = ("master_addr", "rdzv_endpoint", "rdzv-endpoint")
_INDEX = "batch.kubernetes.io/job-completion-index"


def _texts(bundle: Bundle) -> Iterator[tuple[Program, Hit]]:
    """Every program, with a hit at its place to be filled in."""
    for resource in bundle.resources:
        pods = [] if resource.kind == "ConfigMap" else bundle.pods_of(resource)
        for program in programs(resource, pods):
            yield program, Hit(on=resource, path=program.path, reason="", fix="")


def _says(hit: Hit, reason: str, fix: str) -> Hit:
    return Hit(on=hit.on, path=hit.path, reason=reason, fix=fix)


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isdigit() else None


def _srun(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for program, place in _texts(bundle):
        asked = re.search(r"^#SBATCH\s+(--ntasks-per-node\S*.*)$", program.text, re.M)
        own = _number(option(asked[1], "ntasks-per-node")) if asked else None
        for line in re.findall(r"\bsrun\b(?:\\\n|[^\n])*", program.text):
            if not (match := _TORCHRUN.search(line)):
                continue
            tasks = _resolved(option(line[: match.start()], "ntasks-per-node"), own) or own or 1
            processes = _resolved(option(line[match.end() :], "nproc-per-node"), own) or 1
            if tasks > 1 and processes > 1:
                reason = f"srun starts {tasks} tasks on each node, and torchrun in each of them {processes} processes"
                reason += f": {tasks * processes} on a node instead of {processes}"
                yield _says(place, reason, "write --ntasks-per-node=1 for srun: torchrun starts the processes")


def _resolved(value: str | None, tasks: int | None) -> int | None:
    if value and re.fullmatch(r"\$\{?SLURM_NTASKS_PER_NODE\}?", value):
        return tasks
    return _number(value)


def _not_indexed(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if not pod.owner.is_a("batch", "Job") or pod.owner.get("spec", "completionMode") == "Indexed":
            continue
        for container in pod.containers:
            if (path := _index_used(container)) is not None:
                reason = "the pods read their completion index, and the Job is not Indexed: the annotation is never set"
                yield Hit(on=pod.owner, path=path, reason=reason, fix="write spec.completionMode: Indexed")
                break


def _index_used(container: Container) -> Path | None:
    env = container.data.get("env")
    for index, entry in enumerate(env if isinstance(env, list) else []):
        if _INDEX in text(get(entry, "valueFrom", "fieldRef", "fieldPath")):
            return (*container.path, "env", index)
    if any("JOB_COMPLETION_INDEX" in word for word in container.words):
        return (*container.path, "command" if container.data.get("command") else "args")
    return None


def _own_address(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if not several(pod):
            continue
        for container in pod.containers:
            _, path = container.env.get("MASTER_ADDR", (None, ()))
            if path and get(pod.owner.document.data, *path, "valueFrom", "fieldRef", "fieldPath") == "status.podIP":
                reason = "MASTER_ADDR is each pod's own address, so every pod waits for the others at itself"
                fix = "name the first pod: an Indexed Job, a headless Service and MASTER_ADDR: JOB-0.SERVICE"
                yield Hit(on=pod.owner, path=path, reason=reason, fix=fix)


def _first_pod(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    """`JOB-0.SERVICE` resolves only with `subdomain: SERVICE` and a headless Service of that name."""
    for pod in bundle.pods:
        if not (several(pod) and pod.owner.is_a("batch", "Job")):
            continue
        for container in pod.containers:
            value, path = container.env.get("MASTER_ADDR", (None, ()))
            host, _, rest = (value or "").partition(".")
            if host != f"{pod.owner.name}-0":
                continue
            service = rest.partition(".")[0]
            if not rest or text(pod.spec.get("subdomain")) != service:
                fix = f"write subdomain: {service or 'SERVICE'} in the pod's spec, and MASTER_ADDR: {host}.SERVICE"
                yield Hit(on=pod.owner, path=path, reason=f"{value} resolves only with the pods' subdomain", fix=fix)
            elif not bundle.has("Service", service) and not settings.has("Service", service):
                reason = f"no headless Service {service} is in these files, so {value} does not resolve"
                yield Hit(on=pod.owner, path=path, reason=reason, fix="add it, with clusterIP: None")


def _alone(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for program, place in _texts(bundle):
        if program.pod is None or program.container is None or not _TORCHRUN.search(program.text):
            continue
        nodes = option(program.text, "nnodes")
        if nodes is None or nodes == "1" or any(option(program.text, name) for name in _RENDEZVOUS):
            continue
        injected = place.on.group == "kubeflow.org" or "pytorch" in (place.on.get("spec", "plugins") or {})
        if injected or {"PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"} & program.container.env.keys():
            continue
        reason = f"torchrun over {nodes} nodes without a rendezvous: each node waits for the others at 127.0.0.1"
        fix = "add --master_addr and --node_rank, or --rdzv_backend=c10d --rdzv_endpoint=HOST:29500"
        if place.on.is_a("batch.volcano.sh", "Job"):
            fix += "; Volcano gives MASTER_ADDR and RANK with plugins: {svc: [], pytorch: [...]}"
        yield _says(place, reason, fix)


def _undefined(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    """`$(NAME)` in a command: the kubelet leaves the text as it is when the container has no such variable."""
    for pod in bundle.pods:
        if pod.owner.group in ("kubeflow.org", "batch.volcano.sh", "jobset.x-k8s.io", "trainer.kubeflow.org", "ray.io"):
            continue
        for container in pod.containers:
            shell = any(word in ("-c", "-lc", "-ec", "-xc") for word in container.words)
            if shell or container.data.get("envFrom") or pod.owner.get("spec", "completionMode") == "Indexed":
                continue
            for key in ("command", "args"):
                words = container.data.get(key)
                for index, word in enumerate(words if isinstance(words, list) else []):
                    for name in re.findall(r"(?<!\$)\$\(([A-Z_][A-Z0-9_]*)\)", text(word)):
                        if name not in container.env:
                            reason = f"$({name}) stays as it is: the container has no variable {name}"
                            path = (*container.path, key, index)
                            yield Hit(on=pod.owner, path=path, reason=reason, fix=f"add {name} to env")


def _visible(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if pod.daemon:
            continue
        for container in pod.containers:
            value, path = container.env.get("NVIDIA_VISIBLE_DEVICES", (None, ()))
            if value and (value == "all" or value[0].isdigit()):
                reason = f"NVIDIA_VISIBLE_DEVICES={value} shows the container every GPU of the node, given to it or not"
                yield Hit(on=pod.owner, path=path, reason=reason, fix="leave it out: the device plugin sets it")
            value, path = container.env.get("CUDA_VISIBLE_DEVICES", (None, ()))
            if value and value[0].isdigit():
                reason = (
                    f"CUDA_VISIBLE_DEVICES={value} counts on the devices that the plugin or Ray gives, and defeats both"
                )
                yield Hit(on=pod.owner, path=path, reason=reason, fix="leave it out")


def _compile_only(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for program, place in _texts(bundle):
        if re.match(r"\s*neuron_parallel_compile\b", program.text) and _TRAINING.search(program.text):
            reason = "neuron_parallel_compile only fills the compile cache, with null results: nothing is trained"
            fix = "run it once for a few steps in a Job of its own, and start the training without it"
            yield _says(place, reason, fix)


def _processes(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for program, place in _texts(bundle):
        if program.pod is None or not _TORCHRUN.search(program.text):
            continue
        wanted = _number(option(program.text, "nproc-per-node"))
        expected = _expected(program.pod, bundle)
        if wanted and expected and wanted not in expected:
            count = " or ".join(str(each) for each in sorted(expected))
            reason = f"torchrun starts {wanted} processes, and the pod has {count} accelerators"
            yield _says(place, reason, f"write --nproc_per_node={max(expected)}: one process for each")


def _expected(pod: Pod, bundle: Bundle) -> set[int]:
    """Processes of a pod: one for each GPU or each logical NeuronCore; empty when the type is not known."""
    if count := pod.devices.get("nvidia.com/gpu") or pod.devices.get("aws.amazon.com/neuroncore"):
        return {count}
    chips = pod.devices.get("aws.amazon.com/neuron", 0)
    found: set[int] = set()
    for type in (instance(name) for name in candidates(pod, bundle) if known(name)):
        if chips and type.neuron_cores:
            found |= {type.logical_cores(lnc) * chips // type.accelerators for lnc in type.lnc_allowed}
    return found


def _restarting(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if not pod.owner.is_a("apps", "Deployment"):
            continue
        for container in pod.main:
            named = re.fullmatch(r"(pytorch-?)?train(er|ing)?", container.name)
            if named or (pod.devices and _TRAINING.search(" ".join(container.words))):
                reason = "a Deployment starts its pods again for ever, also when the training is done"
                yield Hit(on=pod.owner, path=(*pod.owner.base, "kind"), reason=reason, fix="use a Job or a RayJob")
                break


RULES = (
    Rule(
        id="RT501",
        severity="error",
        title="torchrun inside several srun tasks",
        why="torchrun starts a node's processes itself. Under srun with a task for each GPU, each starts all.",
        fix="srun --ntasks-per-node=1 torchrun --nproc_per_node=GPUS.",
        check=_srun,
    ),
    Rule(
        id="RT502",
        severity="error",
        title="A completion index without an Indexed Job",
        why="Only completionMode: Indexed gives pods the annotation and JOB_COMPLETION_INDEX, stable host names, one "
        "pod for each index. Without it the value is empty, and every node has the same rank or none.",
        fix="Write spec.completionMode: Indexed.",
        check=_not_indexed,
    ),
    Rule(
        id="RT503",
        severity="error",
        title="Every pod is its own master",
        why="status.podIP is the address of the pod that reads it. The processes of each pod wait at themselves.",
        fix="Use the stable name of the first pod.",
        check=_own_address,
    ),
    Rule(
        id="RT504",
        severity="error",
        title="Several nodes without a rendezvous",
        why="torchrun's default master is 127.0.0.1, and it does not read MASTER_ADDR: without options each node waits "
        "for the others at itself until the time-out.",
        fix="Give --master_addr and --node_rank, or --rdzv_endpoint; or use a kind whose operator does.",
        check=_alone,
    ),
    Rule(
        id="RT505",
        severity="error",
        title="Visible devices set by hand",
        why="The device plugin gives a container its devices by setting NVIDIA_VISIBLE_DEVICES, and Ray gives a worker "
        "its own by CUDA_VISIBLE_DEVICES. A literal value overrides them: pods see and use each other's GPUs.",
        fix="Leave both out.",
        check=_visible,
    ),
    Rule(
        id="RT506",
        severity="error",
        title="A training that only compiles",
        why="Under neuron_parallel_compile graphs are extracted and compiled, executions return zeros, and checkpoints "
        "are worthless (AWS Neuron SDK, PyTorch NeuronX neuron_parallel_compile).",
        fix="Start the training without it; keep the compile cache on shared storage.",
        check=_compile_only,
    ),
    Rule(
        id="RT507",
        severity="error",
        title="Not one process for each accelerator",
        why="With fewer processes accelerators are paid for and idle; with more, processes share one and fail.",
        fix="Write --nproc_per_node as many as the pod's GPUs or logical NeuronCores.",
        check=_processes,
    ),
    Rule(
        id="RT508",
        severity="error",
        title="A variable in a command that is not there",
        why="Kubernetes replaces $(NAME) in command and args only by variables of the container's own env.",
        fix="Add the variable to env.",
        check=_undefined,
    ),
    Rule(
        id="RT509",
        severity="error",
        title="The first pod's name does not resolve",
        why="An Indexed Job's pods have host names JOB-0, JOB-1, ..., which resolve in the cluster only as "
        "JOB-0.SERVICE: with subdomain: SERVICE in the pod and a headless Service of that name.",
        fix="Add subdomain and the Service.",
        check=_first_pod,
    ),
    Rule(
        id="RT512",
        severity="error",
        title="A training as a Deployment",
        why="A Deployment is for what never ends. A training that has ended, or failed for good, is started again.",
        fix="Use a Job, or a RayJob.",
        check=_restarting,
    ),
)
