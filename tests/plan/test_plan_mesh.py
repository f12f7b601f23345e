"""Neighbouring ranks share a layer, and train on the same rows."""

import pytest

from raytrain_eks.plan.mesh import Mesh, mesh_of
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError


def job(**engine):
    return Job.parse(
        {
            "name": "mesh",
            "model": {"name": "x"},
            "data": {"train": "x", "sequence_length": 8},
            "batch": {"sequences": 8},
            "optimizer": {"learning_rate": 0.01},
            "engine": engine,
            "stop": {"steps": 1},
        }
    )


@pytest.mark.parametrize(
    ("world", "tensor", "places"),
    [
        (4, 1, [(0, 0), (1, 0), (2, 0), (3, 0)]),
        (4, 2, [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (4, 4, [(0, 0), (0, 1), (0, 2), (0, 3)]),
    ],
)
def test_ranks_lie_in_a_rectangle(world, tensor, places):
    mesh = mesh_of(job(kind="torch", tensor=tensor), world)
    assert mesh == Mesh(data=world // tensor, tensor=tensor)
    assert mesh.world == world
    assert [(mesh.data_rank(rank), mesh.tensor_rank(rank)) for rank in range(world)] == places


@pytest.mark.parametrize(("world", "tensor", "fix"), [(6, 4, "write 3"), (2, 4, "write 2"), (5, 2, "write 1")])
def test_ranks_that_make_no_rectangle_are_refused(world, tensor, fix):
    with pytest.raises(SpecError, match=f"{world} workers cannot be split into groups of {tensor}") as refused:
        mesh_of(job(kind="torch", tensor=tensor), world)
    assert refused.value.problems[0].fix.startswith(fix)


def test_a_proposal_for_absurd_numbers_takes_no_time():
    with pytest.raises(SpecError, match="write 31"):
        mesh_of(job(kind="torch", tensor=10**9), 2 * 10**9 - 1)


@pytest.mark.parametrize("engine", [{"kind": "auto"}, {"kind": "deepspeed"}, {"kind": "xla"}])
def test_other_engines_have_data_ranks_only(engine):
    assert mesh_of(job(**engine), 3) == Mesh(data=3, tensor=1)
