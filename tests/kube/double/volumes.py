"""The volumes of the pod that submits, as folders of this machine: what its init containers put there is really put."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from double.store import Body

if TYPE_CHECKING:
    from double.api import ApiDouble


class Volumes:
    """A `place` for `OnRay`: ConfigMaps and empty folders of the submitter's pod become folders under `folder`, its
    init containers are run, and paths in them become paths of this machine."""

    def __init__(self, api: "ApiDouble", folder: Path):
        self.api = api
        self.folder = folder

    def __call__(self, job: Body, environment: dict[str, Any]) -> dict[str, Any]:
        pod = (job["spec"].get("submitterPodTemplate") or {}).get("spec") or {}
        folders = {each["name"]: self._volume(job, each) for each in pod.get("volumes") or ()}
        paths: dict[str, Path] = {}
        for container in [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]:
            paths |= {each["mountPath"]: folders[each["name"]] for each in container.get("volumeMounts") or ()}
        for container in pod.get("initContainers") or ():
            words = [_here(word, paths) for word in [*container["command"], *(container.get("args") or ())]]
            words[0] = sys.executable if words[0] == "python" else words[0]
            subprocess.run(words, check=True, timeout=300)
        found: dict[str, Any] = json.loads(_here(json.dumps(environment), paths))
        return found

    def _volume(self, job: Body, volume: Body) -> Path:
        meta = job["metadata"]
        place = self.folder / meta["uid"] / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            body = self.api.objects.get("configmaps", volume["configMap"]["name"], meta["namespace"])
            for name, text in (body.get("data") or {}).items():
                (place / name).write_text(text)
            for name, coded in (body.get("binaryData") or {}).items():
                (place / name).write_bytes(base64.b64decode(coded))
        elif "emptyDir" not in volume:
            raise NotImplementedError(f"a submitter with the volume {volume}")
        return place


def _here(text: str, paths: dict[str, Path]) -> str:
    for mount, folder in sorted(paths.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(mount, str(folder))
    return text
