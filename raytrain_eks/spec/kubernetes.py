"""The words of Kubernetes that appear in a cluster file, each a string with the rule of its kind.

Sources: k8s.io/apimachinery/pkg/util/validation (labels, DNS names), k8s.io/api/core/v1 (taints, tolerations).
"""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
DATA_KEY = re.compile(r"(?!\.\.)(?!\.\Z)[-._a-zA-Z0-9]{1,253}\Z")
SUBNET = re.compile(r"subnet-[0-9a-f]{8,40}\Z")
SECURITY_GROUP = re.compile(r"sg-[0-9a-f]{8,40}\Z")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def is_label_key(text: str) -> bool:
    """Whether `text` is a qualified name: an optional DNS subdomain and `/`, then at most 63 letters, digits, -_."""
    prefix, slash, name = text.rpartition("/")
    return bool(_QUALIFIED.match(name)) and (not slash or bool(SUBDOMAIN.match(prefix)))


def is_label_value(text: str) -> bool:
    """Whether `text` may be a label's value: empty, or at most 63 letters, digits, -_. with alphanumeric ends."""
    return bool(_LABEL_VALUE.match(text))


def worded(test: Callable[[str], object], rule: str) -> Any:
    """A validator that lets a string through when `test` holds and otherwise tells `rule`."""

    def check(value: object) -> object:
        if isinstance(value, bool | int | float):
            # Quotes are no help where the text would be refused in its turn.
            legal = test(str(value).lower() if isinstance(value, bool) else str(value))
            raise ValueError(f"must be text; put quotes around it: {rule}" if legal else rule)
        if isinstance(value, str) and not test(value):
            raise ValueError(rule)
        return value

    pattern = getattr(test, "__self__", None)
    if not isinstance(pattern, re.Pattern):
        return BeforeValidator(check)
    # What an editor may let through: the same expression, in JSON Schema's dialect.
    shown = "^(?:" + pattern.pattern.replace(r"\Z", "$") + ")$"
    return BeforeValidator(check, json_schema_input_type=Annotated[str, Field(pattern=shown)])


def refused(test: Callable[[str], object], rule: str) -> Any:
    """A validator behind others, which tells `rule` about a text for which `test` holds."""

    def check(value: str) -> str:
        if test(value):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


Label = Annotated[str, worded(is_label_value, "a label's value has at most 63 letters, digits, dashes, dots or _")]
LabelKey = Annotated[str, worded(is_label_key, "a label's key is `name` or `domain/name`, the name at most 63 long")]
DataKey = Annotated[str, worded(DATA_KEY.match, "a Secret's key has letters, digits, dashes, dots and _, at most 253")]
ObjectName = Annotated[str, worded(SUBDOMAIN.match, "must be lower-case letters, digits, dashes and dots, at most 253")]
LabelName = Annotated[str, worded(DNS_LABEL.match, "must be lower-case letters, digits and dashes, at most 63")]
Variable = Annotated[str, worded(_VARIABLE.match, "a variable's name has letters, digits and _, no digit first")]


class SecretKey(Model):
    """One key of a Secret that exists in the cluster's namespace."""

    name: ObjectName
    """The Secret."""

    key: DataKey
    """The key in it."""


class Taint(Model):
    """A mark on a node that keeps pods away which do not tolerate it."""

    key: LabelKey
    """The taint's key."""

    value: Label = ""
    """The taint's value."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What happens to a pod that does not tolerate it."""


class Toleration(Model):
    """A taint that pods may ignore, besides those of their own group's nodes, which they always tolerate."""

    key: LabelKey | None = None
    """The taint's key. None with `operator: Exists`: every taint."""

    operator: Literal["Exists", "Equal"] = "Exists"
    """Whether the value matters."""

    value: Label | None = None
    """The taint's value, for `Equal`."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. None: any."""

    @rule
    def value_or_exists(self) -> Iterator[Problem]:
        if self.operator == "Exists" and self.value is not None:
            yield Problem(path="value", rule="`operator: Exists` takes no value", fix="write `operator: Equal`")
        if self.operator == "Equal" and self.key is None:
            yield Problem(path="", rule="`operator: Equal` needs a key")
