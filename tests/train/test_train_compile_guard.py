"""The guard on new graphs, with a counter that the test turns."""

import pytest

from raytrain_eks.train.compile_guard import CompileGuard, NewGraph, NewGraphWarning, shown


class Compiler:
    def __init__(self, **options):
        self.made = 0
        self.guard = CompileGuard(lambda: self.made, **options)

    def call(self, length: int, graphs: int = 0, kind: str = "micro_step") -> None:
        with self.guard.watch(kind, (("input_ids", (2, length)), ("labels", (2, length)))):
            self.made += graphs


def test_graphs_of_the_warm_up_are_free():
    compiler = Compiler(warmup=2)
    compiler.call(32, graphs=3)
    compiler.call(48, graphs=2)
    for length in (32, 48) * 3:
        compiler.call(length)
    assert compiler.guard.graphs == {"micro_step": 5}


def test_a_new_shape_is_named_before_it_is_traced():
    compiler = Compiler(warmup=1)
    compiler.call(32, graphs=1)
    with pytest.raises(NewGraph, match=r"call 2 of micro step got a batch of \[2, 48\].*keep batches at \[2, 32\]"):
        compiler.call(48, graphs=1)
    assert compiler.made == 1


def test_a_new_graph_for_an_old_shape_is_counted():
    compiler = Compiler(warmup=1)
    compiler.call(32, graphs=1)
    with pytest.raises(NewGraph, match=r"compiled 2 new graphs for \[2, 32\], a shape that it had before"):
        compiler.call(32, graphs=2)


def test_each_kind_of_call_has_its_own_warm_up():
    compiler = Compiler(warmup=1)
    for _ in range(5):
        compiler.call(32)
    compiler.call(32, graphs=1, kind="evaluation")
    with pytest.raises(NewGraph, match="call 2 of evaluation"):
        compiler.call(32, graphs=1, kind="evaluation")


def test_a_warning_is_given_once_for_a_shape():
    compiler = Compiler(warmup=1, new_graph="warn")
    compiler.call(32, graphs=1)
    with pytest.warns(NewGraphWarning, match=r"\[2, 48\]"):
        compiler.call(48, graphs=1)
    compiler.call(48)


def test_an_error_inside_is_not_covered_up():
    guard = CompileGuard(lambda: 0)
    with pytest.raises(ZeroDivisionError), guard.watch("step"):
        raise ZeroDivisionError


def test_shapes_that_differ_are_named():
    assert shown((("a", (2, 3)), ("b", (2, 3)))) == "[2, 3]"
    assert shown((("a", (2, 3)), ("b", (4,)))) == "a [2, 3], b [4]"
