"""Rules of a RayCronJob: M1 (36 characters), K1-K3, and those of the job inside.

K3 is `cron.ParseStandard` of robfig/cron v3: five fields of lists, ranges and steps, `?` as `*`, names of months and
weekdays, weekdays 0 to 6; or a descriptor such as @daily or @every 1h30m.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.manifests.names import RAY_CRON_JOB
from raytrain_eks.manifests.rules import cluster, job
from raytrain_eks.manifests.rules.breach import Breach, part, section, text
from raytrain_eks.manifests.rules.operator import Operator

_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6}
_MONTHS |= {"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
FIELDS: tuple[tuple[str, int, int, Mapping[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 6, _DAYS),
)
DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every \+?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+\Z")
_PART = re.compile(r"(?:(\*|\?)|([A-Za-z0-9]+)(?:-([A-Za-z0-9]+))?)(?:/(\d+))?\Z")


def of_object(body: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    """Rules of a RayCronJob object."""
    yield from cluster.name(body, RAY_CRON_JOB, "RayCronJob")
    spec = section(body, "spec")
    if operator.before((1, 6, 0)):
        yield Breach(rule="V1", at=("kind",), message=f"RayCronJob came with KubeRay 1.6.0, this is {operator.version}")
    elif not operator.enabled("RayCronJob"):
        yield Breach(rule="K1", at=("kind",), message="needs the operator's feature gate RayCronJob, which is off")
    schedule = text(spec, "schedule")
    if "TZ" in schedule:
        message = "TZ and CRON_TZ are not taken here; the field timeZone is for that"
        yield Breach(rule="K2", at=("spec", "schedule"), message=message)
    elif (wrong := schedule_error(schedule)) is not None:
        yield Breach(rule="K3", at=("spec", "schedule"), message=wrong)
    zone = part(spec, "timeZone")
    if zone is not None and not (isinstance(zone, str) and known_zone(zone)):
        yield Breach(rule="K4", at=("spec", "timeZone"), message="must be an IANA time zone, such as Europe/Madrid")
    annotations: Mapping[str, Any] = {}
    yield from job.of_spec(section(spec, "jobTemplate"), ("spec", "jobTemplate"), operator, annotations)


def schedule_error(schedule: str) -> str | None:
    """Why the operator would not take a schedule; None when it would."""
    if schedule.startswith("@"):
        if schedule in DESCRIPTORS or _EVERY.match(schedule):
            return None
        return f"{schedule} is not one of {', '.join(DESCRIPTORS)} and @every <duration>"
    words = schedule.split()
    if len(words) != len(FIELDS):
        return f"needs five fields (minute hour day month weekday), has {len(words)}"
    for word, (name, low, high, names) in zip(words, FIELDS, strict=True):
        for each in word.split(","):
            if (wrong := _field_error(each, low, high, names)) is not None:
                return f"{name} `{word}`: {wrong}"
    return None


def _field_error(word: str, low: int, high: int, names: Mapping[str, int]) -> str | None:
    match = _PART.match(word)
    if not match:
        return "a number, a range such as 1-5, or either with a step such as */15"
    every, first, last, step = match.groups()
    if step is not None and int(step) == 0:
        return "the step must not be 0"
    if every:
        return None
    ends = [names.get(end.lower(), int(end) if end.isdigit() else -1) for end in (first, last) if end is not None]
    if any(not low <= end <= high for end in ends):
        return f"must lie between {low} and {high}"
    return "the range ends before it begins" if len(ends) == 2 and ends[0] > ends[1] else None


def known_zone(name: str) -> bool:
    """Whether a time zone exists; where this machine has no list of them, whether the name has the form of one."""
    from zoneinfo import available_timezones

    zones = available_timezones()
    return name in zones if zones else re.match(r"[A-Z][A-Za-z_]+(/[A-Z][A-Za-z0-9_+-]+){0,2}\Z", name) is not None
