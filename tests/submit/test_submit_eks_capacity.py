"""Whether a job fits into quotas, queues and node pools, told before anything is made."""

from decimal import Decimal
from typing import Any

import pytest
from test_submit_eks_place import job, plan

from raytrain_eks.kube.connect import connect
from raytrain_eks.submit.eks_capacity import demand, shortages
from raytrain_eks.submit.eks_place import own

KUEUE = {
    "queue": {"kind": "kueue", "name": "q"},
    "workers": [{"name": "a100", "instance": "p4d.24xlarge", "nodes": 4}],
}


def place(nodes: int = 2, **changes: Any):
    return own(job(group="a100", nodes=nodes), plan(**changes))


@pytest.fixture
def told(api, tmp_path):
    def found(where) -> list[tuple[str, bool]]:
        with connect(kubeconfig=str(api.kubeconfig(tmp_path))) as client:
            return [(each.text, each.never) for each in shortages(client, where)]

    return found


def pool(api, *, gpus: int, group: str = "a100") -> None:
    labels = {"raytrain-eks/cluster": "llm", "raytrain-eks/group": group}
    template = {"metadata": {"labels": labels}, "spec": {"requirements": [], "nodeClassRef": _CLASS}}
    spec = {"template": template, "limits": {"nvidia.com/gpu": str(gpus), "cpu": "100000"}}
    api.objects.put({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": group}, "spec": spec})


_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"}


def test_the_demand_is_that_of_all_pods():
    asked = demand(place())
    assert (asked["nvidia.com/gpu"], asked["pods"]) == (16, 4)
    assert asked["vpc.amazonaws.com/efa"] == 8
    assert asked["cpu"] > Decimal(180)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(128, None), (8, "the job needs 16 nvidia.com/gpu, and the NodePool a100 allows 8 nvidia.com/gpu")],
)
def test_a_pools_limits(api, told, gpus, words):
    pool(api, gpus=gpus)
    assert told(place()) == ([(words, True)] if words else [])


def test_no_pool_makes_the_groups_nodes(api, told):
    pool(api, gpus=8, group="other")
    ((text, never),) = told(place())
    assert "no NodePool makes nodes for the group a100" in text
    assert never


@pytest.mark.parametrize(
    ("gpus", "cohort", "never"), [("16", {}, []), ("8", {}, [True]), ("8", {"cohortName": "c"}, [])]
)
def test_a_queues_nominal_quota(api, told, gpus, cohort, never):
    pool(api, gpus=128)
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "q", "namespace": "default"}}
    where = place(**KUEUE)
    local = queue | {"kind": "LocalQueue", "spec": {"clusterQueue": "all"}}
    local["metadata"] = {"name": "q", "namespace": where.namespace}
    if where.namespace not in api.objects.names("namespaces"):
        api.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where.namespace}})
    api.objects.put(local)
    flavor = {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}
    spec = {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]} | cohort
    api.objects.put(queue | {"kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": spec})
    assert [each for _, each in told(where)] == never


def test_a_queue_that_is_not_there(api, told):
    pool(api, gpus=128)
    ((text, never),) = told(place(**KUEUE))
    assert "no LocalQueue q" in text
    assert never


def test_what_may_not_be_read_is_no_shortage(api, told):
    api.rbac.deny(user="admin", verb="list", resource="nodepools")
    assert told(place()) == []
