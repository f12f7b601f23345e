"""A Ray cluster behind an address, without running anything on it: reach, trust, token, versions, jobs."""

from collections.abc import Iterator

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.submit.cluster import RayCluster, differences, here


def examine(cluster: RayCluster) -> Iterator[Diagnosis]:
    """Raises Unreachable and NotAllowed: then there is nothing to find."""
    server, where = cluster.server, cluster.name
    found = server.versions()
    jobs = server.jobs()
    yield green("ray.reach", where, "answers, and takes the token")
    python = f", Python {found.python}" if found.python is not None else ""
    if why := differences(found, here()):
        yield red("ray.version", where, "; ".join(why), "or submit with --any-version, at your own risk")
    else:
        yield green("ray.version", where, f"Ray {found.ray}{python}")
    yield _encrypted(cluster)
    if not server.healthy(timeout=10):
        fix = "see the head's log (gcs_server); the cluster cannot start anything"
        yield red("ray.control", where, "its control store (GCS) does not answer", fix)
    else:
        yield green("ray.control", where, "its control store answers")
    running = [state.run or state.id for state in jobs if not state.phase.over]
    yield green("ray.jobs", where, f"{len(running)} jobs at work" + (f": {', '.join(running[:5])}" if running else ""))


def _encrypted(cluster: RayCluster) -> Diagnosis:
    """Whether a token travels in the clear over a network."""
    server, id = cluster.server, "ray.tls"
    near = server.host in ("127.0.0.1", "localhost", "::1")
    if server.secure:
        return green(id, cluster.name, "TLS, and its certificate is trusted")
    signed = any(name.lower() == "authorization" for name in server.headers)
    if near:
        return green(id, cluster.name, "plain HTTP, to this machine only")
    if signed:
        fix = "kubectl port-forward to the head and use http://127.0.0.1:8265, or put TLS in front of it"
        return yellow(id, cluster.name, "the token travels without encryption", fix)
    fix = "start the cluster with RAY_AUTH_MODE=token; whoever reaches this port may run anything"
    return yellow(id, cluster.name, "plain HTTP and no token", fix)
