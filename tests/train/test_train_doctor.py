"""The checks of a worker: what programs and logs say, as a table, and how measured bandwidth is judged."""

import json
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raytrain_eks import catalog
from raytrain_eks.checkpoint.folder import Folder
from raytrain_eks.spec.diagnosis import Diagnosis
from raytrain_eks.train.doctor import (
    collective,
    devices,
    efa,
    fabric,
    host,
    libraries,
    nccl_log,
    nodes,
    shared_storage,
    worker,
)
from raytrain_eks.train.doctor.devices import Counted

P4D, TRN1 = catalog.instance("p4d.24xlarge"), catalog.instance("trn1.32xlarge")
SMI = "NVIDIA A100-SXM4-40GB, 40960, 550.127.08\n"
HERE = "node-1:412:412 [0] NCCL INFO "


def levels(found) -> list[str]:
    return [str(each.level) for each in found]


# NCCL logs in the words of several versions: of pods with EFA that works, that is missing, and that does not start.
WITH_EFA = f"""\
{HERE}NCCL_SOCKET_IFNAME set by environment to eth0
{HERE}Bootstrap : Using eth0:10.0.61.17<0>
{HERE}cudaDriverVersion 12040
NCCL version 2.21.5+cuda12.4
{HERE}NET/OFI Initializing aws-ofi-nccl 1.13.2-aws
{HERE}NET/OFI Using Libfabric version 1.22
{HERE}NET/OFI Selected Provider is efa (found 4 nics)
{HERE}Using network AWS Libfabric
{HERE}Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
"""
NEWER_EFA = f"""\
{HERE}NCCL version 2.27.3+cuda12.9
{HERE}NET/OFI Using aws-ofi-nccl 1.16.0
{HERE}NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
{HERE}Initialized NET plugin Libfabric
{HERE}Assigned NET plugin Libfabric to comm
{HERE}Using network Libfabric
{HERE}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0
"""
WITHOUT_PLUGIN = f"""\
{HERE}Bootstrap : Using eth0:10.0.61.17<0>
NCCL version 2.21.5+cuda12.4
{HERE}NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
{HERE}NET/IB : No device found.
{HERE}NET/Socket : Using [0]eth0:10.0.61.17<0>
{HERE}Using network Socket
{HERE}Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0
"""
WITHOUT_DEVICE = f"""\
{HERE}NCCL version 2.27.3+cuda12.9
{HERE}NET/OFI Initializing aws-ofi-nccl 1.14.0
node-1:412:412 [0] nccl_net_ofi_create_plugin:245 NCCL WARN NET/OFI No eligible providers were found
{HERE}Failed to initialize NET plugin Libfabric
{HERE}NET/IB : No device found.
{HERE}NET/Socket : Using [0]enp73s0:10.1.216.156<0> [1]pod-id-link0:169.254.170.23<0>
{HERE}Initialized NET plugin Socket
{HERE}Using network Socket
{HERE}socketPollConnect: connect to 169.254.170.23<42117> returned Connection refused, retrying (13/34)
"""
OLD_PLUGIN = f"""\
{HERE}NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
NCCL version 2.19.3+cuda12.1
{HERE}Using network Socket
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WITH_EFA, {"version": "2.21.5+cuda12.4", "plugin": "1.13.2-aws", "interfaces": 4, "gpu_direct": True}),
        (NEWER_EFA, {"version": "2.27.3+cuda12.9", "plugin": "1.16.0", "interfaces": 32, "gpu_direct": False}),
        (WITHOUT_PLUGIN, {"networks": {"Socket"}, "plugin_missing": True, "sockets": {"eth0": "10.0.61.17"}}),
        (WITHOUT_DEVICE, {"networks": {"Socket"}, "plugin": "1.14.0", "refused": "169.254.170.23"}),
        (OLD_PLUGIN, {"version": "2.19.3+cuda12.1", "plugin_missing": True, "provider": None}),
    ],
    ids=["efa", "newer efa", "no plugin", "no device", "old"],
)
def test_an_nccl_log_is_read(text, expected):
    found = nccl_log.read(["unrelated line", *text.splitlines(keepends=True)])
    assert {name: getattr(found, name) for name in expected} == expected
    assert nccl_log.of_data(json.loads(json.dumps(found.as_data()))) == found


@pytest.mark.parametrize(
    ("text", "efa", "several", "level", "what", "fix"),
    [
        (WITH_EFA, 4, True, "green", "EFA with 4 interfaces, aws-ofi-nccl 1.13.2-aws", ""),
        (
            WITHOUT_PLUGIN,
            4,
            True,
            "red",
            "NET/Socket: EFA is not in use",
            "found no libnccl-net.so: install aws-ofi-nccl",
        ),
        (OLD_PLUGIN, 4, True, "red", "NET/Socket: EFA is not in use", "found no libnccl-net.so"),
        (WITHOUT_DEVICE, 4, True, "red", "NET/Socket: EFA is not in use", "ask for vpc.amazonaws.com/efa"),
        (WITHOUT_PLUGIN, 4, False, "yellow", "which one node does not need", "libnccl-net"),
        (WITHOUT_PLUGIN, 0, True, "green", "as expected without EFA", ""),
        ("nothing of it\n", 4, True, "yellow", "holds nothing of NCCL", "NCCL_DEBUG=INFO"),
    ],
)
def test_an_nccl_log_is_told_in_plain_words(text, efa, several, level, what, fix):
    found = next(iter(nccl_log.diagnose(nccl_log.read(text.splitlines()), "2 nodes", efa=efa, several_nodes=several)))
    assert (found.id, found.level) == ("fabric.nccl", level)
    assert what in found.what
    assert fix in (found.fix or "")


def test_interfaces_that_lead_nowhere_and_host_memory_are_told():
    found = list(nccl_log.diagnose(nccl_log.read(WITHOUT_DEVICE.splitlines()), "x", efa=4, several_nodes=True))
    by_id = {each.id: each for each in found}
    assert "pod-id-link0 (169.254.170.23)" in by_id["fabric.interface"].what
    assert "could not reach 169.254.170.23" in by_id["fabric.reach"].what
    newer = nccl_log.diagnose(nccl_log.read(NEWER_EFA.splitlines()), "x", efa=32, several_nodes=True)
    assert "fabric.gpu_direct" in {each.id for each in newer}


def test_one_rank_without_efa_is_all_ranks_without_it():
    logs = [nccl_log.read(text.splitlines()) for text in (WITH_EFA, WITHOUT_PLUGIN)]
    found = nccl_log.together(logs)
    assert not found.efa
    assert found.networks == {"AWS Libfabric", "Socket"}
    assert next(iter(nccl_log.diagnose(found, "x", efa=4, several_nodes=True))).level == "red"


FI_INFO = "".join(
    f"provider: efa\n    fabric: efa\n    domain: rdmap{slot}s0-{kind}\n    version: 122.0\n    type: FI_EP_RDM\n"
    for slot in (16, 32, 144, 160)
    for kind in ("rdm", "dgrm")
)


def test_the_interfaces_of_fi_info_are_counted_once_each():
    assert {name: len(domains) for name, domains in efa.providers(FI_INFO).items()} == {"efa": 4}
    assert efa.providers("fi_getinfo: -61 (No data available)\n") == {}


def pod(tmp_path: Path, *, node: int, uverbs: int) -> dict[str, Path]:
    """/sys and /dev of a pod on a node with EFA devices."""
    driver = tmp_path / "sys/bus/pci/drivers/efa"
    for folder in (driver, tmp_path / "dev/infiniband", tmp_path / "sys/class/infiniband"):
        folder.mkdir(parents=True)
    for index in range(node):
        device = tmp_path / f"sys/class/infiniband/rdmap{index}/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(driver)
    for index in range(uverbs):
        (tmp_path / f"dev/infiniband/uverbs{index}").touch()
    return {"sys": tmp_path / "sys", "dev": tmp_path / "dev"}


def asked(answers: dict[str, str]):
    return lambda program, *arguments: answers.get(" ".join([program, *arguments]))


@pytest.mark.parametrize(
    ("uverbs", "fi_info", "several", "environment", "expected"),
    [
        (4, FI_INFO, True, {"LD_LIBRARY_PATH": "PLUGIN"}, {}),
        (0, "", True, {}, {"worker.efa.devices": "red"}),
        (0, "", False, {}, {"worker.efa.devices": "yellow"}),
        (4, "", True, {"LD_LIBRARY_PATH": "PLUGIN"}, {"worker.efa.provider": "red"}),
        (4, FI_INFO, True, {}, {"worker.efa.plugin": "red"}),
        (4, FI_INFO, True, {"LD_LIBRARY_PATH": "PLUGIN", "FI_PROVIDER": "tcp"}, {"worker.efa.environment": "red"}),
        (2, FI_INFO, True, {"LD_LIBRARY_PATH": "PLUGIN"}, {"worker.efa.devices": "yellow"}),
    ],
    ids=["right", "not asked for", "one node", "no provider", "no plugin", "another provider", "a part of the node"],
)
def test_efa_in_a_pod(tmp_path, monkeypatch, uverbs, fi_info, several, environment, expected):
    monkeypatch.setattr(efa, "PLUGIN_FOLDERS", ())
    (tmp_path / "libnccl-net-ofi.so").touch()
    given = {name: value.replace("PLUGIN", str(tmp_path)) for name, value in environment.items()}
    ask = asked({"fi_info -p efa": fi_info, "fi_info --version": "libfabric: 1.22.0amzn4.0"})
    folders = pod(tmp_path, node=4, uverbs=uverbs)
    found = list(efa.examine("pod", P4D, several_nodes=several, ask=ask, environment=given, **folders))
    assert {each.id: str(each.level) for each in found if each.level != "green"} == expected


def test_nothing_is_said_of_efa_where_there_is_none(tmp_path):
    folders = pod(tmp_path, node=0, uverbs=0)
    assert not list(efa.examine("pod", catalog.instance("g5.2xlarge"), several_nodes=True, **folders))
    assert not list(efa.examine("laptop", None, several_nodes=False, **folders))


@pytest.mark.parametrize(
    ("answer", "counted", "level", "words"),
    [
        (SMI * 8, 8, "green", "8 x NVIDIA A100-SXM4-40GB, 40 GiB each, driver 550.127.08"),
        (SMI * 7, 8, "red", "Ray counts 8 and would start as many workers"),
        (SMI * 8, 4, "yellow", "the others stay idle"),
        (SMI * 4, 4, "green", "4 x NVIDIA"),
        (SMI * 4, None, "yellow", "p4d.24xlarge has 8"),
        ("", 8, "red", "lists no GPU"),
        (None, 8, "red", "nvidia-smi is not here"),
    ],
)
def test_gpus_against_what_ray_and_the_catalogue_count(answer, counted, level, words):
    found = list(devices.nvidia_findings("pod", P4D, Counted(gpus=counted), answer, files=[]))
    assert found[-1].level == level
    assert words in found[-1].what


def test_a_gpu_with_less_memory_than_its_kind_is_told():
    slice_ = SMI.replace("40960", "4864")
    found = list(devices.nvidia_findings("pod", P4D, Counted(gpus=8), slice_ * 8, files=[]))
    assert "the catalogue says 40 GiB" in found[-1].what


NEURON_LS = [{"neuron_device": index, "nc_count": 2, "memory_size": 34359738368} for index in range(16)]


@pytest.mark.parametrize(
    ("answer", "counted", "level", "words"),
    [
        (json.dumps(NEURON_LS), 32, "green", "16 Neuron devices with 32 cores"),
        (json.dumps({"neuron_devices": NEURON_LS}), 32, "green", "16 Neuron devices with 32 cores"),
        (json.dumps(NEURON_LS), 64, "red", "Ray counts 64 neuron_cores"),
        (json.dumps(NEURON_LS[:4]), None, "yellow", "trn1.32xlarge has 16 devices"),
        (json.dumps(NEURON_LS[:4]), 8, "green", "4 Neuron devices with 8 cores"),
        ("[]", None, "red", "lists no device"),
        ("Segmentation fault", 32, "red", "neuron-ls is odd"),
        (None, 32, "red", "neuron-ls is not here"),
    ],
)
def test_neuron_devices_against_what_ray_and_the_catalogue_count(answer, counted, level, words):
    found = list(devices.neuron_findings("pod", TRN1, Counted(neuron_cores=counted), answer))
    assert levels(found) == [level]
    assert words in found[0].what


@pytest.mark.parametrize(
    ("soft", "efa", "level"),
    [
        (resource.RLIM_INFINITY, True, "green"),
        (8 * 2**20, True, "red"),
        (8 * 2**20, False, "green"),
        (2**34, True, "green"),
    ],
)
def test_locked_memory_matters_to_efa(soft, efa, level):
    assert host.locked("pod", soft, soft, efa=efa).level == level


@pytest.mark.parametrize(
    ("offset", "uncertainty", "level"),
    [(0.01, 0.001, "green"), (3.0, 0.1, "yellow"), (3.0, 2.5, "green"), (-400.0, 0.1, "red")],
)
def test_a_clock_is_judged_by_what_is_sure(offset, uncertainty, level):
    assert host.clock("pod", offset, uncertainty, "head").level == level


def test_huge_pages_are_a_trap_only_with_efa(monkeypatch):
    monkeypatch.delenv("FI_EFA_USE_HUGE_PAGE", raising=False)
    text = "HugePages_Total:    5128\nHugePages_Free:     5128\nHugepagesize:       2048 kB\n"
    assert levels(host.huge_pages("pod", text, efa=True)) == ["yellow"]
    assert levels(host.huge_pages("pod", text, efa=False)) == ["green"]
    monkeypatch.setenv("FI_EFA_USE_HUGE_PAGE", "0")
    assert levels(host.huge_pages("pod", text, efa=True)) == ["green"]


@pytest.mark.parametrize(
    ("type", "nodes", "bus", "level", "words"),
    [
        ("p4d.24xlarge", 2, 42.5e9, "green", "85% of the 50.00 GB/s of p4d.24xlarge's 4 EFA interfaces"),
        ("p4d.24xlarge", 2, 1.2e9, "red", "2%"),
        ("p4d.24xlarge", 2, 20e9, "yellow", "40%"),
        ("p5.48xlarge", 2, 320e9, "green", "80% of the 400.00 GB/s"),
        ("p4d.24xlarge", 1, 230e9, "green", "77% of the 300.00 GB/s of NVLink3+NVSwitch"),
        ("g4dn.xlarge", 1, 1e9, "green", "the catalogue has no figure"),
        (None, 1, 1e9, "green", "the catalogue has no figure for this machine"),
    ],
)
def test_bandwidth_is_judged_by_the_catalogue(type, nodes, bus, level, words):
    size = 2**30
    row = fabric.Measured(bytes=size, seconds=size / bus * 2 * 15 / 16, ranks=16)
    assert row.bus == pytest.approx(bus)
    found = fabric.verdict(row, "x", catalog.instance(type) if type else None, nodes=nodes)
    assert found.level == level
    assert words in found.what


def test_what_rank_0_brought_becomes_findings_of_network_and_log():
    row = {"bytes": 2**30, "seconds": 2**30 / 1e9, "ranks": 16}
    logs = [nccl_log.read(WITHOUT_PLUGIN.splitlines()).as_data()] * 2
    said: list[str] = []
    brought = {"rows": [row], "nodes": 2, "instance": "p4d.24xlarge", "logs": logs}
    found = {each.id: each for each in collective.judge("cuda", brought, said.append)}
    assert found["fabric.all_reduce"].level == found["fabric.nccl"].level == "red"
    assert "NET/Socket: EFA is not in use" in found["fabric.nccl"].what
    assert "1 GiB" in said[0]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"CPU": 8.0, "GPU": 2.0}, ("cuda", 2)),
        ({"neuron_cores": 32.0, "CPU": 4.0}, ("neuron", 32)),
        ({"CPU": 8.0}, ("cpu", 2)),
    ],
)
def test_one_rank_per_accelerator(resources, expected):
    assert collective.wanted(resources) == expected


def test_storage_that_does_what_a_run_needs_is_green_and_left_clean(tmp_path):
    found = list(shared_storage.examine("pod", str(tmp_path), "check-1"))
    assert levels(found) == ["green"]
    assert not list(tmp_path.iterdir())


class Forgetful(Folder):
    """A file system whose exclusive create is not exclusive."""

    def child(self, *names: str) -> "Forgetful":
        return Forgetful(self.root.joinpath(*names))

    def create(self, path: str, data: bytes) -> bool:
        self.write(path, data)
        return True


def test_storage_without_exclusive_create_is_red(tmp_path, monkeypatch):
    monkeypatch.setattr("raytrain_eks.train.doctor.shared_storage.Storage.of", lambda place: Forgetful(tmp_path))
    found = list(shared_storage.examine("pod", "x", "check-1"))
    assert "two attempts of a run would both write" in found[0].what
    assert found[0].level == "red"


def test_storage_that_cannot_be_written_is_red():
    found = list(shared_storage.examine("pod", "/proc/nowhere", "check-1"))
    assert levels(found) == ["red"]
    assert found[0].fix


def test_a_folder_that_is_not_shared_is_found_by_the_marks(tmp_path):
    for name in ("a", "b"):
        shared_storage.leave_mark(str(tmp_path), "check-1", name)
    assert shared_storage.find_marks("a", str(tmp_path), "check-1", ["a", "b"]).level == "green"
    alone = shared_storage.find_marks("a", str(tmp_path), "check-1", ["a", "b", "c"])
    assert (alone.level, "what c wrote is not seen from here" in alone.what) == ("red", True)
    shared_storage.clear(str(tmp_path), "check-1")
    assert not list(tmp_path.iterdir())


def test_nodes_with_other_software_are_named():
    same = {"python": "3.11.9", "ray": "2.60.0"}
    assert levels(libraries.differences({"a": same, "b": dict(same)})) == ["green"]
    found = list(libraries.differences({"a": same, "b": same | {"ray": "2.59.0"}}))
    assert levels(found) == ["red"]
    assert "ray is 2.59.0 on b; 2.60.0 on a" in found[0].what


def test_a_worker_is_examined_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = list(worker.examine(counted=Counted(), several_nodes=False, storage=str(tmp_path), mark="check-1"))
    assert {"worker.instance", "worker.shm", "worker.memlock", "worker.files", "worker.storage"} <= {
        each.id for each in found
    }
    assert all(Diagnosis.of_data(json.loads(json.dumps(each.as_data()))) == each for each in found)
    assert all(each.fix for each in found if each.level != "green")


class Called:
    """An actor's method that is called at once, in the place of Ray; what it raises comes as Ray's error."""

    def __init__(self, method):
        self.method = method

    def remote(self, *arguments):
        return self.method(*arguments)


class Here:
    """A node whose folder is its own, or everybody's."""

    def __init__(self, name: str, folder: Path, ahead: float = 0.0):
        self.leave_mark = Called(lambda place, run, name: shared_storage.leave_mark(str(folder), run, name))
        self.find_marks = Called(
            lambda place, run, names: shared_storage.find_marks(name, str(folder), run, names).as_data()
        )
        self.leave = Called(lambda place, run: shared_storage.clear(str(folder), run))
        self.now = Called(lambda: time.time() + ahead)


