"""RT308: names of objects, of their namespaces, and of what lies in a pod, by the rule of each kind.

Sources: k8s.io/apimachinery/pkg/api/validation (NameIsDNSSubdomain, NameIsDNSLabel, NameIsDNS1035Label,
path.IsValidPathSegmentName), pkg/apis/core/validation and pkg/apis/batch/validation of Kubernetes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.served import is_served
from raytrain_eks.lint.tree import get, items, mapping, placeholder, text
from raytrain_eks.spec.kubernetes import DATA_KEY, DNS_1035, DNS_LABEL, SUBDOMAIN
from raytrain_eks.spec.problem import shown
from raytrain_eks.spec.source import Path


@dataclass(frozen=True)
class Form:
    """What a name may look like."""

    test: Callable[[str], object]
    words: str
    most: int
    """Letters at most."""
    repair: str = r"[^a-z0-9.]+"
    """What becomes a dash in the name that is proposed."""

    def near(self, name: str) -> str | None:
        """A legal name that is like this one; None when nothing is left of it."""
        found = re.sub(self.repair, "-", name.lower())
        found = re.sub(r"-*\.[-.]*", ".", found).strip("-.")[: self.most].rstrip("-.")
        return found if found and self.test(found) else None


_SUBDOMAIN = Form(SUBDOMAIN.match, "lower-case letters, digits, dashes and dots, at most 253", 253)
_LABEL = Form(DNS_LABEL.match, "lower-case letters, digits and dashes, at most 63", 63, r"[^a-z0-9]+")
_SERVICE = Form(DNS_1035.match, "lower-case letters, digits and dashes, a letter first, at most 63", 63, r"[^a-z0-9]+")
_SEGMENT = Form(lambda name: name not in (".", "..") and not {"/", "%"} & set(name), "anything without / and %", 253)
_KEY = Form(DATA_KEY.match, "letters, digits, -, _ and dots", 253)
_PORT = Form(
    re.compile(r"(?!.*--)(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z").match,
    "lower-case letters, digits and single dashes, at most 15",
    15,
    r"[^a-z0-9]+",
)
_FORMS = {("", "Namespace"): _LABEL, ("", "Service"): _SERVICE}
_MOST = {("batch", "CronJob"): (52, "its Jobs' names add 11"), ("batch", "Job"): (63, "its pods carry it as a label")}
"""Kinds whose names have to be shorter than the form says."""
_NAMELESS = ("TokenReview", "SubjectAccessReview", "SelfSubjectAccessReview", "LocalSubjectAccessReview")


def _names(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        if is_served(resource) and resource.group != "ray.io" and resource.kind not in _NAMELESS:
            yield from _name(resource, settings)
            yield from _namespace(resource)
        if resource.is_a("", "ConfigMap", "Secret"):
            for part in ("data", "binaryData", "stringData"):
                for key in mapping(resource.get(part)):
                    yield from _legal(resource, key, _KEY, (*resource.base, part, key), f"the key {key}", key=True)
    for pod in bundle.pods:
        if pod.owner.kind != "ConfigMap":
            yield from _in_pod(pod)


def _name(resource: Resource, settings: Settings) -> Iterator[Hit]:
    metadata = resource.data.get("metadata")
    name, prefix = get(metadata, "name"), get(metadata, "generateName")
    if metadata is not None and not isinstance(metadata, Mapping):
        return
    if name in (None, "") and prefix in (None, ""):
        path = (*resource.base, "metadata") if metadata is not None else resource.base
        fix = "write metadata: {name: ...}"
        yield Hit(on=resource, path=path, reason=f"the {resource.kind} has no name", fix=fix)
        return
    form = _form(resource, settings)
    if name in (None, ""):
        # What the API server adds to a prefix begins with a letter or digit, so a dash at its end is no end.
        yield from _legal(resource, prefix, form, (*resource.base, "metadata", "generateName"), "generateName", "-")
        return
    place = (*resource.base, "metadata", "name")
    yield from _legal(resource, name, form, place, f"the name of a {resource.kind}")
    most, why = _MOST.get((resource.group, resource.kind), (None, ""))
    if most and len(text(name)) > most and not placeholder(name):
        reason = f"the name of a {resource.kind} has at most {most} letters, since {why}; this one has {len(name)}"
        yield Hit(on=resource, path=place, reason=reason, fix="write a shorter one")


def _form(resource: Resource, settings: Settings) -> Form:
    if resource.is_a("", "Service") and not settings.before("1.35"):
        # RelaxedServiceNameValidation, alpha in 1.34: a digit may be the first letter.
        return _LABEL
    if resource.group == "rbac.authorization.k8s.io" or resource.kind == "CertificateSigningRequest":
        return _SEGMENT
    return _FORMS.get((resource.group, resource.kind), _SUBDOMAIN)


def _namespace(resource: Resource) -> Iterator[Hit]:
    namespace = resource.get("metadata", "namespace")
    if namespace not in (None, ""):
        yield from _legal(resource, namespace, _LABEL, (*resource.base, "metadata", "namespace"), "a namespace")


def _in_pod(pod: Pod) -> Iterator[Hit]:
    seen: dict[str, set[str]] = {"container": set(), "volume": set()}
    named = [("container", container.path, container.data) for container in pod.containers]
    volumes = enumerate(items(pod.spec.get("volumes")))
    named += [("volume", (*pod.path, "volumes", index), mapping(volume)) for index, volume in volumes]
    for what, path, data in named:
        name = data.get("name")
        yield from _legal(pod.owner, name, _LABEL, (*path, "name"), f"the name of a {what}")
        if name in (None, "") and pod.apart is None:
            yield Hit(on=pod.owner, path=path, reason=f"a {what} has no name", fix="add name")
        elif isinstance(name, str) and name in seen[what]:
            reason = f"two {what}s of the pod have the name {shown(name)}"
            yield Hit(on=pod.owner, path=(*path, "name"), reason=reason, fix="give each its own")
        seen[what].add(text(name))
    for container in pod.containers:
        for index, variable in enumerate(items(container.data.get("env"))):
            if isinstance(variable, Mapping) and variable.get("name") in (None, ""):
                path = (*container.path, "env", index)
                yield Hit(on=pod.owner, path=path, reason="a variable has no name", fix="add name")
        for index, port in enumerate(items(container.data.get("ports"))):
            path = (*container.path, "ports", index, "name")
            yield from _legal(pod.owner, get(port, "name"), _PORT, path, "the name of a port")


def _legal(
    on: Resource, name: Any, form: Form, path: Path, what: str, end: str = "", key: bool = False
) -> Iterator[Hit]:
    """The finding on a name that has not its form. What is no text is another rule's."""
    if not isinstance(name, str) or not name or placeholder(name) or form.test(name.removesuffix(end)):
        return
    if isinstance(name, str) and len(name) > form.most and form.test(name[: form.most].rstrip("-.")):
        said = f"has at most {form.most} letters, this one has {len(name)}"
    else:
        said = f"must be {form.words}; {shown(name)} is not"
    near = form.near(name)
    fix = f"for example {near}{end if name.endswith(end) else ''}" if near else "write one that is"
    yield Hit(on=on, path=path, reason=f"{what} {said}", fix=fix, key=key)


RULES = (
    Rule(
        id="RT308",
        severity="error",
        title="A name that Kubernetes refuses",
        why="Most names become parts of addresses, DNS names and labels, so they are lower-case: `Invalid value: "
        "metadata.name: a lowercase RFC 1123 subdomain must consist of ...`. Namespaces, Services, containers, volumes "
        "and ports have narrower rules, and an object without metadata.name or generateName is refused as well. "
        "Names of Ray's objects are looked at by RT801.",
        fix="Write lower-case letters, digits and dashes.",
        check=_names,
    ),
)
