"""Programs inside manifests: commands of containers, scripts in them, and files in config maps."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from raytrain_eks.lint.pods import Container, Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import items, mapping
from raytrain_eks.spec.source import Path


@dataclass(frozen=True, eq=False)
class Program:
    """A text that somebody will run."""

    text: str
    path: Path
    pod: Pod | None
    """The pod that runs it; None for a file in a config map."""
    container: Container | None


def programs(resource: Resource, pods: Iterable[Pod]) -> Iterator[Program]:
    """The programs of an object: each container's command in one text, and the files of a config map."""
    if resource.kind == "ConfigMap":
        for key, value in mapping(resource.get("data")).items():
            if isinstance(value, str):
                yield Program(value, (*resource.base, "data", key), None, None)
    if isinstance(value := resource.get("spec", "entrypoint"), str):
        yield Program(value, (*resource.base, "spec", "entrypoint"), None, None)
    for pod in pods:
        for container in pod.containers:
            if words := container.words:
                key = "command" if container.data.get("command") else "args"
                yield Program(" ".join(words), (*container.path, key), pod, container)


def option(program: str, name: str) -> str | None:
    """The value of `--name=value` or `--name value`, with dashes or underscores in the name; None when it is not there.

    Continuation lines of a shell script count as one line.
    """
    dashed = "[-_]".join(map(re.escape, re.split("[-_]", name)))
    found = re.search(rf"(?:^|\s)--?{dashed}(?:=|\s+|\s*\\\n\s*)(\"[^\"]*\"|'[^']*'|[^\s\\]+)", program)
    return found[1].strip("\"'") if found else None


def variables(container: Container) -> Mapping[str, tuple[str | None, Path]]:
    """The container's environment, with what `mpirun -x NAME=VALUE` hands on to the ranks."""
    found = dict(container.env)
    for key in ("command", "args"):
        words = items(container.data.get(key))
        for index, word in enumerate(words):
            if index and words[index - 1] == "-x" and isinstance(word, str) and "=" in word:
                name, _, value = word.partition("=")
                found.setdefault(name, (value, (*container.path, key, index)))
    return found