def members(tmp_path: Path, *folders: str, places: tuple[str, ...] = ("/shared", "/shared")) -> list[nodes.Member]:
    found = []
    for index, (folder, place) in enumerate(zip(folders, places, strict=True)):
        actor = Here(f"node-{index}", tmp_path / folder)
        found.append(nodes.Member(f"id{index}", f"node-{index}", actor, {}, {}, place))
    return found


@pytest.fixture
def no_ray(monkeypatch):
    exceptions = SimpleNamespace(RayError=RuntimeError)
    at_once = SimpleNamespace(
        get=lambda found, timeout: found, wait=lambda found, **_: (found, []), exceptions=exceptions
    )
    monkeypatch.setitem(sys.modules, "ray", at_once)


def test_nodes_that_share_a_folder_and_nodes_that_only_think_so(tmp_path, no_ray):
    assert levels(nodes._shared(members(tmp_path, "one", "one"), "check")) == ["green", "green"]
    found = list(nodes._shared(members(tmp_path, "one", "two"), "check"))
    assert levels(found) == ["red", "red"]
    assert "what node-1 wrote is not seen from here" in found[0].what
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_nodes_with_places_of_their_own_are_told(tmp_path, no_ray):
    found = list(nodes._shared(members(tmp_path, "one", "two", places=("/a", "/b")), "check"))
    assert levels(found) == ["red"]
    assert "/a, /b" in found[0].what


def test_a_nodes_clock_is_the_best_of_several_answers(tmp_path, no_ray):
    right, wrong = members(tmp_path, "one", "one")
    wrong.actor.now = Called(lambda: time.time() + 100)
    assert nodes._clock(right).level == "green"
    assert nodes._clock(wrong).level == "red"
