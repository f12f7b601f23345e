"""Which environment variables hold secrets, by their names: their values must not stand where many can read them."""

import re

_SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|(API|ACCESS|PRIVATE|SECRET)_?KEY|CREDENTIALS?)(_|$)")
_PUBLIC = re.compile(r"(_FILE|_PATH|_DIR|_URL|_URI|_NAME|_ID|_MODE|_ENABLED)$")
SHORTEST = 8
"""Letters: `0` or `true` beside a name such as ..._TOKEN is a switch."""


def reveals(name: str, value: str) -> bool:
    """Whether a variable with this literal value gives a secret away: HF_TOKEN does, HF_TOKEN_PATH does not."""
    upper = name.upper()
    return bool(_SECRET.search(upper)) and not _PUBLIC.search(upper) and len(value) >= SHORTEST
