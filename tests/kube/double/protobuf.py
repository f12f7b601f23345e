"""Reviews of oneself as kubectl sends them: in Kubernetes' protobuf envelope (apimachinery/runtime/generated.proto,
api/authorization/v1/generated.proto). Everything else arrives as JSON."""

from collections.abc import Iterator

from double.store import Body

MAGIC = b"k8s\x00"
_RAW = 2
"""The envelope's field with the object."""
_SPEC = 2
"""The object's field with its spec."""
_RESOURCE = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
_PATH = {1: "path", 2: "verb"}


def review(sent: bytes) -> Body:
    """The spec of a SelfSubjectAccessReview, SelfSubjectRulesReview or SelfSubjectReview."""
    raw = dict(_fields(sent[len(MAGIC) :])).get(_RAW, b"")
    found: Body = {}
    for number, value in _fields(dict(_fields(raw)).get(_SPEC, b"")):
        # A SelfSubjectRulesReview's only field is its namespace, which is no message.
        if value.isascii() and value.decode().isprintable():
            found["namespace"] = value.decode()
        elif number == 1:
            found["resourceAttributes"] = _texts(value, _RESOURCE)
        else:
            found["nonResourceAttributes"] = _texts(value, _PATH)
    return {"spec": found}


def _texts(message: bytes, names: dict[int, str]) -> Body:
    return {names[number]: value.decode() for number, value in _fields(message) if number in names}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of every field that has a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 != 2:
            raise ValueError(f"field {key >> 3} is of wire type {key & 7}")
        length, at = _varint(message, at)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
