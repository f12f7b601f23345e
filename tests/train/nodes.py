"""A Ray cluster of several nodes on this machine, which come, are drained and go as its standard input says.

Started as a program: it prints the address once all nodes are there, answers each line with `ok`, and ends the cluster
with its input. A program of its own, since a process can be in one cluster only, and nodes are made in a main thread.

    add               a node of one CPU more
    drain ID SECONDS  Ray is told that the node will be taken away
    kill ID           its raylet is killed, and so all on it
"""

import socket
import sys
import time

FAST = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
"""The head counts a node as lost after seconds."""
PREEMPTION = 2
"""autoscaler.proto, DrainNodeReason."""


def drain(address: str, node: str, seconds: float) -> None:
    from ray._raylet import GcsClient

    deadline = int((time.time() + seconds) * 1000)
    accepted, reason = GcsClient(address=address).drain_node(node, PREEMPTION, "spot notice of a test", deadline)
    if not accepted:
        raise RuntimeError(reason)


def main() -> None:
    from ray.cluster_utils import Cluster

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The dashboard: without it Ray Train leaves placement groups behind.
    head = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": port, "_system_config": FAST}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        print(cluster.address, flush=True)
        for line in sys.stdin:
            verb, *given = line.split()
            if verb == "add":
                cluster.add_node(num_cpus=1)
            elif verb == "drain":
                drain(cluster.address, given[0], float(given[1]))
            else:
                (node,) = (each for each in cluster.list_all_nodes() if each.node_id == given[0])
                cluster.remove_node(node, allow_graceful=False)
            print("ok", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
