"""What exporters write of sizes, in the smallest graphs that hold it: compiled once, right at every size."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.any_size import check, numbers, random


def whole(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def length_of(x: pt.Node, axis: int) -> pt.Node:
    """One size, as a vector."""
    return pt.op("Shape", x, start=axis, end=axis + 1)


def test_the_last_of_as_many_rows_as_there_are_new_ones() -> None:
    """T5 takes the biases of its last positions so: from minus the length on."""
    x, new = pt.variable("x", "float32", ("N", "S", 8)), pt.variable("new", "float32", ("N", "S", 8))
    rows = pt.op("Slice", x, pt.op("Neg", length_of(new, 1)), whole(2**62), whole(1))
    check(pt.Graph([pt.op("Add", rows, new)]), [{"x": numbers(n, s, 8), "new": numbers(n, s, 8)} for n, s in [(1, 1), (2, 7)]])


def test_the_larger_of_two_sizes() -> None:
    x = pt.variable("x", "float32", ("N", "S", 4))
    longest = pt.op("Max", length_of(x, 1), pt.op("Min", length_of(x, 1), whole(1)))
    shape = pt.op("Concat", length_of(x, 0), pt.op("Mul", longest, whole(4)), axis=0)
    check(pt.Graph([pt.op("Relu", pt.op("Reshape", x, shape))]), [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 7)]])


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_rows_scattered_over_a_graph_of_any_size(reduction: str) -> None:
    """A layer of a graph network: each edge adds what its source holds to its target."""
    x, edges = pt.variable("x", "float32", ("nodes", 8)), pt.variable("edges", "int64", ("edges", 2))
    sources, targets = (pt.op("Gather", edges, whole(i), axis=1) for i in (0, 1))
    sent = pt.op("Gather", x, pt.op("Squeeze", sources, whole(1)))
    by_row = pt.op("ScatterND", x, targets, sent, reduction=reduction)
    spread = pt.op("Expand", targets, pt.op("Shape", sent))
    by_number = pt.op("ScatterElements", x, spread, sent, axis=0, reduction=reduction)
    feeds = []
    for nodes, count in [(1, 1), (5, 3), (40, 17)]:
        pairs = np.stack([random.integers(0, nodes, count), random.permutation(nodes)[:count] - nodes], axis=1)
        feeds.append({"x": numbers(nodes, 8), "edges": pairs})
    check(pt.Graph([by_row, by_number], [x, edges]), feeds)


def test_a_place_to_scatter_to_that_is_outside_is_an_error_at_any_size() -> None:
    x, places = pt.variable("x", "float32", ("N", 4)), pt.variable("places", "int64", ("K", 1))
    model = pt.compile(pt.Graph([pt.op("ScatterND", x, places, pt.variable("new", "float32", ("K", 4)))]), "cpu")
    with pytest.raises(pt.PartitaError, match="an index is outside"):
        model(numbers(5, 4), np.array([[0], [5]]), numbers(2, 4))


def test_functions_that_few_networks_use() -> None:
    x, y = pt.variable("x", "float32", ("N", 4)), pt.variable("y", "uint8", ("N", 4))
    inside = pt.op("Tanh", x)
    values = [pt.op(name, inside) for name in "Acos Asin Asinh Atan Atanh Cosh Sinh".split()]
    outputs = [*values, pt.op("Acosh", pt.op("Exp", pt.op("Abs", x))), pt.op("BitShift", y, y, direction="LEFT")]
    feeds = [{"x": numbers(n, 4), "y": random.integers(0, 8, (n, 4)).astype(np.uint8)} for n in (1, 17)]
    check(pt.Graph(outputs, [x, y]), feeds, tolerance=1e-4)


def test_outputs_that_depend_on_sizes_alone() -> None:
    x = pt.variable("x", "float32", ("N", "S", 4))
    shape = pt.op("Shape", x)
    halves = pt.op("Split", length_of(x, 1), axis=0, num_outputs=1)
    ones = pt.op("ConstantOfShape", shape, value=np.ones(1, np.float32))
    outputs = [shape, pt.op("Size", x), halves, pt.op("Shape", x, start=2), ones, pt.op("Relu", x), shape]
    model = check(pt.Graph(outputs, [x]), [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 5)]])
    first = model(numbers(2, 5, 4))[0]
    first[:] = 0
    assert model(numbers(2, 5, 4))[0].tolist() == [2, 5, 4], "what a caller got is the caller's"


@pytest.mark.parametrize("is_constant", [True, False])
def test_tokens_repeated_for_each_of_a_batch(is_constant: bool) -> None:
    """What repeat of torch becomes; expand becomes Expand."""
    x = pt.variable("x", "float32", ("N", "S", 8))
    token = pt.constant(numbers(1, 2, 8)) if is_constant else pt.variable("token", "float32", (1, "T", 8))
    tokens = pt.op("Tile", token, pt.op("Concat", length_of(x, 0), whole(3, 1), axis=0))
    feeds = [{"x": numbers(n, s, 8), **({} if is_constant else {"token": numbers(1, s + 1, 8)})} for n, s in [(1, 1), (3, 5)]]
    check(pt.Graph([pt.op("Concat", tokens, x, axis=1)]), feeds)


def test_zeros_that_are_added_to_channels_are_no_warning() -> None:
    x = pt.variable("x", "float32", (1, 2, "L"))
    bias = pt.constant(np.array([[0], [1]], np.float32))
    graph = pt.Graph([pt.op("Relu", pt.op("Add", x, bias))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(graph, [{"x": numbers(1, 2, 5)}])


def test_a_slice_of_sizes_that_names_steps_and_no_dimensions() -> None:
    x = pt.variable("x", "float32", ("N", 4, "S", 4))
    every_other = pt.op("Slice", pt.op("Shape", x), whole(0), whole(4), None, whole(2))
    shape = pt.op("Concat", every_other, whole(16), axis=0)
    check(pt.Graph([pt.op("Relu", pt.op("Reshape", x, shape))]), [{"x": numbers(n, 4, s, 4)} for n, s in [(1, 1), (2, 5)]])


def test_a_product_of_sizes_over_no_dimension() -> None:
    x = pt.variable("x", "float32", ("N", "S", 4))
    sizes = pt.op("ReduceProd", pt.op("Shape", x), None, noop_with_empty_axes=1)
    check(pt.Graph([pt.op("Relu", pt.op("Expand", x, sizes))]), [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 5)]])


def test_a_product_of_sizes_over_one_of_two_dimensions() -> None:
    """It is not followed: each size is compiled by itself."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    sizes = pt.op("ReduceProd", pt.op("Reshape", pt.op("Shape", x, end=2), whole(1, 2)), whole(0), keepdims=0)
    model = pt.compile(pt.Graph([pt.op("Relu", pt.op("Reshape", x, pt.op("Concat", sizes, whole(4), axis=0)))]), "cpu")
    assert model(numbers(2, 5, 4))[0].shape == (2, 5, 4)


