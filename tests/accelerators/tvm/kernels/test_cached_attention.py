"""Attention to a cache: what its body says in ONNX's ops, at every length; and only what says so is taken for it."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.errors import RunError
from partita.accelerators.interface.cached_attention import cached_attention, says_what_it_is
from partita.graph.interpret import interpret
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter
from tests.accelerators.tvm.running import compiled, schedules
from tests.close import assert_close
from tests.drawn import some

pytest.importorskip("tvm")


@attrs.frozen
class Sizes:
    """The sizes of one attention."""

    batch: int
    groups: int
    each: int
    """Heads of queries for each group."""
    rows: int
    room: int
    depth: int

    @property
    def query(self) -> tuple[int, ...]:
        return self.batch, self.groups * self.each, self.rows, self.depth

    def cache(self, positions: int) -> tuple[int, ...]:
        return self.batch, self.groups, positions, self.depth


def attention(sizes: Sizes, scale: float = 0.3, window: int = 0) -> pt.Graph:
    shapes = sizes.query, sizes.cache(sizes.room), sizes.cache(sizes.room), sizes.cache(sizes.rows), sizes.cache(sizes.rows)
    names = "query", "keys", "values", "new_keys", "new_values"
    inputs = [pt.variable(name, "float32", shape) for name, shape in zip(names, shapes, strict=True)]
    inputs.append(pt.variable("length", "int64", (1,)))
    query, keys, values, new_keys, new_values, length = (node[0] for node in inputs)
    call = cached_attention(
        query, (keys, values), (new_keys, new_values), length, sizes.query, sizes.cache(sizes.room), scale, "attention", window
    )
    return pt.apply_pass(pt.Graph([call], inputs, name="attention", opsets={"": 21}), "InferShape")


def arrays(sizes: Sizes, length: int) -> list[np.ndarray]:
    """Numbers, and what is none where nothing counts."""
    random = np.random.default_rng(0)
    shapes = sizes.query, sizes.cache(sizes.room), sizes.cache(sizes.room), sizes.cache(sizes.rows), sizes.cache(sizes.rows)
    numbers = [random.standard_normal(shape, np.float32) for shape in shapes]
    return [*numbers, np.array([length])]


most = {"batch": 2, "groups": 3, "each": 3, "rows": 6, "room": 40, "depth": 40}


@some
@given(
    st.builds(Sizes, **{name: st.integers(1, size) for name, size in most.items()}),
    st.sampled_from([1.0, 0.3, 0.0]),
    st.sampled_from([0, 1, 5, 19]),
)
def test_every_length_gives_what_the_body_says(sizes: Sizes, scale: float, window: int) -> None:
    graph = attention(sizes, scale, window)
    model = compiled(graph)
    assert schedules(model) == ["cached attention"]
    for length in {0, 1, sizes.room // 2, sizes.room}:
        given_arrays = arrays(sizes, length)
        (wanted,) = interpret(graph, given_arrays)
        (result,) = model.run(given_arrays)
        assert_close(result, wanted, atol=2e-5)


@pytest.mark.parametrize(("window", "oldest"), [(0, 0), (4, 4)])
def test_positions_that_do_not_count_are_not_read(window: int, oldest: int) -> None:
    sizes = Sizes(1, 2, 2, 3, 20, 16)
    model, given_arrays = compiled(attention(sizes, window=window)), arrays(sizes, 7)
    (clean,) = model.run(given_arrays)
    for buffer in given_arrays[1:3]:
        buffer[:, :, 7:] = np.nan
        buffer[:, :, :oldest] = np.nan
    (result,) = model.run(given_arrays)
    np.testing.assert_array_equal(result, clean)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (-1, "the number of cached positions is below zero"),
        (21, "more positions are said to be cached than there is room for, 20"),
    ],
)
def test_a_length_outside_of_the_buffers_is_an_error(length: int, message: str) -> None:
    sizes = Sizes(1, 2, 1, 1, 20, 16)
    with pytest.raises(RunError, match=message):
        compiled(attention(sizes)).run(arrays(sizes, length))


def _with_another_body(graph: pt.Graph) -> Node:
    """The call, its body with another op in it."""
    call = graph["attention"]
    assert call.subgraph is not None
    rewriter = Rewriter(call.subgraph)
    for node in call.subgraph.nodes:
        rewriter.keep(node, rewriter.rebuilt(node, op="LogSoftmax") if node.op == "Softmax" else rewriter.rebuilt(node))
    return call.evolve(subgraph=rewriter.finish())


def test_a_function_of_that_name_and_another_body_is_what_its_body_says() -> None:
    sizes = Sizes(1, 2, 1, 1, 8, 16)
    graph = attention(sizes)
    assert says_what_it_is(graph["attention"])
    other = _with_another_body(graph)
    assert not says_what_it_is(other)
    wrong = graph.evolve(outputs=[other], nodes=())
    model = pt.compile(wrong, "cpu")
    given_arrays = arrays(sizes, 5)
    assert_close(model(*given_arrays)[0], interpret(wrong, given_arrays)[0], atol=1e-4)
    assert "cached attention" not in [kernel.schedule for kernel in model.kernels()]


def test_other_devices_run_the_body() -> None:
    sizes = Sizes(1, 2, 2, 2, 8, 16)
    graph, given_arrays = attention(sizes), arrays(sizes, 5)
    (wanted,) = interpret(graph, given_arrays)
    assert_close(pt.compile(graph, "reference")(*given_arrays)[0], wanted)
