"""How many trials run at the same time: calculated from what there is, and said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.tune.capacity import Room, Trials, concurrency, grown

GPU = {"CPU": 1.0, "GPU": 1.0}
NODE = {"CPU": 96.0, "GPU": 8.0}


def plan(needs: Trials, room: Room, trials: int = 8, asked: int | None = None):
    return concurrency(needs, room, trials=trials, asked=asked)


@pytest.mark.parametrize(
    ("needs", "room", "number", "text"),
    [
        (
            Trials(workers=2, each={"CPU": 1}),
            Room(nodes=[{"CPU": 4}], kept=2, kept_for="everything else"),
            1,
            "8 trials x 2 workers on 4 CPUs, 2 of them kept for everything else: 1 at a time, because 2 workers",
        ),
        (
            Trials(workers=8, each=GPU),
            Room(nodes=[NODE, NODE]),
            2,
            "8 trials x 8 workers on 16 GPUs on 2 nodes: 2 at a time, because 16 workers have room",
        ),
        (
            Trials(workers=3, each=GPU),
            Room(nodes=[NODE]),
            2,
            "8 trials x 3 workers on 8 GPUs: 2 at a time, because 8 workers have room, and a trial runs with all of "
            "its workers or not at all",
        ),
        (
            Trials(workers=16, each=GPU),
            Room(nodes=[NODE], growing=4),
            2,
            "8 trials x 16 workers on 32 GPUs on 4 nodes: 2 at a time, because 32 workers have room",
        ),
        (
            Trials(workers=8, each=GPU),
            Room(nodes=[NODE, NODE], quota={"GPU": 8}),
            1,
            "8 trials x 8 workers on 16 GPUs on 2 nodes: 1 at a time, because the queue's quota has room for no more",
        ),
        (
            Trials(workers=32, each=GPU),
            Room(nodes=[], planned=64),
            2,
            "8 trials x 32 workers on 64 GPUs: 2 at a time, because 64 workers have room",
        ),
        (Trials(workers=1, each={"CPU": 0.5}), Room(nodes=[{"CPU": 1}, {"CPU": 0.75}]), 3, "3 workers have room"),
        (Trials(workers=1, each={"CPU": 64, "GPU": 1}), Room(nodes=[NODE]), 1, "1 worker has room"),
        (Trials(workers=1, each={"neuron_cores": 1.0}), Room(nodes=[{"neuron_cores": 32.0}]), 8, "there are no more"),
    ],
)
def test_what_fits_and_why(needs, room, number, text):
    found = plan(needs, room)
    assert (found.number, text in found.text) == (number, True), found.text


def test_what_was_asked_for_is_the_limit_and_said():
    found = plan(Trials(workers=1, each=GPU), Room(nodes=[NODE]), asked=3)
    assert found.number == 3
    assert found.text.endswith("3 at a time, because concurrency is 3")


@pytest.mark.parametrize(
    ("needs", "room", "words"),
    [
        (Trials(workers=9, each=GPU), Room(nodes=[NODE]), ["9 workers", "room for 8", "8 GPUs", "at most 8"]),
        (Trials(workers=1, each=GPU), Room(nodes=[]), ["room for 0"]),
        (Trials(workers=2, each=GPU), Room(nodes=[NODE], quota={"GPU": 1}), ["quota"]),
    ],
)
def test_a_trial_that_is_larger_than_the_cluster_is_refused(needs, room, words):
    with pytest.raises(SpecError) as error:
        plan(needs, room)
    assert all(word in str(error.value) for word in words), error.value


CLUSTER = {"kind": "Cluster", "name": "c", "region": "us-west-2", "zone": "us-west-2a", "ray": {"image": "r/i:1"}}
P4D = {"name": "a100", "instance": "p4d.24xlarge", "nodes": {"min": 0, "max": 4}}


@pytest.mark.parametrize(
    ("changes", "nodes", "number", "words"),
    [
        # Nothing is there yet: the autoscaler brings up to four nodes.
        ({}, [], 2, "on 32 GPUs on 4 nodes: 2 at a time"),
        ({"queue": {"kind": "volcano", "name": "train"}}, [NODE], 2, "on 32 GPUs on 4 nodes"),
        # Kueue admitted two nodes, and Ray's autoscaler is off.
        ({"queue": {"kind": "kueue", "name": "train"}}, [NODE, NODE], 1, "on 16 GPUs on 2 nodes: 1 at a time"),
        ({"autoscaling": {"enabled": False}}, [NODE, NODE], 1, "on 16 GPUs on 2 nodes"),
    ],
)
def test_a_cluster_file_says_what_the_cluster_may_grow_to(changes, nodes, number, words):
    fixed = "autoscaling" in changes or "kueue" in str(changes)
    group = P4D | {"nodes": {"min": 0, "max": 4} | ({"start": 2} if fixed else {})}
    cluster = Cluster.parse(CLUSTER | {"workers": [group]} | changes)
    room = grown(Room(nodes=nodes), resolve(cluster), "a100")
    found = plan(Trials(workers=16, each=GPU), room)
    assert (found.number, words in found.text) == (number, True), found.text


@given(
    workers=st.integers(1, 6),
    cpus=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    each=st.integers(1, 4),
    kept=st.integers(0, 3),
)
def test_all_trials_of_a_plan_fit_side_by_side(workers, cpus, each, kept):
    """As many trials as the plan says can be put onto the nodes, whole, beside what is kept; one more cannot."""
    room = Room(nodes=[{"CPU": float(cpu)} for cpu in cpus], kept=kept, kept_for="data")
    needs = Trials(workers=workers, each={"CPU": float(each)})
    best = max(
        sum(max(cpu - (kept if index == spared else 0), 0) // each for index, cpu in enumerate(cpus))
        for spared in range(len(cpus))
    )
    try:
        assert plan(needs, room, trials=1000).number == best // workers
    except SpecError:
        assert best < workers
