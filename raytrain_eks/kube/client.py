"""A thin client of a Kubernetes API: objects are plain dicts, kinds are found by asking the API what it serves.

    client.get("ray.io/v1", "RayJob", "llm")                       # NotFound when there is none; `find`: None
    client.list("v1", "Pod", labels="ray.io/cluster=llm")          # an iterator, page by page
    client.list("ray.io/v1", "RayJob", namespace=ALL)              # of all namespaces
    client.apply(body)                                             # server-side, as field manager raytrain-eks
    client.create(body), client.patch("ray.io/v1", "RayJob", "llm", {"spec": {"suspend": True}})
    client.delete("ray.io/v1", "RayJob", "llm", propagation="Foreground")
    for event, pod in client.watch("v1", "Pod", labels="...", seconds=600): ...
    for line in client.logs("llm-head", container="ray-head", follow=True): ...
    client.events(body)                                            # about an object, oldest first
    client.allowed("create", "ray.io/v1", "RayJob")                # SelfSubjectAccessReview
    client.version()                                               # (1, 33)
    client.serves("ray.io/v1", "RayJob"), client.versions("ray.io"), client.kinds.forget()

`namespace` is the client's own (option, context, pod) unless a call or the object says another; kinds without
namespaces ignore it. Every method raises KubeError. A client may be shared by threads.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import Asked, Conflict, Gone, MissingKind, NotFound, Unreachable
from raytrain_eks.kube.kinds import Kind, Kinds

if TYPE_CHECKING:
    from raytrain_eks.kube.transport import Transport

Body = dict[str, Any]
MANAGER = "raytrain-eks"
"""Our field manager in server-side apply."""
CREATION = "raytrain-eks/creation"
"""Annotation with a random token of the call that created an object."""
ALL = "*"
"""Every namespace."""
PAGE = 500
"""Objects of a page of a list, as kubectl asks for them."""
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class Client:
    """One cluster, one user, one namespace unless told otherwise. See the module's text."""

    def __init__(self, transport: "Transport"):
        self.transport = transport
        self.namespace = transport.access.namespace
        self.kinds = Kinds(transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self.transport.close()

    @property
    def server(self) -> str:
        """The API's address."""
        return self.transport.access.server

    @property
    def context(self) -> str:
        """The kubeconfig's context; `in-cluster` for the account of a pod."""
        return self.transport.access.context

    # What the API serves

    def kind(self, api_version: str, kind: str) -> Kind:
        """The kind, asked for once and remembered. Raises MissingKind, with the versions that there are."""
        return self.kinds.find(api_version, kind)

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API serves a kind in this version."""
        return kind in (self.kinds.served(api_version) or {})

    def versions(self, group: str) -> Sequence[str]:
        """The versions of a group that the API serves, the preferred one first; none when it has no such group."""
        return self.kinds.versions(group)

    def version(self) -> tuple[int, int]:
        """Kubernetes' version, major and minor."""
        answer = self.transport.send("GET", "/version", Asked("get", resource="/version"))[1]
        numbers = [int(re.sub(r"\D.*", "", str(answer.get(part) or "0")) or 0) for part in ("major", "minor")]
        return numbers[0], numbers[1]

    # Objects

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Body:
        """An object. Raises NotFound."""
        found, where = self._place(api_version, kind, namespace)
        return self.transport.send("GET", found.path(where, name), found.asked("get", where, name))[1]

    def find(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Body | None:
        """An object, or None."""
        try:
            return self.get(api_version, kind, name, namespace)
        except NotFound:
            return None

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: int = PAGE,
    ) -> Iterator[Body]:
        """Objects, page by page; ALL for those of every namespace. Selectors as kubectl writes them.

        A list that takes so long that the API forgets its beginning (410) is begun anew; no object comes twice.
        """
        told: set[str] = set()
        size: int | None = page
        while True:
            try:
                for items, _ in self.pages(api_version, kind, namespace, labels=labels, fields=fields, page=size):
                    fresh = [each for each in items if each["metadata"].get("uid") not in told]
                    told.update(each["metadata"].get("uid") or "" for each in fresh)
                    yield from fresh
                return
            except Gone:
                if size is None:
                    raise
                # One page cannot become stale between its parts.
                size = None

    def pages(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: int | None = PAGE,
    ) -> Iterator[tuple[Sequence[Body], str]]:
        """The pages of a list, each with the resourceVersion that a watch can start from. Raises Gone."""
        found, where = self._place(api_version, kind, namespace)
        params: Body = {"labelSelector": labels, "fieldSelector": fields, "limit": page}
        while True:
            answer = self.transport.send("GET", found.path(where), found.asked("list", where), params=params)[1]
            metadata = answer.get("metadata") or {}
            for item in (items := answer.get("items") or []):
                item.setdefault("apiVersion", api_version)
                item.setdefault("kind", kind)
            yield items, str(metadata.get("resourceVersion") or "")
            if not metadata.get("continue"):
                return
            params["continue"] = metadata["continue"]

    def apply(
        self, body: Mapping[str, Any], *, force: bool = False, dry_run: bool = False, manager: str = MANAGER
    ) -> tuple[Body, bool]:
        """Server-side apply. Returns the object as it is then, and whether it was created.

        `force` takes fields that others own. Unknown fields are refused. Raises Conflict with their owners, Invalid.
        """
        found, where, name = self._of(body)
        params = {"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Strict"}
        params |= {"dryRun": "All"} if dry_run else {}
        status, answer = self.transport.send(
            "PATCH",
            found.path(where, name),
            found.asked("patch", where, name),
            params=params,
            body=body,
            content_type=_PATCHES["apply"],
        )
        return answer, status == 201

    def create(self, body: Mapping[str, Any], *, dry_run: bool = False) -> Body:
        """A new object of a given name. Raises Conflict when there is one already.

        Where the answer is lost, the object is looked for: a mark tells whether it is this call's, and only if there is
        none is it created again.
        """
        found, where, name = self._of(body)
        params = {"fieldManager": MANAGER, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        asked, mark = found.asked("create", where, name), uuid.uuid4().hex
        metadata = body["metadata"]
        marked = {"annotations": {**(metadata.get("annotations") or {}), CREATION: mark}}
        new = dict(body) | {"metadata": {**metadata, **marked}}
        for last in (False, False, True):
            try:
                return self.transport.send("POST", found.path(where), asked, params=params, body=new, safe=False)[1]
            except (Unreachable, Conflict) as error:
                # A Conflict may be with what an earlier, lost try of this call created.
                there = None if dry_run else self.find(found.api_version, found.kind, name, where)
                if ((there or {}).get("metadata", {}).get("annotations") or {}).get(CREATION) == mark:
                    return there or {}
                if last or isinstance(error, Conflict):
                    raise
        raise AssertionError("the last try returns or raises")

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        change: Any,
        namespace: str | None = None,
        *,
        form: str = "merge",
        subresource: str | None = None,
    ) -> Body:
        """The object after a patch. `form`: `merge`, `strategic` (kinds of Kubernetes itself), or `json`."""
        found, where = self._place(api_version, kind, namespace)
        return self.transport.send(
            "PATCH",
            found.path(where, name, subresource),
            found.asked("patch", where, name, subresource or ""),
            params={"fieldManager": MANAGER},
            body=change,
            content_type=_PATCHES[form],
            safe=form != "json",
        )[1]

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        uid: str | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Ask for an object's end; False when it is not there. `uid`: only this one, not a later one of its name.

        Finalizers run after this returns: `find` tells when it is gone. Raises Conflict for another uid.
        """
        found, where = self._place(api_version, kind, namespace)
        options: Body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        options |= {"preconditions": {"uid": uid}} if uid else {}
        options |= {"dryRun": ["All"]} if dry_run else {}
        path, asked = found.path(where, name), found.asked("delete", where, name)
        try:
            self.transport.send("DELETE", path, asked, body=options)
        except NotFound:
            return False
        return True

    # What goes on

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        seconds: float | None = None,
    ) -> Iterator[tuple[str, Body]]:
        """`("ADDED" | "MODIFIED" | "DELETED", object)`: first what is there, then every change, for so many seconds.

        Broken connections are resumed where they broke; when the API has forgotten that point (410), the whole is
        listed anew and the differences are told, so no object is missed; states in between may be.
        """
        from raytrain_eks.kube.watch import watch

        found, where = self._place(api_version, kind, namespace)
        return watch(self, found, where, labels=labels, fields=fields, seconds=seconds)

    def logs(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> Iterator[str]:
        """Lines of a container's log, without their ends; with `follow` until the container has ended.

        Broken connections are resumed with no line twice and none lost. `timestamps` puts the kubelet's before each.
        """
        from raytrain_eks.kube.podlog import logs

        where = namespace or self.namespace
        return logs(
            self,
            pod,
            where,
            container=container,
            follow=follow,
            tail=tail,
            previous=previous,
            timestamps=timestamps,
        )

    def events(self, about: Mapping[str, Any]) -> Sequence[Body]:
        """Events about an object, the oldest first. `about` needs kind and metadata; its uid counts if it has one."""
        metadata = about.get("metadata") or {}
        chosen = {"involvedObject.name": metadata.get("name"), "involvedObject.kind": about.get("kind")}
        chosen |= {"involvedObject.uid": metadata["uid"]} if metadata.get("uid") else {}
        # Events of what has no namespace lie in `default`.
        where = metadata.get("namespace") or "default"
        selector = ",".join(f"{key}={value}" for key, value in chosen.items() if value)
        return sorted(self.list("v1", "Event", where, fields=selector), key=event_time)

    def allowed(
        self,
        verb: str,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
    ) -> tuple[bool, str]:
        """Whether this user may do that, and the API's reason. A kind that is not served is asked for by its guess."""
        group = api_version.rpartition("/")[0]
        try:
            found = self.kind(api_version, kind)
        except MissingKind:
            found = Kind(api_version, kind, f"{kind.lower()}s", True)
        attributes: Body = {"verb": verb, "group": group, "resource": found.plural}
        if found.namespaced and namespace != ALL:
            attributes["namespace"] = namespace or self.namespace
        attributes |= {"name": name} if name else {}
        attributes |= {"subresource": subresource} if subresource else {}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = Asked("create", "authorization.k8s.io", "selfsubjectaccessreviews")
        answer = self.transport.send("POST", path, asked, body=body | {"spec": {"resourceAttributes": attributes}})[1]
        status = answer.get("status") or {}
        return bool(status.get("allowed")), str(status.get("reason") or "")

    # Where an object lies

    def placed(self, body: Mapping[str, Any]) -> Body:
        """The object with the namespace that it would get; as it is when its kind is not served."""
        try:
            found, where, _ = self._of(body)
        except MissingKind:
            return dict(body)
        metadata = {key: value for key, value in body["metadata"].items() if key != "namespace"}
        return dict(body) | {"metadata": metadata | ({"namespace": where} if found.namespaced else {})}

    def _place(self, api_version: str, kind: str, namespace: str | None) -> tuple[Kind, str | None]:
        found = self.kind(api_version, kind)
        if not found.namespaced or namespace == ALL:
            return found, None
        return found, namespace or self.namespace

    def _of(self, body: Mapping[str, Any]) -> tuple[Kind, str | None, str]:
        metadata = body.get("metadata") or {}
        found, where = self._place(str(body["apiVersion"]), str(body["kind"]), metadata.get("namespace"))
        return found, where, str(metadata.get("name") or "")


def event_time(event: Mapping[str, Any]) -> str:
    """When an event last happened, as a text that sorts: old and new forms of Event hold it in different places."""
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    # Without its Z, a whole second sorts before its parts.
    return str(found or metadata.get("creationTimestamp") or "").removesuffix("Z")
