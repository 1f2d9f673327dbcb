"""Kernels for any size: compiled once, right at every size, and refused with a reason where there are none."""

from __future__ import annotations

import contextlib
import math
import operator
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from accelerators.building.specialized import SpecializedSubgraph
from accelerators.errors import CompileError
from accelerators.tvm.kernels.shared.nest import is_shared_out
from accelerators.tvm.machine.machine import host_machine
from accelerators.tvm.machine.work import STEPS
from accelerators.tvm.sizes.extent import Extent, is_multiple, known_least, symbol, value_of
from accelerators.tvm.sizes.sizing import sized
from accelerators.tvm.sizes.views import SizedView
from benchmarks.models.any_size import Sizes, vit
from tests.fuzz.guard.pages import guarded_copy

BERT = Path(__file__).parents[2] / "data" / "torch" / "bert_dynamic.onnx"
EDGES = (1, 2, 3, 5, 13, 14, 15, 16, 17, 28, 29, 31, 32, 33, 48, 57)
"""Sizes about those of tiles and vectors, whatever the processor's."""

random = np.random.default_rng(18)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return random.standard_normal(shape).astype(np.float32)


def specialized(model: Any) -> SpecializedSubgraph:
    (unit,) = model.units
    assert isinstance(unit.compiled, SpecializedSubgraph)
    return unit.compiled


def check(graph: pt.Graph, feeds: list[dict[str, np.ndarray[Any, Any]]], tolerance: float = 2e-5) -> Any:
    """Right for each of these, against the reference, with one compilation."""
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for feed in feeds:
        for a, b in zip(model(feed), reference(feed), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0.0))))
    assert specialized(model).sizes == (), "no size was compiled by itself"
    return model


# -- extents ---------------------------------------------------------------------------------------------

A, B = symbol("a"), symbol("b")


def polynomials() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.integers(-4, 9), st.sampled_from([A, B]))
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner), max_leaves=6)


def computed(tree: Any, sizes: dict[str, int] | None) -> Any:
    if not isinstance(tree, tuple):
        return value_of(tree, sizes) if sizes is not None else tree
    operator, left, right = tree[0], computed(tree[1], sizes), computed(tree[2], sizes)
    return left + right if operator == "+" else left - right if operator == "-" else left * right


@given(polynomials(), polynomials(), st.integers(1, 50), st.integers(1, 50))
def test_extents_are_polynomials(one: Any, other: Any, a: int, b: int) -> None:
    sizes = {"a": a, "b": b}
    first, second = computed(one, None), computed(other, None)
    assert value_of(first, sizes) == computed(one, sizes)
    assert known_least(first) <= value_of(first, sizes)
    assert (first == second) == (first - second == 0), "equal where the difference is nothing"
    for divisor in (2, 4, 12):
        if is_multiple(first, divisor):
            assert value_of(first, sizes) % divisor == 0
            assert value_of(first // divisor, sizes) == value_of(first, sizes) // divisor
        if is_multiple(first - value_of(first, {"a": 0, "b": 0}), divisor):
            assert value_of(first // divisor, sizes) == value_of(first, sizes) // divisor, "rounded down, as numbers are"


@given(polynomials(), polynomials(), st.integers(1, 50), st.integers(1, 50))
def test_extents_are_compared_where_the_answer_is_the_same_for_all_sizes(one: Any, other: Any, a: int, b: int) -> None:
    first, second = computed(one, None), computed(other, None)
    values = value_of(first, {"a": a, "b": b}), value_of(second, {"a": a, "b": b})
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        with contextlib.suppress(CompileError):
            assert compare(first, second) == compare(*values)


def test_sizes_that_differ_by_a_number_are_compared() -> None:
    assert A < A + 1 and A + 2 > A and A * B + 3 >= A * B + 3 and not A * 2 + 1 <= A * 2
    assert A >= 1 and A + B > 1 and A + B >= 2 and max(A, A + 1) == A + 1


@pytest.mark.parametrize("asked", [
    lambda: A < 3, lambda: A >= 16, lambda: A // 16, lambda: A % 16,
    lambda: int(A), lambda: A / 2, lambda: range(A), lambda: 5 // A,
])
def test_what_has_to_know_an_extent_is_an_error(asked: Callable[[], object]) -> None:
    with pytest.raises(CompileError, match="is known only when the model is called"):
        asked()


JOINED = ((0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3))
"""Neighbouring dimensions that a reshape makes one."""


@settings(deadline=None)
@given(st.permutations([0, 1, 2, 3]), st.sampled_from(JOINED), st.integers(1, 5), st.integers(1, 5))
def test_views_with_extents_stand_where_those_of_numpy_do(order: list[int], joined: tuple[int, ...], a: int, b: int) -> None:
    """Where a reshape of a transpose is a view for every size, its steps are numpy's."""
    sizes = {"a": a, "b": b}
    shape = (A, 3, B, 4)
    view = SizedView.whole(shape).transpose(order)
    target = (*view.shape[: joined[0]], math.prod(view.shape[d] for d in joined), *view.shape[joined[-1] + 1 :])
    reshaped = view.reshape(target)
    whole = np.arange(a * 3 * b * 4).reshape(a, 3, b, 4)
    wanted = whole.transpose(order).reshape([value_of(size, sizes) for size in target])
    if reshaped is None:
        return
    at = np.zeros((), np.int64)
    for d, (size, step) in enumerate(zip(reshaped.shape, reshaped.steps, strict=True)):
        along = np.arange(value_of(size, sizes)) * value_of(step, sizes)
        at = at + along.reshape([-1 if i == d else 1 for i in range(len(target))])
    np.testing.assert_array_equal(whole.reshape(-1)[at], wanted)


# -- kernels ---------------------------------------------------------------------------------------------


def test_products_of_any_number_of_rows() -> None:
    x = pt.variable("x", "float32", ("N", "M", 24))
    product = pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(24, 50))), pt.constant(numbers(50)))
    second = pt.op("Relu", pt.op("MatMul", product, pt.constant(numbers(50, 17))))
    sizes = [(1, 1), (2, 1), *((1, size) for size in EDGES), (3, 19)]
    check(pt.Graph([second]), [{"x": numbers(n, m, 24)} for n, m in sizes])


