"""The way of a command from a RayJob to the shell in the cluster, in which it must not change.

In K8sJobMode and SidecarMode the operator puts the entrypoint unquoted into a bash script, which is an argument of the
submitter's container: kubelet (`$$`, `$(NAME)`) -> bash -> `ray job submit -- WORDS` -> shlex.join(WORDS) -> Jobs API
-> sh. In HTTPMode it goes to the Jobs API as it is. (controllers/ray/common/job.go, BuildJobSubmitCommand; KubeRay 1.7)

A command of plain words survives all of that. Any other becomes one quoted argument of `bash -c`, in every mode, so
that the first shell that reads it is the one in the cluster, and always bash.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from raytrain_eks.manifests.literal import kept
from raytrain_eks.spec.problem import Problem

Mode = Literal["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]
THROUGH_SHELL = ("K8sJobMode", "SidecarMode")
_WORDS = re.compile(r"[A-Za-z0-9_./=:,@%+-]+(?: [A-Za-z0-9_./=:,@%+-]+)*\Z")
_EXPANDED = re.compile(r"[$`\x00\x7f-\x9f\ud800-\udfff]")


def entrypoint(command: str, mode: Mode) -> str:
    """The `entrypoint` field for a shell command. Raises ValueError for an empty one, or one with a NUL."""
    if not command.strip():
        raise ValueError("the command is empty")
    if "\0" in command:
        raise ValueError("no program can be given a NUL character")
    word = command if _WORDS.match(command) else f"bash -c {shlex.quote(command)}"
    return kept(word) if mode in THROUGH_SHELL else word


def runtime_env_problems(runtime_env: Mapping[str, Any], mode: Mode, path: str) -> Iterator[Problem]:
    """Strings that would not reach the cluster: the operator puts the JSON between double quotes of its script, where
    bash still expands `$` and backticks, and Go writes some characters as escapes that JSON does not know."""
    if mode not in THROUGH_SHELL:
        return
    for where, text in _strings(runtime_env, path):
        if found := [letter for letter in text if _EXPANDED.match(letter) or _hidden(letter)]:
            yield Problem(
                path=where,
                value=text,
                rule=f"{found[0]!r} does not survive the operator's submit script in {mode}",
                fix="use HTTPMode, or set the variable in the command itself or in the pods",
            )


def _hidden(letter: str) -> bool:
    """Whether Go writes it as `\\U` and eight digits, which JSON does not know."""
    return ord(letter) > 0xFFFF and not letter.isprintable()


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}.{key}", str(key)
            yield from _strings(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strings(item, f"{path}.{index}")


def runtime_env(value: Mapping[str, Any]) -> str:
    """`runtimeEnvYAML`: JSON that is YAML as well. Letters stand for themselves, since YAML joins no surrogate pairs;
    invisible ones are escaped, since some are line breaks to YAML."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in written)
