"""Kubernetes as a target: `--on eks`. A job is a RayJob in a cluster of its own, or in a RayCluster that is there.

Its state is the RayJob object, its log that of the pod that submits; the job server of its head is reached through the
API server's proxy, for what only it knows. Nothing needs a port to be forwarded or a shell in a pod.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import raytrain_eks
from raytrain_eks.manifests import names
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.submit import eks_pods
from raytrain_eks.submit.eks_code import Code, How, pack
from raytrain_eks.submit.eks_errors import told
from raytrain_eks.submit.eks_head import HeadServer, head_server
from raytrain_eks.submit.eks_log import Feed, Whole, container_lines
from raytrain_eks.submit.eks_place import Place, existing, own
from raytrain_eks.submit.eks_state import (
    API,
    CANCELLED,
    KIND,
    RUN_LABEL,
    STORAGE,
    SUBMITTER_CONTAINER,
    job_state,
)
from raytrain_eks.submit.errors import NotFound, TargetError, Unreachable
from raytrain_eks.submit.target import STORAGE as STORAGE_KEY
from raytrain_eks.submit.target import Details, JobState, Phase, RankPlace, Say, Stream, Submission

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Body, Client
    from raytrain_eks.submit.assemble import JobFile

FRESH_S = 1.0
"""Seconds for which an answer of the API about one job is not asked for again."""
WHY_S = 5.0
"""The same for pods and Events of one that waits."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `--on eks` can be told; None: what the kubeconfig or the cluster file says."""

    context: str | None = None
    namespace: str | None = None
    kubeconfig: str | None = None
    cluster: str | None = None
    """An existing RayCluster."""
    code: How = "auto"
    token_file: str | None = None
    any_version: bool = False