def test_products_of_few_columns() -> None:
    """Narrower than a vector, as a classifier of few classes is."""
    x = pt.variable("x", "float32", ("N", "M", 24))
    classes = pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(24, 3))), pt.constant(numbers(3)))
    check(pt.Graph([pt.op("Sigmoid", classes)]), [{"x": numbers(n, m, 24)} for n, m in [(1, 1), (2, 5), (1, 17), (3, 40)]])


def attention(mask: bool) -> pt.Graph:
    """Two heads over one value, as exporters write it, with its shapes worked out in the graph."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    sizes = pt.op("Shape", x, end=2)
    split = pt.op("Concat", sizes, pt.constant(np.array([2, 16])), axis=0)
    parts = []
    for _ in range(3):
        projected = pt.op("MatMul", x, pt.constant(numbers(32, 32)))
        parts.append(pt.op("Transpose", pt.op("Reshape", projected, split), perm=[0, 2, 1, 3]))
    query, key, value = parts
    scores = pt.op("Mul", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2])), pt.constant(np.float32(0.25)))
    inputs = [x]
    if mask:
        given_mask = pt.variable("mask", "float32", ("N", 1, 1, "S"))
        inputs.append(given_mask)
        scores = pt.op("Add", scores, given_mask)
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value)
    joined = pt.op("Concat", sizes, pt.constant(np.array([32])), axis=0)
    return pt.Graph([pt.op("Reshape", pt.op("Transpose", mixed, perm=[0, 2, 1, 3]), joined)], inputs)


def test_attention_of_any_length() -> None:
    feeds = []
    for n, s in [(1, 1), (2, 1), *((1, size) for size in EDGES), (3, 7), (2, 100)]:
        mask = np.where(np.arange(s) < max(1, s - 2), 0, -1e9).astype(np.float32)
        feeds.append({"x": numbers(n, s, 32), "mask": np.broadcast_to(mask, (n, 1, 1, s)).copy()})
    model = check(attention(mask=True), feeds)
    assert "attention" in [kernel.schedule for kernel in model.kernels()]


def test_sizes_only_values_are_computed_by_the_host() -> None:
    """A causal mask and positions depend on the length alone."""
    ids = pt.variable("ids", "int64", ("N", "S"))
    length = pt.op("Gather", pt.op("Shape", ids), pt.constant(np.array(1)))
    positions = pt.op("Range", pt.constant(np.array(0)), length, pt.constant(np.array(1)))
    words, places = (pt.constant(numbers(count, 16)) for count in (40, 64))
    rows = pt.op("Add", pt.op("Gather", words, ids), pt.op("Gather", places, positions))
    norm = pt.op("LayerNormalization", rows, pt.constant(numbers(16)), pt.constant(numbers(16)))
    later = pt.op("LessOrEqual", positions, pt.op("Unsqueeze", positions, pt.constant(np.array([1]))))
    scores = pt.op("MatMul", norm, pt.op("Transpose", norm, perm=[0, 2, 1]))
    masked = pt.op("Where", later, scores, pt.constant(np.float32(-1e9)))
    graph = pt.Graph([pt.op("MatMul", pt.op("Softmax", masked, axis=-1), norm)])
    feeds = [{"ids": random.integers(0, 40, (n, s))} for n, s in [(1, 1), (2, 5), (1, 16), (3, 17), (1, 64)]]
    model = check(graph, feeds)
    with pytest.raises(pt.RunError):  # there are 64 positions; compiled for this size, the graph says so
        model(random.integers(0, 40, (1, 65)))


def test_a_single_number_computed_by_the_host() -> None:
    """How many numbers there are, which has no dimensions."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    mean = pt.op("Div", pt.op("ReduceSum", x, pt.constant(np.array([2]))), pt.op("Cast", pt.op("Size", x), to=1))
    check(pt.Graph([mean], [x]), [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 5)]])


