"""A watch over compilations: after the warm-up a new graph is an error that names the shape behind it.

On Trainium a graph takes the compiler minutes to an hour, so a run that compiles in the middle of training is as good
as stopped, and nothing tells: the step is just slow. Two causes are told apart. A batch of a new shape is refused
before anything is traced, so that nobody pays for its compilation. A new graph for shapes that were seen before (a
value that became part of the graph, such as a number that turned into exactly 0 or 1) is found by counting afterwards.

The guard counts with whatever it is given: compilations of torch_xla, graphs of torch.compile.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class NewGraph(RuntimeError):
    """A graph was about to be compiled, or was, after the warm-up."""


class NewGraphWarning(UserWarning):
    """The same, where the job says `new_graph: warn`."""


@dataclass
class Seen:
    """What one kind of call (a micro-step, a step, an evaluation) has done so far."""

    calls: int = 0
    graphs: int = 0
    shapes: set[Shapes] = field(default_factory=set)


class CompileGuard:
    """Counts the compilations of each kind of call."""

    def __init__(self, count: Callable[[], int], *, warmup: int = 3, new_graph: Literal["error", "warn"] = "error"):
        """`count` tells how many graphs this process has compiled; the first `warmup` calls of a kind may add some."""
        self.count, self.warmup, self.new_graph = count, warmup, new_graph
        self.seen: dict[str, Seen] = {}

    @contextmanager
    def watch(self, kind: str, shapes: Shapes = ()) -> Iterator[None]:
        """Watch one call. Raises NewGraph (or warns) when its shapes or its graphs are new after the warm-up."""
        seen = self.seen.setdefault(kind, Seen())
        call = f"call {seen.calls + 1} of {kind.replace('_', ' ')}"
        warm, known = seen.calls >= self.warmup, shapes in seen.shapes
        if warm and not known:
            had = " and ".join(sorted(map(shown, seen.shapes)))
            self._found(f"{call} got a batch of {shown(shapes)}, which needs a new graph", f"keep batches at {had}")
        before = self.count()
        yield
        made = self.count() - before
        seen.calls += 1
        seen.graphs += made
        seen.shapes.add(shapes)
        if made and warm and known:
            of = f" for {shown(shapes)}, a shape that it had before" if shapes else ""
            fix = "look for a number or a branch that depends on values"
            self._found(f"{call} compiled {made} new graph{'s' if made > 1 else ''}{of}", fix)

    @property
    def graphs(self) -> dict[str, int]:
        """Graphs compiled so far by kind of call."""
        return {kind: seen.graphs for kind, seen in self.seen.items()}

    def _found(self, what: str, fix: str) -> None:
        rule = f"after a warm-up of {self.warmup} calls every call must run a graph that is there"
        text = f"{what}: {rule}; {fix}, or set `engine.new_graph: warn`"
        if self.new_graph == "error":
            raise NewGraph(text)
        warnings.warn(text, NewGraphWarning, stacklevel=3)


def shapes_of(batch: Mapping[str, Tensor]) -> Shapes:
    """The shapes of a batch's tensors, by name."""
    return tuple(sorted((name, tuple(tensor.shape)) for name, tensor in batch.items()))


def shown(shapes: Shapes) -> str:
    """Shapes for a message: `[2, 32]` when all tensors have it, else each with its name."""
    if len({shape for _, shape in shapes}) == 1:
        return str(list(shapes[0][1]))
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes)