class Eks:
    """Follows the protocol `Target`. Making one contacts nothing."""

    name = "eks"
    shares_files = False

    def __init__(self, options: Options):
        self.options = options
        self.placed: Place | None = None
        self._file: JobFile | None = None
        self._looked: dict[str, tuple[float, JobState | None]] = {}
        self._reasons: dict[str, tuple[float, str]] = {}
        self._feeds: dict[str, Feed] = {}
        self._gone = False

    @cached_property
    def client(self) -> "Client":
        """The API."""
        from raytrain_eks.kube.connect import connect

        options = self.options
        with told():
            return connect(context=options.context, namespace=options.namespace, kubeconfig=options.kubeconfig)

    @property
    def namespace(self) -> str:
        """Where jobs are."""
        return self.placed.namespace if self.placed is not None else self.client.namespace

    # -- before anything starts ---------------------------------------------------------------------------------

    def place(self, file: "JobFile", folder: Path) -> Place:
        """The cluster of the job's own, or the one that `--cluster` names. Raises SpecError, TargetError."""
        from raytrain_eks.submit.eks_file import plan_of

        self._file = file
        try:
            if self.options.cluster is not None:
                self.placed = existing(file.job, self._cluster(self.options.cluster, file.job, folder))
            else:
                self.placed = own(file.job, plan_of(file.job, folder, self.options.namespace))
        except SpecError as error:
            # What has a place already is about the cluster file.
            raise SpecError([each if each.file else file.placed(each) for each in error.problems]) from None
        return self.placed

    def _cluster(self, name: str, job: Job, folder: Path) -> "Body":
        from raytrain_eks.submit.eks_file import namespace_of

        where = self.options.namespace or namespace_of(job, folder) or self.client.namespace
        with told():
            found = self.client.find(API, "RayCluster", name, where)
            known = [str(each["metadata"]["name"]) for each in self.client.list(API, "RayCluster", where)]
        if found is None:
            there = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise NotFound(f"no RayCluster {name} in namespace {where} of context {self.client.context}; {there}")
        return found

    def access(self) -> dict[str, str]:
        """Context, namespace and the like, so that another current context changes nothing."""
        found = {"namespace": self.namespace}
        if self.client.context != "in-cluster":
            found["context"] = self.client.context
        if self.options.cluster:
            found["cluster"] = self.options.cluster
        if self.options.kubeconfig:
            found["kubeconfig"] = str(Path(os.path.expanduser(self.options.kubeconfig)).absolute())
        return found

    def check(self, job: Job) -> Iterator[Problem]:
        """What a RayJob cannot carry."""
        from raytrain_eks.submit.eks_rayjob import expanded, secrets

        yield from secrets(job)
        yield from expanded(job)

    def prepare(self, say: Say) -> None:
        """Raises Unreachable, NotAllowed, Incompatible with both versions, TargetError for what the cluster lacks."""
        from raytrain_eks.submit.eks_check import examine

        assert self.placed is not None
        with told():
            examine(self.client, self.placed, self._head_of_place(), self.options, say)

    def _head_of_place(self) -> HeadServer | None:
        if self.placed is None or self.placed.cluster is None:
            return None
        return self._head(self.client.get(API, "RayCluster", self.placed.cluster, self.namespace))

    def _head(self, cluster: "Body | None") -> HeadServer | None:
        return head_server(self.client, cluster, token_file=self.options.token_file) if cluster is not None else None

    # -- start --------------------------------------------------------------------------------------------------

    def objects(self, submission: Submission, say: Say) -> "tuple[list[Body], Code]":
        """The Kubernetes objects of a submission and its code. Raises SpecError, TooLarge."""
        from raytrain_eks.submit import eks_rayjob

        assert self.placed is not None
        assert self._file is not None
        place, storage = self.placed, submission.metadata[STORAGE_KEY]
        more: list[str] = []
        if self._file.sweep is None:
            # A dry run takes what is there, and so do the trials of a sweep.
            more += [] if self._file.tiny else [f"--workers={place.workers}"]
            more += [f"--client={raytrain_eks.__version__}"] if self.options.code == "image" else []
        whole = replace(submission, options=(*submission.options, *more))
        code = pack(whole, self.options.code, storage=storage, mounts=place.mounts, say=say)
        bodies = eks_rayjob.objects(whole, place, code, content=self._file.content, now=eks_rayjob.now())
        return bodies, code

    def submit(self, submission: Submission, say: Say) -> str:
        """Create the RayJob. Raises AlreadyComplete for a run that is over and would not be extended."""
        from raytrain_eks.submit.eks_file import refuse_complete
        from raytrain_eks.submit.eks_rayjob import owned_by

        storage = submission.metadata[STORAGE_KEY]
        assert self._file is not None
        with told():
            earlier = list(self._jobs(submission.run))
        refuse_complete(self._file, storage, earlier)
        bodies, code = self.objects(submission, say)
        say(code.said())
        code.put(storage)
        with told():
            made = [self.client.create(body) for body in bodies]
            for body in made[:-1]:
                change = {"metadata": {"ownerReferences": owned_by(made[-1])}}
                self.client.patch("v1", "ConfigMap", body["metadata"]["name"], change, body["metadata"]["namespace"])
        return submission.id

    def try_on_server(self, bodies: "list[Body]") -> None:
        """Let the API check objects, and keep none of them."""
        with told():
            for body in bodies:
                self.client.create(body, dry_run=True)

    # -- what there is ------------------------------------------------------------------------------------------

    def _jobs(self, run: str | None = None) -> "Iterator[Body]":
        selector = RUN_LABEL if run is None else f"{RUN_LABEL}={run}"
        yield from self.client.list(API, KIND, self.namespace, labels=selector)

    def _body(self, id: str) -> "Body | None":
        return self.client.find(API, KIND, names.ray_job(id), self.namespace)

    def job(self, id: str) -> JobState | None:
        """The job; None when its RayJob is gone."""
        when, known = self._looked.get(id, (0.0, None))
        if known is not None and (time.monotonic() - when < FRESH_S or known.phase.over):
            return known
        with told():
            body = self._body(id)
            state = self._state(body) if body is not None else None
        self._gone = state is None
        self._looked[id] = (time.monotonic(), state)
        return state

    def _state(self, body: "Body") -> JobState:
        state = job_state(body)
        if state.phase is not Phase.PENDING:
            return state
        when, message = self._reasons.get(state.id, (0.0, ""))
        if time.monotonic() - when > WHY_S or not message:
            message = "; ".join(eks_pods.why(self.client, body, eks_pods.pods_of(self.client, body))[:3])
            message = message or _waits(body)
            self._reasons[state.id] = (time.monotonic(), message)
        return replace(state, message=message)

    def jobs(self) -> list[JobState]:
        """Jobs of the namespace that raytrain-eks submitted, oldest first."""
        with told():
            return sorted((job_state(body) for body in self._jobs()), key=lambda state: (state.started or 0, state.id))

    def details(self, id: str) -> Details:
        """Pods and reasons."""
        with told():
            body = self._body(id)
            if body is None:
                return Details()
            pods = eks_pods.pods_of(self.client, body)
            waits = job_state(body).phase is not Phase.SUCCEEDED
            reasons = eks_pods.why(self.client, body, pods) if waits else []
        return Details(pods=tuple(eks_pods.shown(pod) for pod in pods), why=tuple(reasons))

    def address(self, id: str) -> str | None:
        """How a person reaches the dashboard of a job that has one."""
        with contextlib.suppress(TargetError), told():
            body = self._body(id)
            cluster = eks_pods.cluster_of(self.client, body) if body is not None else None
            service = ((cluster or {}).get("status") or {}).get("head", {}).get("serviceName")
            if service and body is not None and not job_state(body).phase.over:
                forward = f"kubectl --context {self.client.context} -n {self.namespace} port-forward svc/{service} 8265"
                return f"http://127.0.0.1:8265/#/jobs/{id}, after: {forward}"
        return None

    # -- logs ---------------------------------------------------------------------------------------------------

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream:
        """The driver's log, out of the newest pod that submitted it."""
        if follow or skip:
            feed = self._feeds.setdefault(state.id, Feed(lambda: self._submitters(state.id), self._lines))
            return feed.reader(skip)
        pods = self._submitters(state.id)
        return Whole(self._tail(pods[-1], last) if pods else iter(()))

    def _submitters(self, id: str) -> list[str]:
        with told():
            body = self._body(id)
            return [str(pod["metadata"]["name"]) for pod in eks_pods.submitters(self.client, body)] if body else []

    def _lines(self, pod: str) -> Iterator[str]:
        return container_lines(self.client, self.namespace, pod, SUBMITTER_CONTAINER, follow=True)

    def _tail(self, pod: str, last: int | None) -> Iterator[str]:
        return container_lines(self.client, self.namespace, pod, SUBMITTER_CONTAINER, tail=last)

    def rank_log(
        self, state: JobState, rank: RankPlace, *, skip: int = 0, follow: bool = False, last: int | None = None
    ) -> Stream:
        """The output of a worker process, from the agent of its node by way of the head."""
        return self._server(state.id).worker_log(rank.node, rank.pid, skip=skip, follow=follow, last=last)

    def _server(self, id: str) -> HeadServer:
        with told():
            body = self._body(id)
            head = self._head(eks_pods.cluster_of(self.client, body)) if body is not None else None
        if head is None:
            raise NotFound(f"the cluster of {id} is not there (any more), and its processes with it")
        return head

    def kept(self, run: str, storage: str | None) -> "JobFile | None":
        """What the run's newest RayJob carries; where that is in a RayCluster that was there, the next one will be."""
        from raytrain_eks.submit.eks_file import newest_of, of_rayjob

        with told():
            body = newest_of(self._jobs(run), storage)
        if body is None:
            return None
        there = (body["spec"].get("clusterSelector") or {}).get(eks_pods.CLUSTER_LABEL)
        if there is not None and self.options.cluster is None:
            self.options = replace(self.options, cluster=str(there))
        return of_rayjob(body)

    def past(self, id: str) -> JobState | None:
        """Logs live as long as the RayJob."""
        return None

    def lost(self) -> str | None:
        """A RayJob that was deleted takes its job with it."""
        return "its RayJob was deleted" if self._gone else None

    # -- the end ------------------------------------------------------------------------------------------------

    def stop(self, id: str) -> bool:
        """Ask for a last checkpoint and the job's end: by the job server of its head, else by the run's folder where
        that can be written from here. A job that has not begun is deleted."""
        with told():
            body = self._body(id)
            if body is None:
                raise NotFound(f"no RayJob of {id} in namespace {self.namespace}")
            state = job_state(body)
            if state.phase.over:
                return False
            if state.phase is Phase.PENDING:
                self._delete(body)
                return True
        if not self._ask(body, state):
            raise Unreachable(
                f"nobody could be asked for a last checkpoint of {id}: the job server of its head is not reachable "
                "from here, and neither is its storage\n  --now ends it all the same; it then goes on from the newest "
                "checkpoint that there is"
            )
        self._looked.pop(id, None)
        with told():
            self._annotate(body, {CANCELLED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})
        return True

    def end(self, id: str) -> bool:
        """Delete the RayJob: the operator stops the driver, and the cluster goes with it. False: there is none."""
        with told():
            body = self._body(id)
            return body is not None and self._delete(body)

    def _ask(self, body: "Body", state: JobState) -> bool:
        """By the driver's job server, which reaches it at any moment; else by the run folder, which workers look at."""
        from raytrain_eks.submit.eks_file import request_stop

        with contextlib.suppress(TargetError):
            return self._server(state.id).stop(state.id)
        storage = (body["metadata"].get("annotations") or {}).get(STORAGE)
        return bool(storage and state.run and request_stop(storage, state.run))

    def _annotate(self, body: "Body", annotations: dict[str, str]) -> None:
        metadata = body["metadata"]
        change = {"metadata": {"annotations": annotations}}
        self.client.patch(API, KIND, metadata["name"], change, metadata["namespace"])

    def _delete(self, body: "Body") -> bool:
        metadata = body["metadata"]
        self._looked.clear()
        return self.client.delete(API, KIND, metadata["name"], metadata["namespace"], uid=metadata.get("uid"))


def _waits(body: "Body") -> str:
    """What a RayJob waits for when nothing is wrong."""
    status = body.get("status") or {}
    deployment = status.get("jobDeploymentStatus")
    if body["spec"].get("suspend") or deployment in ("Suspended", "Suspending"):
        return "it is suspended: its queue has not let it in"
    if not deployment:
        return "the KubeRay operator has not seen it yet"
    if deployment == "Initializing":
        cluster: dict[str, Any] = status.get("rayClusterStatus") or {}
        ready, wanted = cluster.get("readyWorkerReplicas") or 0, cluster.get("desiredWorkerReplicas")
        return f"its cluster starts: {ready} of {wanted} workers are ready" if wanted else "its cluster starts"
    return "the pod that submits it starts"
