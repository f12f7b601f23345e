"""Credentials of AWS and of Kubernetes as far as files and the environment show them.

Nothing is contacted and no value is read out: only which place they would come from, whether files that hold them are
closed to others, and whether the program that a kubeconfig calls is there.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def examine(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Iterator[Diagnosis]:
    """Both."""
    home = home or Path(os.path.expanduser("~"))
    yield from aws(environment, home)
    yield from kubernetes(environment, home)


def aws(environment: Mapping[str, str], home: Path) -> Iterator[Diagnosis]:
    """In the order in which AWS's own libraries look: environment, web identity, files, container."""
    id = "machine.aws"
    files = [Path(os.path.expanduser(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials"))]
    files.append(Path(os.path.expanduser(environment.get("AWS_CONFIG_FILE") or home / ".aws/config")))
    profile = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    if environment.get("AWS_ACCESS_KEY_ID") and not profile:
        if not environment.get("AWS_SECRET_ACCESS_KEY"):
            why = "AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY"
            yield red(id, "environment", why, "set both, or neither")
        else:
            yield green(id, "environment", "AWS credentials: AWS_ACCESS_KEY_ID")
    elif (token := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")) and environment.get("AWS_ROLE_ARN"):
        yield _readable(id, token, f"IRSA, role {environment['AWS_ROLE_ARN']}")
    elif found := [path for path in files if _names(path, profile)]:
        yield green(id, str(found[0]), f"AWS credentials: profile {profile or 'default'}")
    elif environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
        yield _readable(id, token, "EKS Pod Identity") if token else green(id, "environment", "container credentials")
    elif profile:
        yield red(id, "AWS_PROFILE", f"no file has the profile {profile}", "aws configure list-profiles")
    else:
        why = "no AWS credentials were found in environment or files; on EC2 the instance's role may still be there"
        yield yellow(id, "environment", why, "aws configure sso; only s3:// storage and EKS need them")
    yield from (_open_to_others(id, path) for path in files[:1] if _others(path))


def _readable(id: str, path: str, kind: str) -> Diagnosis:
    if os.access(path, os.R_OK):
        return green(id, path, f"AWS credentials: {kind}")
    return red(id, path, f"{kind}: the token file cannot be read", "is the service account's token mounted?")


def _names(path: Path, profile: str | None) -> bool:
    wanted = profile or "default"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() in (f"[{wanted}]", f"[profile {wanted}]") for line in lines)


def _others(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _open_to_others(id: str, path: Path) -> Diagnosis:
    return yellow(id, str(path), "other users of this machine may read it", f"chmod 600 {path}")


def kubernetes(environment: Mapping[str, str], home: Path) -> Iterator[Diagnosis]:
    """The kubeconfig and its current context."""
    id = "machine.kubeconfig"
    named = [Path(os.path.expanduser(part)) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = named or [home / ".kube" / "config"]
    there = [path for path in paths if path.is_file()]
    if not there:
        if IN_CLUSTER.exists():
            yield green(id, str(IN_CLUSTER), "no kubeconfig, and this is a pod with a service account")
        elif named:
            why = "KUBECONFIG names no file that exists"
            yield red(id, os.pathsep.join(map(str, named)), why, "unset it, or write the file's right path")
        else:
            fix = "aws eks update-kubeconfig --name CLUSTER; only `--on eks`, `apply` and `delete` need it"
            yield yellow(id, str(paths[0]), "there is no kubeconfig", fix)
        return
    yield _context(id, there)
    yield from (_open_to_others(id, path) for path in there if _others(path))


def _context(id: str, paths: list[Path]) -> Diagnosis:
    """The current context of the merged files: the first that says a thing decides (kubectl's rule)."""
    merged: dict[str, Any] = {"current-context": "", "contexts": [], "users": []}
    for path in paths:
        try:
            data = _yaml(path)
        except (OSError, ValueError) as error:
            return red(id, str(path), f"is no kubeconfig: {error}", "kubectl config view shows what it reads")
        merged["current-context"] = merged["current-context"] or data.get("current-context") or ""
        for key in ("contexts", "users"):
            merged[key] += [each for each in data.get(key) or [] if isinstance(each, dict)]
    where, current = os.pathsep.join(map(str, paths)), merged["current-context"]
    context = next((each for each in merged["contexts"] if each.get("name") == current), None)
    if context is None:
        why = f"its current context {current!r} does not exist" if current else "has no current context"
        return red(id, where, why, "kubectl config use-context NAME; `kubectl config get-contexts` shows them")
    user = (context.get("context") or {}).get("user")
    about = next((each.get("user") or {} for each in merged["users"] if each.get("name") == user), {})
    program = (about.get("exec") or {}).get("command")
    if program and shutil.which(program) is None:
        return red(id, where, f"context {current} calls `{program}`, which is not on the PATH", f"install {program}")
    return green(id, where, f"context {current}" + (f", by way of `{program}`" if program else ""))


def _yaml(path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML, YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8", errors="replace"))
    except YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data
