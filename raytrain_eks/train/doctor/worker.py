"""All checks of one worker, in the order in which a run would meet what they look for."""

import os
import socket
from collections.abc import Iterator

from raytrain_eks import catalog
from raytrain_eks.catalog import Instance
from raytrain_eks.spec.diagnosis import Diagnosis, Level, green, yellow
from raytrain_eks.train.doctor import devices, efa, host, libraries, shared_storage
from raytrain_eks.train.doctor.devices import Counted
from raytrain_eks.train.doctor.programs import run
from raytrain_eks.train.neuron_place import instance_type

HIDING = ("CUDA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES")
"""Variables by which Ray hides the devices of a node from a process that asked for none."""


def name() -> str:
    """This worker, as people know it: the pod's name, which is its host name."""
    return socket.gethostname()


def instance() -> Instance | None:
    """The catalogue's facts about the EC2 instance that this runs on; None elsewhere, and for a type it lacks."""
    type = instance_type()
    return catalog.instance(type) if catalog.known(type) else None


def examine(*, counted: Counted, several_nodes: bool, storage: str, mark: str) -> Iterator[Diagnosis]:
    """Every check of this process's node. `mark` names the folder of its files on storage."""
    for variable in HIDING:
        os.environ.pop(variable, None)
    where, about = name(), instance()
    yield _instance(where, about)
    found = list(devices.examine(where, about, counted))
    yield from found
    seen = not any(each.level is Level.RED for each in found)
    if seen and (gpus := len(devices.gpus(run("nvidia-smi", *devices.GPU_QUERY) or ""))):
        yield from libraries.cuda(where, gpus)
    if counted.neuron_cores or (about is not None and about.vendor == "aws"):
        yield from libraries.neuron(where)
    network = list(efa.examine(where, about, several_nodes=several_nodes))
    yield from network
    yield from host.examine(where, efa=bool(network))
    yield from shared_storage.examine(where, storage, mark)


def _instance(where: str, about: Instance | None) -> Diagnosis:
    if about is not None:
        return green("worker.instance", where, f"{about.type}, as the catalogue knows it ({about.date})")
    if type := instance_type():
        fix = "nothing is known of its devices and network; raytrain-eks catalog shows the types"
        return yellow("worker.instance", where, f"{type} is not in the catalogue", fix)
    return green("worker.instance", where, "no EC2 instance, so nothing is compared with the catalogue")
