"""Every object of a cluster in the order of applying, each with its reasons; and what remains to be done by hand."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raytrain_eks.manifests import (
    efa,
    external,
    ground,
    jupyterhub,
    karpenter,
    kuberay,
    managed,
    mpi,
    plugins,
    queues,
    slurm,
    storage,
)
from raytrain_eks.manifests.object import Body, Object, at, children
from raytrain_eks.plan import versions
from raytrain_eks.plan.cluster import ClusterPlan

WAVES = {"ground": 0, "karpenter": 1, "nodegroups": 1, "plugins": 1, "storage": 2, "queues": 3}
WAVES |= {"jupyterhub": 3, "kuberay": 4, "mpi": 4, "slurm": 4}
"""System -> its turn: later ones need what earlier ones make. Argo CD's sync waves are the same numbers."""


@dataclass(frozen=True)
class Bundle:
    """What a cluster file becomes."""

    objects: tuple[Object, ...]
    """In the order of applying."""
    notes: tuple[str, ...] = ()
    """What no object can do, as sentences for the person who applies it."""

    @property
    def bodies(self) -> list[Body]:
        """The objects as plain data."""
        return [each.body for each in self.objects]

    def only(self, words: Iterable[str]) -> "Bundle":
        """The objects whose kind or system is among `words`, whatever the case of their letters."""
        wanted = {word.lower() for word in words}
        kept = [each for each in self.objects if {each.kind.lower(), each.system} & wanted]
        return Bundle(tuple(kept), self.notes)

    def words(self) -> list[str]:
        """What `only` can be asked for in this bundle: systems, then kinds."""
        systems = dict.fromkeys(each.system for each in self.objects)
        return [*systems, *dict.fromkeys(each.kind for each in self.objects)]


def build(plan: ClusterPlan) -> Bundle:
    """The bundle of a plan. Pure: the same plan gives the same bundle."""
    nodes = {"karpenter": karpenter, "managed": managed}.get(plan.cluster.provisioner.kind)
    systems = [ground, *([nodes] if nodes else []), plugins, storage, queues, jupyterhub]
    objects: list[Object] = []
    notes: list[str] = []
    for system in systems:
        objects += system.objects(plan)
        notes += system.notes(plan)
    objects += kuberay.objects(plan)
    for system in (mpi, slurm):
        objects += system.objects(plan)
        notes += system.notes(plan)
    notes += [*efa.notes(plan), *versions.notes(plan.cluster)]
    names = [*external.declared(plan.cluster), *storage.awaited(plan)]
    return Bundle(tuple(external.marked(each, names) for each in objects), tuple(notes))


def explain_object(bundle: Bundle, target: str) -> list[str]:
    """Why an object, or a part of it, is what it is: lines for a person. `target` is `Kind/name` or `Kind/name.path`.

    A part without a reason of its own has those of what it stands in, and those of what stands in it.
    Raises KeyError, with what there is, when nothing is called so.
    """
    found = _find(bundle, target)
    if found is None:
        known = ", ".join(each.key for each in bundle.objects)
        raise KeyError(f"no object `{target}` here; there are {known}")
    each, path = found
    try:
        value = at(each.body, path)
    except KeyError:
        raise KeyError(f"{each.key} has no `{path}`; {_nearest_parts(each.body, path)}") from None
    where = f"{each.key} in {each.namespace}" if each.namespace else each.key
    lines = [f"{where} ({each.system})"]
    if path:
        lines.append(f"{path}: {value}" if not isinstance(value, dict | list) else f"{path}:")
    reasons = [(_shown(name, path), why) for name, why in each.whys.items() if _concerns(name, path)]
    lines += [f"  {name}: {why}" for name, why in reasons]
    return lines if len(lines) > 1 + bool(path) else [*lines, "  as the file says, or fixed by its kind"]


def _find(bundle: Bundle, target: str) -> tuple[Object, str] | None:
    """The object, and the path inside it. The longest name wins, since names may hold dots."""
    kind, _, rest = target.partition("/")
    named = [each for each in bundle.objects if each.kind.lower() == kind.lower()]
    for each in sorted(named, key=lambda each: -len(each.name)):
        if rest == each.name or rest.startswith(f"{each.name}."):
            return each, rest[len(each.name) + 1 :]
    return None


def _shown(name: str, path: str) -> str:
    """A reason's place as seen from the part that is asked for."""
    if path and name.startswith(f"{path}."):
        return name[len(path) + 1 :]
    return "this" if path and name == path else name or "the object"


def _concerns(why: str, path: str) -> bool:
    return not path or not why or why == path or path.startswith(f"{why}.") or why.startswith(f"{path}.")


def _nearest_parts(body: Body, path: str) -> str:
    """What stands at the deepest part of `path` that exists."""
    deepest: object = body
    while path and "." in path:
        path = path.rpartition(".")[0]
        try:
            deepest = at(body, path)
            break
        except KeyError:
            continue
    return "there are " + ", ".join(step for step, _ in children(deepest))


def unfounded(bundle: Bundle) -> Iterator[str]:
    """Reasons that belong to no part of their object; a correct bundle has none."""
    for each in bundle.objects:
        for path in each.whys:
            try:
                at(each.body, path)
            except KeyError:
                yield f"{each.key} {path}"