def test_moves_and_chains_of_any_size() -> None:
    x, y = pt.variable("x", "float32", ("N", "M", 8)), pt.variable("y", "float32", ("N", "K", 8))
    joined = pt.op("Concat", x, y, axis=1)
    turned = pt.op("Transpose", joined, perm=[2, 0, 1])
    graph = pt.Graph([pt.op("Tanh", pt.op("Mul", turned, pt.constant(np.float32(2.0)))), pt.op("Exp", pt.op("Neg", x))], [x, y])
    check(graph, [{"x": numbers(n, m, 8), "y": numbers(n, k, 8)} for n, m, k in [(1, 1, 1), (2, 3, 4), (1, 17, 2), (5, 16, 33)]])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 4), st.integers(1, 70))
def test_attention_of_any_length_by_chance(n: int, s: int) -> None:
    model, reference = chance()
    feed = {"x": numbers(n, s, 32)}
    (a,), (b,) = model(feed), reference(feed)
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))
    assert specialized(model).sizes == ()


def chance(kept: list[Any] = []) -> Any:  # noqa: B006  # compiled once for all examples
    if not kept:
        graph = attention(mask=False)
        kept += [pt.compile(graph, "cpu"), pt.compile(graph, "reference")]
    return kept


@pytest.mark.parametrize("threads", [1, 4])
def test_a_little_work_is_one_thread_s(threads: int) -> None:
    """Whether threads share a chain, rows or a move is decided when the sizes are known."""
    x, y = (pt.variable(name, "float32", ("N", "M", 5)) for name in "xy")
    added = pt.op("Tanh", pt.op("Add", x, y))
    norm = pt.op("LayerNormalization", x, pt.constant(numbers(5)), pt.constant(numbers(5)), name="norm")
    outputs = [added, norm, pt.op("Transpose", x, perm=[1, 0, 2])]
    model = pt.compile(pt.Graph(outputs, [x, y]), "cpu", config={"NUM_THREADS": threads})
    reference = pt.compile(pt.Graph(outputs, [x, y]), "reference")
    sizes = [(1, 1), (1, 819), (1, 820), (3, 273), (2, 4000), (1, 16384)]  # about pieces of 4,096 numbers, and on both sides
    for n, m in sizes:
        given = numbers(n, m, 5), numbers(n, m, 5)
        for a, b in zip(model(*given), reference(*given), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert specialized(model).sizes == ()
    shared = [kernel for kernel in model.kernels() if "parallel" in str(kernel.text)]
    assert len(shared) == (3 if threads > 1 else 0)
    assert all(re.search(r"if s0 \* s1 >= \d+:", str(kernel.text)) for kernel in shared), "decided by the sizes"


def test_work_that_is_always_enough_is_always_shared() -> None:
    machine, a, b = attrs.evolve(host_machine(2), threads=2), cast("int", A), cast("int", B)
    assert is_shared_out(STEPS, machine) is True and is_shared_out(STEPS - 1, machine) is False
    assert is_shared_out(a * STEPS, machine) is True
    assert str(is_shared_out(a * b * 8, machine)) == f"a * b >= {STEPS // 8}"
    assert is_shared_out(a * b * 8, attrs.evolve(machine, threads=1)) is False


def test_slices_at_any_size() -> None:
    x = pt.variable("x", "float32", ("N", "S", 16))

    def cut(*numbers_of: int) -> pt.Node:
        return pt.op("Slice", x, *[pt.constant(np.array([number])) for number in numbers_of])

    graph = pt.Graph([cut(-3, -1, 1), cut(1, 2**62, 1), cut(-100, 5, 2), cut(0, 1, 0)], [x])
    check(graph, [{"x": numbers(n, s, 16)} for n, s in [(1, 3), (2, 5), (3, 17)]])


def recurrent(op: str, x: Any, inputs: int, *rest: Any, **attributes: Any) -> pt.Node:
    """A layer of 20 numbers with random weights, both ways through time where the attributes say so."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = {"LSTM": 80, "GRU": 60, "RNN": 20}[op]
    weights = (pt.constant(numbers(ways, *sizes) / 4) for sizes in ((rows, inputs), (rows, 20), (2 * rows,)))
    return pt.op(op, x, *weights, *rest, hidden_size=20, **attributes)


@pytest.mark.parametrize("op", ["RNN", pytest.param("GRU", marks=pytest.mark.slow), pytest.param("LSTM", marks=pytest.mark.slow)])
def test_recurrent_layers_of_any_length(op: str) -> None:
    x, lengths = pt.variable("x", "float32", ("T", 3, 8)), pt.variable("lengths", "int32", (3,))
    states = [pt.constant(numbers(2, 3, 20)) for _ in range(2 if op == "LSTM" else 1)]
    layer = recurrent(op, x, 8, lengths, *states, direction="bidirectional", n_outputs=1 + len(states))
    joined = pt.op("Reshape", pt.op("Transpose", layer[0], perm=[0, 2, 1, 3]), pt.constant(np.array([0, 0, -1])))
    graph = pt.Graph([joined, *layer.outputs[1:]], inputs=[x, lengths])
    given = [{"x": numbers(t, 3, 8), "lengths": np.array([t, t // 2, min(t, 3)], np.int32)} for t in (1, 2, 7, 30)]
    model = check(graph, given)
    with pytest.raises(pt.RunError, match="the length of a sequence is not between 0 and the number of steps"):
        model(numbers(4, 3, 8), np.array([4, 5, 1], np.int32))


def test_recurrent_layers_of_any_batch_are_compiled_for_each() -> None:
    x = pt.variable("x", "float32", (5, "N", 8))
    model = pt.compile(pt.Graph([recurrent("RNN", x, 8, n_outputs=1)]), "cpu")
    assert "compiled for each size: RNN has kernels for any number of steps, and not for a batch of s0" in model.report.notes[0]


# -- images ----------------------------------------------------------------------------------------------


class Layers:
    """Layers on any number of images of 12 channels."""

    def __init__(self, height: int | str = 19, width: int | str = 18) -> None:
        self.image = pt.variable("image", "float32", ("N", 3, height, width))
        self.first = self.conv(self.image, 3, 12, strides=[2, 2], pads=[1] * 4)

    def conv(self, x: pt.Node, ins: int = 12, outs: int = 12, side: int = 3, **attrs: Any) -> pt.Node:
        weight = pt.constant(numbers(outs, ins // attrs.get("group", 1), side, side) / side)
        return pt.op("Conv", x, weight, pt.constant(numbers(outs)), **attrs)


LAYERS: dict[str, Callable[[Layers, pt.Node], pt.Node]] = {
    "residual": lambda net, x: pt.op("Relu", pt.op("Add", x, net.conv(net.conv(x, side=1), pads=[1] * 4))),
    "depthwise": lambda net, x: net.conv(x, group=12, pads=[1] * 4),
    "groups": lambda net, x: net.conv(x, group=3, strides=[2, 1]),
    "largest": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1),
    "mean": lambda net, x: pt.op("AveragePool", x, kernel_shape=[2, 3], auto_pad="SAME_UPPER"),
    "plain pool": lambda net, x: pt.op("MaxPool", net.image, kernel_shape=[4, 4], strides=[3, 3]),
    "squeezed": lambda net, x: pt.op("Mul", x, pt.op("Sigmoid", net.conv(pt.op("GlobalAveragePool", x), side=1))),
    "classified": lambda net, x: pt.op(
        "Gemm", pt.op("Flatten", pt.op("GlobalAveragePool", x)), pt.constant(numbers(12, 5)), pt.constant(numbers(5))
    ),
    "joined": lambda net, x: pt.op("Concat", net.conv(x, outs=32), net.conv(x, outs=16), axis=1),
    "transposed": lambda net, x: pt.op("ConvTranspose", x, pt.constant(numbers(12, 8, 2, 2)), strides=[2, 2]),
    "resized": lambda net, x: pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 3], np.float32)), mode="linear"),
    "local response": lambda net, x: pt.op("LRN", x, size=3),
    "group norm": lambda net, x: pt.op(
        "GroupNormalization", x, pt.constant(numbers(12)), pt.constant(numbers(12)), num_groups=4
    ),
    "shuffled": lambda net, x: net.conv(
        pt.op("Reshape", pt.op("Transpose", pt.op("Reshape", x, pt.constant(np.array([-1, 3, 4, 10, 9]))), perm=[0, 2, 1, 3, 4]),
              pt.constant(np.array([-1, 12, 10, 9])))
    ),
}


def test_any_number_of_images() -> None:
    """Every kind of layer that convolution nets have, with the numbers of images that pools and tasks could stumble over."""
    net = Layers()
    graph = pt.Graph([build(net, net.first) for build in LAYERS.values()], [net.image])
    check(graph, [{"image": numbers(n, 3, 19, 18)} for n in (1, 2, 3, 5, 8, 17)], 1e-4)


SIDES: dict[str, Callable[[Layers, pt.Node], pt.Node]] = {
    **{name: LAYERS[name] for name in "residual depthwise groups mean joined transposed squeezed classified".split()},
    "largest": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "rounded up": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "mean with padding": lambda net, x: pt.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
    "sampled": lambda net, x: net.conv(x, side=1, strides=[2, 2]),
    "apart": lambda net, x: net.conv(x, pads=[2] * 4, dilations=[2, 2]),
    "same": lambda net, x: net.conv(x, strides=[2, 2], auto_pad="SAME_UPPER"),
    "mixed": lambda net, x: pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 3], np.float32)), mode="linear"),
    "mixed from the corner": lambda net, x: pt.op(
        "Resize", x, None, pt.constant(np.array([1, 1, 3, 2], np.float32)), mode="linear",
        coordinate_transformation_mode="asymmetric",
    ),
    "repeated": lambda net, x: pt.op(
        "Resize", x, None, pt.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
}
"""Every kind of layer that has a form for images of any height and width."""


def sides(kept: list[Any] = []) -> Any:  # noqa: B006  # compiled once for all examples
    """All these layers as one model, and the reference."""
    if not kept:
        net = Layers("H", "W")
        graph = pt.Graph([build(net, net.first) for build in SIDES.values()], [net.image])
        kept += [pt.compile(graph, "cpu"), pt.compile(graph, "reference")]
    return kept


def check_sides(n: int, height: int, width: int) -> None:
    model, reference = sides()
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    image = numbers(n, 3, height, width)
    for name, a, b in zip(SIDES, model(image), reference(image), strict=True):
        assert a.shape == b.shape, name
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max()), err_msg=name)


@pytest.mark.parametrize(("n", "height", "width"), [(1, 12, 12), (2, 12, 16), (3, 16, 12), (1, 20, 68), (1, 60, 136)])
def test_images_of_any_height_and_width(n: int, height: int, width: int) -> None:
    """From as few pixels as the windows see, over fewer than a tile has, to several bands of rows."""
    check_sides(n, height, width)
    assert specialized(sides()[0]).sizes == (), "no size was compiled by itself"


@pytest.mark.parametrize("threads", [1, 5])
def test_images_and_texts_of_any_size_on_so_many_threads(threads: int) -> None:
    """Kernels that set memory aside for a task are written otherwise for one thread."""
    net = Layers("H", "W")
    graph = pt.Graph([net.conv(net.first, pads=[1] * 4), SIDES["largest"](net, net.first)], [net.image])
    for g, feed in ((graph, {"image": numbers(2, 3, 28, 20)}), (attention(mask=False), {"x": numbers(2, 21, 32)})):
        model, reference = pt.compile(g, "cpu", config={"NUM_THREADS": threads}), pt.compile(g, "reference")
        assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
        for a, b in zip(model(feed), reference(feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max()))


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 3), st.integers(3, 24), st.integers(3, 24))
def test_images_of_any_height_and_width_by_chance(n: int, height: int, width: int) -> None:
    check_sides(n, 4 * height, 4 * width)


def test_images_stay_inside_of_their_memory() -> None:
    """The arrays of a call stand at either end of pages that cannot be read or written beside them."""
    model = sides()[0]
    for height, width in ((12, 12), (28, 44)):
        image = numbers(1, 3, height, width)
        wanted = model(image)
        for at_end in (True, False):
            outputs = [guarded_copy(np.zeros_like(array), at_end) for array in wanted]
            results = model(guarded_copy(image, at_end), out=outputs)
            for a, b in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_sizes_between_the_grains_are_compiled_alone() -> None:
    """Images that are halved twice count their rows by four; others are right too, compiled for their size."""
    net = Layers("H", "W")
    pooled = pt.op("MaxPool", net.first, kernel_shape=[2, 2], strides=[2, 2])
    graph = pt.Graph([pooled], [net.image])
    sizes = sized(pt.accelerator("cpu").transform(graph))
    assert sizes.inputs == (("s0", 3, "4*s1", "4*s2"),) and sizes.grained == ("s1", "s2")
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    for shape, alone in (((2, 3, 8, 12), 0), ((1, 3, 9, 12), 1), ((1, 3, 4, 4), 1)):
        image = numbers(*shape)
        np.testing.assert_allclose(model(image)[0], reference(image)[0], rtol=1e-4, atol=1e-4)
        assert len(specialized(model).sizes) == alone


def test_a_vision_transformer_of_any_image() -> None:
    """Patches of images of any size, whose positions are interpolated from those that were learned."""
    image, width = pt.variable("image", "float32", ("N", 3, "H", "W")), 16
    patches = pt.op("Conv", image, pt.constant(numbers(width, 3, 8, 8) / 8), strides=[8, 8])
    wanted = pt.op("Concat", pt.constant(np.array([1, width])), pt.op("Shape", patches, start=2, end=4), axis=0)
    places = pt.op("Resize", pt.constant(numbers(1, width, 4, 4)), None, None, wanted, mode="cubic")
    rows = pt.constant(np.array([0, width, -1]))
    flat = [pt.op("Transpose", pt.op("Reshape", x, rows), perm=[0, 2, 1]) for x in (patches, places)]
    tokens = pt.op("Add", *flat)
    scores = pt.op("MatMul", tokens, pt.op("Transpose", tokens, perm=[0, 2, 1]))
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), tokens)
    graph = pt.Graph([pt.op("Gelu", pt.op("MatMul", mixed, pt.constant(numbers(width, 20))))], [image])
    check(graph, [{"image": numbers(*shape)} for shape in ((1, 3, 32, 32), (2, 3, 8, 40), (1, 3, 56, 24))], 1e-4)


@pytest.mark.parametrize("sides", [(40,), (7, 6, 9)])
def test_any_number_of_signals_and_volumes(sides: tuple[int, ...]) -> None:
    x = pt.variable("x", "float32", ("N", 4, *sides))
    weight = pt.constant(numbers(6, 2, *[3] * len(sides)))
    graph = pt.Graph([pt.op("Relu", pt.op("Conv", x, weight, group=2, pads=[1] * (2 * len(sides))))])
    check(graph, [{"x": numbers(n, 4, *sides)} for n in (1, 2, 5)], 1e-4)


def test_no_images() -> None:
    """A number of images of zero is compiled by itself, and has results of the right sizes."""
    net = Layers()
    graph = pt.Graph([LAYERS["classified"](net, net.first), LAYERS["group norm"](net, net.first)], [net.image])
    model = pt.compile(graph, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [result.shape for result in model(numbers(0, 3, 19, 18))] == [(0, 5), (0, 12, 10, 9)]
    assert model(numbers(2, 3, 19, 18))[0].shape == (2, 5)


def test_a_model_of_torch_at_several_lengths() -> None:
    feeds = [
        {"input_ids": random.integers(0, 20, (1, n)), "attention_mask": np.ones((1, n), np.int64)} for n in (2, 5, 1, 8)
    ]
    check(pt.load(BERT), feeds)


def test_a_vision_transformer_of_any_batch() -> None:
    """Patches, a first token that is repeated for each image, attention over both, and the few classes of that token."""
    graph = vit(Sizes(width=64, heads=4, layers=1, hidden=96, words=3), 64)
    check(graph, [{"image": numbers(n, 3, 64, 64)} for n in (1, 2, 5)], 1e-4)


# -- kernels of TVM's own ------------------------------------------------------------------------------------


def whole(*numbers_of: int) -> pt.Node:
    return pt.constant(np.array(numbers_of, np.int64))


def resize(x: pt.Node, factor: float, mode: str = "nearest", **attrs: Any) -> pt.Node:
    return pt.op("Resize", x, None, pt.constant(np.array([1, 1, factor, factor], np.float32)), mode=mode, **attrs)


def to_its_sizes(x: pt.Node) -> pt.Node:
    """Halved, and enlarged to the sizes that it had, as networks shaped like a U do it."""
    half = pt.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return pt.op("Resize", half, None, None, pt.op("Shape", x), mode="linear")


QUICK: dict[str, Callable[[pt.Node], pt.Node]] = {
    "padded": lambda x: pt.op("Pad", x, whole(0, 0, 1, 2, 0, 0, 0, 3)),
    "softmax of channels": lambda x: pt.op("Softmax", x, axis=1),
    "softmax": lambda x: pt.op("Softmax", x, axis=-1),
    "mean": lambda x: pt.op("ReduceMean", x, whole(2, 3)),
    "largest": lambda x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
}
"""Some forms for images of any size, one by one: ours, and those that TVM writes."""

OTHERS: dict[str, Callable[[pt.Node], pt.Node]] = {
    "mean of windows": lambda x: pt.op("AveragePool", x, kernel_shape=[3, 2], pads=[1] * 4),
    "norm of windows": lambda x: pt.op("LpPool", x, kernel_shape=[3, 3]),
    "largest of all": lambda x: pt.op("GlobalMaxPool", x),
    "local response": lambda x: pt.op("LRN", x, size=3),
    "instances": lambda x: pt.op("InstanceNormalization", x, pt.constant(numbers(4)), pt.constant(numbers(4))),
    "groups": lambda x: pt.op("GroupNormalization", x, pt.constant(numbers(4)), pt.constant(numbers(4)), num_groups=2),
    "logarithms": lambda x: pt.op("LogSoftmax", x, axis=2),
    "sum over images": lambda x: pt.op("ReduceSum", x, whole(0)),
    "largest of channels": lambda x: pt.op("ReduceMax", x, whole(1), keepdims=0),
    "position": lambda x: pt.op("ArgMax", x, axis=3),
    "reflected": lambda x: pt.op("Pad", x, whole(0, 0, 1, 1, 0, 0, 2, 1), mode="reflect"),
    "edge": lambda x: pt.op("Pad", x, whole(0, 0, 1, 1, 0, 0, 2, 1), mode="edge"),
    "repeated": lambda x: pt.op("Tile", x, whole(1, 2, 1, 3)),
    "best": lambda x: pt.op("TopK", x, whole(2), axis=1)[0].node,
    "lower triangle": lambda x: pt.op("Trilu", x, upper=0),
    "to space": lambda x: pt.op("DepthToSpace", x, blocksize=2),
    "to depth": lambda x: pt.op("SpaceToDepth", x, blocksize=2),
    "enlarged": lambda x: resize(x, 1.5, "linear"),
    "made smaller": lambda x: resize(x, 0.5, "linear"),
    "nearest": lambda x: resize(x, 2.0),
    "cubic": lambda x: resize(x, 2.0, "cubic"),
    "to its sizes": to_its_sizes,
}
"""The other forms."""


def check_forms(forms: dict[str, Callable[[pt.Node], pt.Node]], shapes: list[tuple[int, int]]) -> None:
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    graph = pt.Graph([build(image) for build in forms.values()], [image])
    check(graph, [{"image": numbers(n, 4, *sides)} for n, sides in enumerate(shapes, 1)])


def test_images_of_any_size_in_kernels_of_tvm() -> None:
    check_forms(QUICK, [(8, 12), (24, 6)])


@pytest.mark.slow
def test_all_forms_of_tvm_for_images_of_any_size() -> None:
    check_forms(OTHERS, [(8, 12), (34, 6), (4, 4), (64, 130)])


def grains_of(graph: pt.Graph) -> tuple[tuple[Any, ...], ...]:
    return sized(pt.accelerator("cpu").transform(graph)).inputs


def test_sizes_without_a_name_have_grains_too() -> None:
    image = pt.variable("image", "float32", (None, 3, None, None))
    pooled = pt.op("MaxPool", image, kernel_shape=[2, 2], strides=[2, 2])
    assert grains_of(pt.Graph([pooled])) == (("s0", 3, "2*s1", "2*s2"),)


def test_resizes_by_fractions_have_grains() -> None:
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    assert grains_of(pt.Graph([resize(image, 1.25)])) == (("s0", 3, "4*s1", "4*s2"),)


# -- what a symbol does not bypass ---------------------------------------------------------------------------


def test_an_index_outside_is_an_error_at_any_size() -> None:
    x, at = pt.variable("x", "float32", ("N", 4)), pt.variable("at", "int64", ("K",))
    model = pt.compile(pt.Graph([pt.op("Gather", x, at)], [x, at]), "cpu")
    assert "compiled once for any size" in " ".join(model.report.notes)
    data = numbers(3, 4)
    np.testing.assert_array_equal(model(data, np.array([2, -3]))[0], data[[2, -3]])
    for wrong in (3, -4):
        with pytest.raises(pt.RunError, match="an index is outside of a dimension"):
            model(data, np.array([0, wrong]))


def test_a_constant_index_that_is_outside_for_some_sizes() -> None:
    x = pt.variable("x", "float32", ("N", 4))
    model = pt.compile(pt.Graph([pt.op("Gather", x, pt.constant(np.array([5])))]), "cpu")
    data = numbers(8, 4)
    np.testing.assert_array_equal(model(data)[0], data[5:6])
    with warnings.catch_warnings(), pytest.raises(pt.RunError):
        warnings.simplefilter("ignore")
        model(data[:5])


def test_sizes_that_contradict_each_other_are_an_error() -> None:
    x, y = pt.variable("x", "float32", ("N", 4)), pt.variable("y", "float32", ("N", 4))
    model = pt.compile(pt.Graph([pt.op("Add", x, y)], [x, y]), "cpu")
    assert model(numbers(2, 4), numbers(2, 4))[0].shape == (2, 4)
    with pytest.raises(pt.PartitaError, match="'N' would be both 2 and 3|N"):
        model(numbers(2, 4), numbers(3, 4))


def test_a_graph_that_states_other_sizes_is_compiled_for_each() -> None:
    x = pt.variable("x", "float32", ("N", 4))
    stated = pt.op("Relu", x, name="y").evolve(output_types=(pt.TensorType("float32", (3, 4)),))
    model = pt.compile(pt.Graph([stated]), "cpu")
    assert "compiled for each size: 'y' is stated to be float32[3, 4], and its op makes" in " ".join(model.report.notes)
    assert model(numbers(3, 4))[0].shape == (3, 4)
    with pytest.raises(pt.PartitaError, match=r"\[3, 4\]"):
        model(numbers(2, 4))


def test_what_has_no_rule_is_compiled_for_each_size() -> None:
    x = pt.variable("x", "float32", ("N", 3, "H", 8))
    graph = pt.Graph([pt.op("Resize", x, None, pt.constant(np.array([1, 1, 1.3, 1.5], np.float32)))])
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    note = "compiled for each size: Resize of s1 by 1.2999"
    assert note in " ".join(model.report.notes)
    for n in (1, 2):
        image = numbers(n, 3, 8, 8)
        np.testing.assert_allclose(model(image)[0], reference(image)[0], rtol=1e-4, atol=1e-4)
    assert len(specialized(model).sizes) == 2


def test_convolutions_of_signals_of_any_length_are_compiled_for_each_size() -> None:
    """TVM's loops would take many times as long as the kernel for one size."""
    x = pt.variable("x", "float32", ("N", 4, "L"))
    model = pt.compile(pt.Graph([pt.op("Conv", x, pt.constant(numbers(6, 4, 3)))]), "cpu")
    assert "compiled for each size: no kernel for any size takes Conv of these sizes" in " ".join(model.report.notes)


@pytest.mark.parametrize("config", [{"ANY_SIZE": False}, {"PRECISION": "bf16"}])
def test_settings_by_which_each_size_is_compiled(config: dict[str, Any]) -> None:
    x = pt.variable("x", "float32", ("N", 24))
    graph = pt.Graph([pt.op("MatMul", x, pt.constant(numbers(24, 32)))])
    model = pt.compile(graph, "cpu", config=config)
    data = numbers(3, 24)
    np.testing.assert_allclose(model(data)[0], pt.compile(graph, "reference")(data)[0], rtol=0.1, atol=0.2)
    assert specialized(model).any_size is None and len(specialized(model).sizes) == 1


def test_a_size_of_nothing_is_compiled_by_itself() -> None:
    x = pt.variable("x", "float32", ("N", 24))
    model = pt.compile(pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(numbers(24, 32))))]), "cpu")
    assert model(numbers(0, 24))[0].shape == (0, 32)
    assert model(numbers(2, 24))[0].shape == (2, 32)


def test_extents_are_their_text() -> None:
    assert str(A * B * 12 + 1) == "12*a*b+1" and isinstance(A + B, Extent) and isinstance(A - A, int)