def rolled(x: pt.Node, by: int, axis: int) -> pt.Node:
    """Positions moved round, as torch's newer exporter writes it."""
    length = length_of(x, axis)
    start = pt.op("Mod", whole(by), length)
    parts = [pt.op("Slice", x, first, last, whole(axis)) for first, last in ((start, length), (whole(0), start))]
    return pt.op("Concat", *parts, axis=axis)


def test_positions_moved_round() -> None:
    """As Swin's windows are; where there are no more positions than they move by, a size is compiled by itself."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    graph = pt.Graph([rolled(rolled(pt.op("Relu", x), 2, 1), -1, 2)], [x])
    model = check(graph, [{"x": numbers(n, s, 4)} for n, s in [(1, 3), (2, 5)]])
    for few in (1, 2):
        given = numbers(1, few, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(model(given)[0], np.roll(np.maximum(given, 0), (-2, 1), (1, 2)))


def test_known_positions_moved_round_twice() -> None:
    """The sizes behind the first move follow from a remainder, which ONNX's inference does not work out."""
    x = pt.variable("x", "float32", (1, 6, 5))
    given = numbers(1, 6, 5)
    (result,) = pt.compile(pt.Graph([rolled(rolled(pt.op("Relu", x), 2, 1), -1, 2)], [x]), "cpu")(given)
    np.testing.assert_array_equal(result, np.roll(np.maximum(given, 0), (-2, 1), (1, 2)))


@pytest.mark.parametrize("step", [-1, 2])
def test_positions_in_steps_and_backward(step: int) -> None:
    """XLNet counts its distances from as many to minus as many."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    length = pt.op("Squeeze", length_of(x, 1), whole(0))
    ends = [length, pt.op("Neg", length)]
    positions = pt.op("Range", *ends[:: -1 if step > 0 else 1], pt.constant(np.array(step)))
    waves = pt.op("Sin", pt.op("Cast", positions, to="float32"))
    graph = pt.Graph([pt.op("Add", pt.op("ReduceMean", x, whole(1)), pt.op("Unsqueeze", waves, whole(0, 2)))])
    check(graph, [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 5), (1, 8)]])


def test_lengths_behind_filters_that_a_mask_is_made_for() -> None:
    """Wav2Vec2 works out how many positions are left, a division after another; of a few samples none would be."""
    x = pt.variable("x", "float32", ("N", 1, "L"))
    first = pt.op("Conv", x, pt.constant(numbers(4, 1, 10)), strides=[5])
    second = pt.op("Conv", first, pt.constant(numbers(4, 4, 3)), strides=[2])
    one, left = pt.constant(np.array(1)), pt.op("Squeeze", length_of(x, 2), whole(0))
    for taps, stride in ((10, 5), (3, 2)):
        room = pt.op("Sub", left, pt.constant(np.array(taps)))
        left = pt.op("Add", pt.op("Div", room, pt.constant(np.array(stride))), one)
    seen = pt.op("Cast", pt.op("Range", pt.constant(np.array(0)), left, one), to="float32")
    feeds = [{"x": numbers(n, 1, length)} for n, length in [(1, 20), (2, 57), (1, 33)]]
    check(pt.Graph([pt.op("Mul", second, seen)]), feeds, 1e-4)
