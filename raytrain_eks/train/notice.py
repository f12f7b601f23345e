"""Word that this machine will be taken away: a spot notice of EC2, or a node that Ray drains.

EC2 tells the machine itself, two minutes ahead: the instance metadata has `spot/instance-action` then, and answers 404
before (EC2 User Guide, "Spot Instance interruption notices", which advises to look every 5 s). Ray Train tells every
worker when a node of the group is drained, as KubeRay's autoscaler and termination handlers do it. What to do about it
is the loop's business.
"""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""Another place of the metadata, and AWS_EC2_METADATA_DISABLED=true: none. Both as every AWS tool reads them."""
METADATA = "http://169.254.169.254"
VENDOR = Path("/sys/devices/virtual/dmi/id/sys_vendor")
EVERY = 5.0
"""Seconds between two looks."""
GIVE_UP = 5
"""Looks in a row without an answer after which nobody looks any more: from a pod that the metadata's hop limit keeps
away, none ever comes."""
TIMEOUT = 2.0
"""Seconds for one answer."""


def has_metadata() -> bool:
    """Whether this machine is one of EC2, or was told where metadata is."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(ENDPOINT):
        return True
    try:
        return VENDOR.read_text().strip() == "Amazon EC2"
    except OSError:
        return False


class Metadata:
    """The instance metadata service, version 2: a token first, then questions."""

    def __init__(self) -> None:
        self._url = (os.environ.get(ENDPOINT) or METADATA).rstrip("/")
        # A proxy has other metadata than this machine, if any.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token = ""

    def spot_action(self) -> dict[str, Any] | None:
        """`{"action": "terminate", "time": "2026-01-02T03:04:05Z"}` once this machine will be taken away; None before.
        Raises OSError when there is no answer."""
        for fresh in (not self._token, True):
            if fresh:
                self._token = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
            try:
                text = self._ask("GET", "meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code == 401 and not fresh:
                    continue
                raise
            try:
                found = json.loads(text)
            except ValueError:
                raise OSError(5, "is not JSON", self._url) from None
            return found if isinstance(found, dict) else None
        return None

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(f"{self._url}/latest/{path}", method=method, headers=headers)
        with self._opener.open(request, timeout=TIMEOUT) as answer:
            text: str = answer.read().decode()
            return text


class Notice:
    """Whether this rank has been told that its machine, or one of the group, will be taken away."""

    def __init__(self, *, watch_machine: bool, say: Callable[[str], None], every: float = EVERY):
        """`watch_machine`: also look at the machine's metadata, in a thread; one rank of a machine is enough. `say`
        gets the reason, once."""
        self._say, self._every = say, every
        self.reason: str | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if watch_machine and has_metadata():
            self._thread = threading.Thread(target=self._look, name="spot-notice", daemon=True)
            self._thread.start()

    def __call__(self) -> bool:
        """Costs nothing: asked at every step."""
        if self.reason is None and (nodes := drained_nodes()):
            self._told(f"Ray drains {', '.join(nodes)}")
        return self.reason is not None

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _told(self, reason: str) -> None:
        self.reason = reason
        self._say(reason)

    def _look(self) -> None:
        service, silent = Metadata(), 0
        while silent < GIVE_UP:
            try:
                action = service.spot_action()
                silent = 0
            except OSError:
                action, silent = None, silent + 1
            if action is not None:
                self._told(f"EC2 will {action.get('action', 'take')} this machine at {action.get('time', 'any time')}")
                return
            if self._closing.wait(self._every):
                return


def drained_nodes() -> list[str]:
    """Nodes of this worker group that Ray drains, by id.

    Ray 2.60's own `ray.train.get_preemption_info()` is a barrier over all ranks, too dear for every step; what it
    would answer lies in the process already. A Ray that keeps it elsewhere tells nothing.
    """
    context = sys.modules.get("ray.train.v2._internal.execution.context")
    try:
        info = context.get_train_context().preemption_context.preemption_info if context else None
        return list(info.preempted_node_ids) if info is not None else []
    except (AttributeError, RuntimeError):
        return []
