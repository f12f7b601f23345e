"""Text that must reach a program as it is, through Kubernetes' `$(NAME)` expansion and through shells.

The kubelet expands `$(NAME)` and `$$` in a container's command, args and env values
(k8s.io/kubernetes third_party/forked/golang/expansion/expand.go): `$$` becomes `$`, `$(NAME)` a variable's value when
there is one, and a `$` before a letter outside of ASCII garbles that letter. Doubling the `$` prevents all three.
"""

import re

_MEANT = re.compile(r"\$(?=[$(]|[^\x00-\x7f])")


def kept(text: str) -> str:
    """`text` so that the kubelet gives it to the container unchanged: `kept("$(date) $HOME") == "$$(date) $HOME"`."""
    return _MEANT.sub("$$", text)
