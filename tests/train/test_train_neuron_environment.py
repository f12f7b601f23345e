"""The environment of Trainium workers as a table: places in, variables out."""

import pytest

from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.neuron_environment import Place, network, numbers, settings, tuning


def node(number: int, cores: list[str], first_rank: int = 0, **facts) -> list[Place]:
    return [
        Place(rank=first_rank + index, node=number, local_rank=index, cores=each, **facts)
        for index, each in enumerate(cores)
    ]


def made(places, runtime="xla", **options):
    return settings(places, address="10.0.0.7", ports=(29500, 29501), run_id="abc", runtime=runtime, **options)


TWO_NODES = node(0, ["10", "2"]) + node(1, ["0", "1"], first_rank=2)


def test_every_worker_sees_its_nodes_cores_in_numeric_order():
    assert [one.fixed["NEURON_RT_VISIBLE_CORES"] for one in made(TWO_NODES)] == ["2,10", "2,10", "0,1", "0,1"]


def test_native_workers_keep_their_own_cores():
    assert all("NEURON_RT_VISIBLE_CORES" not in one.fixed for one in made(TWO_NODES, runtime="neuron"))


def test_all_workers_share_one_run_id_and_one_root():
    fixed = [one.fixed for one in made(TWO_NODES)]
    for name, value in {
        "TORCHELASTIC_RUN_ID": "abc",
        "NEURON_RT_ROOT_COMM_ID": "10.0.0.7:29501",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "29500",
    }.items():
        assert {each[name] for each in fixed} == {value}


def test_sizes_are_whole_numbers():
    fixed = made(TWO_NODES)[3].fixed
    sizes = {name: value for name, value in fixed.items() if name.endswith(("RANK", "SIZE"))}
    assert sizes == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
    }


def test_an_ipv6_root_is_in_brackets():
    (one,) = settings(node(0, ["0"]), address="fd00::1", ports=(1, 2), run_id="a", runtime="xla")
    assert one.fixed["NEURON_RT_ROOT_COMM_ID"] == "[fd00::1]:2"
    assert one.fixed["MASTER_ADDR"] == "fd00::1"


@pytest.mark.parametrize(
    ("facts", "nodes", "expected"),
    [
        ({}, 2, {}),
        ({"interface": "eth0"}, 1, {"CCOM_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}),
        ({"efa": True}, 1, {}),
        ({"efa": True}, 2, {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}),
        (
            {"efa": True, "kernel": (5, 10)},
            2,
            {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1"},
        ),
    ],
)
def test_efa_is_named_only_where_it_is_used(facts, nodes, expected):
    assert network(Place(rank=0, node=0, local_rank=0, **facts), nodes) == expected


@pytest.mark.parametrize(
    ("places", "runtime", "words"),
    [
        (node(0, ["0", "0"]), "xla", "the same Neuron core"),
        (node(0, ["0", ""]), "xla", "only some workers"),
        (node(0, ["0,1", "2,3"]), "xla", "2 workers were given 4 Neuron cores"),
        (node(0, ["0"], instance="trn1.32xlarge"), "neuron", "native TorchNeuron runs on trn2 and trn3"),
        (node(0, ["0", "1", "2"], instance="trn1.32xlarge"), "xla", "1, 2, 8, 16 or a multiple of 32"),
        (node(0, ["0"], efa=True) + node(1, ["0"], first_rank=1), "xla", "nodes 1 have none"),
        (node(0, [str(core) for core in range(32)], open_files=1024), "xla", "may open 1024 files"),
    ],
)
def test_places_that_cannot_train_together_are_refused(places, runtime, words):
    with pytest.raises(SpecError, match=words):
        made(places, runtime)


@pytest.mark.parametrize(
    ("places", "runtime"),
    [
        (node(0, ["0", "1", "2"], instance="trn2.48xlarge"), "neuron"),
        (node(0, ["0,1", "2,3"]), "neuron"),
        (node(0, ["", ""]), "xla"),
        (node(0, [str(core) for core in range(32)], instance="trn1.32xlarge"), "xla"),
        (node(0, ["0"], open_files=1024), "xla"),
    ],
)
def test_places_that_can(places, runtime):
    assert len(made(places, runtime)) == len(places)


@pytest.mark.parametrize(
    ("cores", "expected"), [("", []), ("3", [3]), ("0,1", [0, 1]), ("0-2, 5", [0, 1, 2, 5]), ("8-9", [8, 9])]
)
def test_lists_of_cores(cores, expected):
    assert numbers(cores) == expected


def test_no_list_of_cores():
    with pytest.raises(ValueError, match="no list of cores"):
        numbers("all")


@pytest.mark.parametrize(
    ("runtime", "cache", "name"),
    [
        ("xla", "/shared/runs/.compile-cache", "NEURON_COMPILE_CACHE_URL"),
        ("xla", "s3://bucket/runs/.compile-cache", "NEURON_COMPILE_CACHE_URL"),
        ("neuron", "/shared/runs/.compile-cache", "TORCH_NEURONX_NEFF_CACHE_DIR"),
    ],
)
def test_the_compile_cache_is_where_all_pods_see_it(runtime, cache, name):
    assert tuning(runtime, cache=cache)[name] == cache


def test_the_native_cache_is_a_folder():
    assert tuning("neuron", cache="s3://bucket/cache") == {}


def test_stochastic_rounding_is_a_switch():
    name = "NEURON_RT_STOCHASTIC_ROUNDING_EN"
    assert tuning("xla", stochastic_rounding=True)[name] == "1"
    assert name not in tuning("xla")
