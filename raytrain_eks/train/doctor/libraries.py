"""The libraries of an image: torch and NCCL on GPUs, the Neuron stack on Trainium, and what all nodes must agree on."""

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from raytrain_eks.spec.diagnosis import Diagnosis, green, red
from raytrain_eks.spec.problem import SpecError, counted

COMPARED = ("ray", "torch", "transformers", "raytrain-eks")
"""What differs between nodes at nobody's wish."""
RUNTIME = Path("/opt/aws/neuron/lib/libnrt.so.1")
"""The Neuron runtime (aws-neuronx-runtime-lib)."""

Version = Callable[[str], str]
"""Name of a distribution -> its version; raises PackageNotFoundError."""


def software(version: Version = metadata.version) -> dict[str, str]:
    """Python and the compared packages, those that are here."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def differences(by_node: dict[str, dict[str, str]]) -> Iterator[Diagnosis]:
    """Whether all nodes have the same software; a package that came with the job counts as none."""
    id, where, different = "cluster.software", counted(len(by_node), "node"), []
    for name in ("python", *COMPARED):
        versions: dict[str, list[str]] = {}
        for node, found in by_node.items():
            if name in found:
                versions.setdefault(found[name], []).append(node)
        if len(versions) > 1:
            each = "; ".join(f"{version} on {', '.join(nodes)}" for version, nodes in sorted(versions.items()))
            different.append(f"{name} is {each}")
    if different:
        fix = "give head and groups images of one build"
        yield red(id, where, ". ".join(different), fix)
    elif by_node:
        same = next(iter(by_node.values()))
        yield green(id, where, "the same everywhere: " + ", ".join(f"{name} {same[name]}" for name in same))


def cuda(where: str, gpus: int) -> Iterator[Diagnosis]:
    """Whether torch sees the `gpus` that the driver lists, and with which CUDA and NCCL."""
    id = "worker.torch"
    try:
        import torch
    except (ImportError, OSError, ValueError) as error:
        yield red(id, where, f"`import torch` fails: {error}", "install torch in the image: cluster_specs/images")
        return
    build = f"torch {torch.__version__}"
    if torch.version.cuda is None:
        yield red(id, where, f"{build} is a CPU build on a GPU node", "install a CUDA build of torch in the image")
        return
    seen = torch.cuda.device_count()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"
    text = f"{build}, CUDA {torch.version.cuda}, NCCL {nccl}"
    if seen < gpus:
        fix = "the driver is older than torch's CUDA needs, or CUDA_VISIBLE_DEVICES hides GPUs"
        yield red(id, where, f"{text}: sees {seen} of {gpus} GPUs", fix)
    else:
        yield green(id, where, text)


def neuron(where: str, *, version: Version = metadata.version, runtime: Path = RUNTIME) -> Iterator[Diagnosis]:
    """torch-neuronx, its compiler and the runtime, one finding."""
    id = "worker.neuron"
    fix = "an image built with requirements/neuron-*.txt; cluster_specs/images has one"
    found = {}
    for name in ("torch-neuronx", "neuronx-cc", "torch-xla"):
        try:
            found[name] = version(name)
        except metadata.PackageNotFoundError:
            continue
    if "torch-neuronx" not in found:
        yield red(id, where, "torch-neuronx is not installed", fix)
        return
    try:
        from raytrain_eks.train.neuron_backend import refuse_placeholder

        refuse_placeholder()
    except SpecError as error:
        yield red(id, where, f"torch-neuronx {error.problems[0].rule}", error.problems[0].fix or fix)
        return
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    if not runtime.exists():
        yield red(id, where, f"{text}, and no Neuron runtime ({runtime})", f"aws-neuronx-runtime-lib; {fix}")
    else:
        yield green(id, where, text)
