"""Where the API is and who asks: kubeconfig files joined as kubectl joins them, or the account of this pod.

Of several files in KUBECONFIG the first that names a cluster, a user, a context or the current context wins; missing
files are passed over; a relative path inside a file starts at that file's folder (kubernetes.io, "Organizing Cluster
Access Using kubeconfig Files"). The account of a pod is used only where there is no kubeconfig, as kubectl does.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raytrain_eks.kube.errors import BadConfig

VARIABLE = "KUBECONFIG"
LARGEST = 16 * 2**20
"""Bytes of a kubeconfig; a larger file is another one, or a device without an end."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATHS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

_KEY_DATA = "client-key-data"


@dataclass(frozen=True)
class Access:
    """One cluster, and one user of it."""

    context: str
    """The context's name; `in-cluster` for the account of this pod."""
    namespace: str
    server: str
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The kubeconfig's `cluster`, its paths absolute."""
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The kubeconfig's `user`, its paths absolute. It may hold secrets: never shown."""
    folder: Path | None = None
    """Where a relative path of an exec plugin starts."""


def find(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Access:
    """The cluster and the user that these options, the environment and the files name. Raises BadConfig."""
    files = _files(kubeconfig, environment)
    documents = [(file, _read(file)) for file in files if file.is_file()]
    if kubeconfig is not None and not documents:
        raise BadConfig(f"--kubeconfig {kubeconfig}: there is no such file")
    if not documents:
        found = in_cluster(environment) if context is None else None
        if found is None:
            raise BadConfig(_nowhere(files, context))
    else:
        found = _chosen(documents, context, environment)
    return found if namespace is None else Access(**{**vars(found), "namespace": namespace})


def in_cluster(environment: Mapping[str, str] = os.environ, account: Path | None = None) -> Access | None:
    """The account of the pod that this process runs in; None outside of a pod."""
    folder = ACCOUNT if account is None else account
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").is_file():
        return None
    own = folder / "namespace"
    return Access(
        context="in-cluster",
        namespace=own.read_text(encoding="utf-8").strip() if own.is_file() else "default",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        cluster={"certificate-authority": str(folder / "ca.crt")},
        user={"tokenFile": str(folder / "token")},
    )


def _files(kubeconfig: str | None, environment: Mapping[str, str]) -> list[Path]:
    if kubeconfig is not None:
        return [Path(os.path.expanduser(kubeconfig))]
    if listed := [part for part in environment.get(VARIABLE, "").split(os.pathsep) if part]:
        return [Path(os.path.expanduser(part)) for part in dict.fromkeys(listed)]
    home = environment.get("HOME")
    return [Path(home) / ".kube" / "config"] if home else []


def _nowhere(files: list[Path], context: str | None) -> str:
    tried = ", ".join(map(str, files)) or "nothing"
    wanted = f"no context {context}: " if context else ""
    return (
        f"{wanted}no kubeconfig: {tried} is missing, and this is no pod with a service account\n"
        "  EKS: aws eks update-kubeconfig --name CLUSTER --region REGION; or say --kubeconfig PATH, or set KUBECONFIG"
    )


def _read(file: Path) -> Mapping[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        with file.open(encoding="utf-8") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise BadConfig(f"{file}: not a kubeconfig: larger than {LARGEST // 2**20} MiB")
        data = yaml.safe_load(content)
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    except yaml.YAMLError as error:
        # The parser's own text would quote the file, which holds secrets.
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise BadConfig(f"{file}{where}: not YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadConfig(f"{file}: not a kubeconfig: a mapping is expected")
    return data


def _chosen(
    documents: list[tuple[Path, Mapping[str, Any]]], context: str | None, environment: Mapping[str, str]
) -> Access:
    contexts, clusters, users = (_joined(documents, kind) for kind in ("context", "cluster", "user"))
    current = next((str(data["current-context"]) for _, data in documents if data.get("current-context")), None)
    name = context or current
    files = ", ".join(str(file) for file, _ in documents)
    if name is None:
        if not contexts and (found := in_cluster(environment)) is not None:
            return found
        known = ", ".join(sorted(contexts)) or "none"
        raise BadConfig(f"{files}: no current context\n  say --context; there are {known}")
    if name not in contexts:
        from raytrain_eks.spec.problem import nearest

        guess = nearest(name, contexts)
        hint = f"did you mean {guess}?" if guess else f"there are {', '.join(sorted(contexts)) or 'none'}"
        raise BadConfig(f"{files}: no context {name}\n  {hint}")
    chosen, file = contexts[name]
    cluster, cluster_file = _entry(clusters, chosen.get("cluster"), "cluster", name, file)
    user, user_file = _entry(users, chosen.get("user"), "user", name, file) if chosen.get("user") else ({}, file)
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise BadConfig(f"{cluster_file}: cluster {chosen.get('cluster')} has no `server` that is a URL")
    if "@" in server.split("/")[2]:
        why = "a name or password in `server` would end up in logs; give them as its user"
        raise BadConfig(f"{cluster_file}: cluster {chosen.get('cluster')}: {why}")
    return Access(
        context=name,
        namespace=str(chosen.get("namespace") or "default"),
        server=server,
        cluster=_absolute(cluster, "cluster", cluster_file),
        user=_absolute(user, "user", user_file),
        folder=user_file.parent,
    )


def _joined(documents: list[tuple[Path, Mapping[str, Any]]], kind: str) -> dict[str, tuple[Mapping[str, Any], Path]]:
    found: dict[str, tuple[Mapping[str, Any], Path]] = {}
    for file, data in documents:
        listed = data.get(f"{kind}s") or []
        for each in listed if isinstance(listed, list) else [None]:
            if not isinstance(each, dict) or not isinstance(each.get(kind) or {}, dict):
                raise BadConfig(f"{file}: not a kubeconfig: `{kind}s` is a list of a name and a {kind} each")
            found.setdefault(str(each.get("name")), (each.get(kind) or {}, file))
    return found


def _entry(
    entries: Mapping[str, tuple[Mapping[str, Any], Path]], name: Any, kind: str, context: str, file: Path
) -> tuple[Mapping[str, Any], Path]:
    if str(name) not in entries:
        raise BadConfig(f"{file}: context {context} names the {kind} {name}, and no file has it")
    return entries[str(name)]


def _absolute(values: Mapping[str, Any], kind: str, file: Path) -> dict[str, Any]:
    found = dict(values)
    for key in _PATHS[kind]:
        if not (value := found.get(key)):
            continue
        if not isinstance(value, str) or "\0" in value:
            raise BadConfig(f"{file}: `{key}` must be the name of a file")
        found[key] = str(file.parent / value)
    if kind == "user" and found.get("client-certificate") and not (found.get("client-key") or found.get(_KEY_DATA)):
        raise BadConfig(f"{file}: a user has `client-certificate` without `client-key`")
    return found
