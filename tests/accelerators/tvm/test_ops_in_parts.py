"""Ops that have no kernel for any size themselves, and whose parts have one: compiled once, right at every size."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.any_size import check, numbers, random
from tests.close import assert_close


def whole(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def length_of(x: pt.Node, axis: int) -> pt.Node:
    """One size, as a vector."""
    return pt.op("Shape", x, start=axis, end=axis + 1)


@pytest.mark.parametrize("known", [False, True])
def test_slices_that_begin_or_end_where_sizes_say(known: bool) -> None:
    """As long as another value, from where that ends, and its last ones; of a table whose length is known too."""
    x = pt.variable("x", "float32", (1, 32, 8) if known else ("N", "S", 8))
    y = pt.variable("y", "float32", ("N", "T", 8))
    size, far = length_of(y, 1), whole(2**62)
    ends = [(whole(0), size), (whole(1), size), (size, far), (pt.op("Neg", size), far)]
    parts = [pt.op("Slice", x, start, end, whole(1)) for start, end in ends]
    both = pt.op("Slice", x, whole(0, 2), pt.op("Concat", size, whole(7), axis=0), whole(1, 2))
    feeds = []
    for n, s, t in ((1, 32, 2), (2, 32, 7), (1, 32, 31)):
        feeds.append({"x": numbers(1, 32, 8) if known else numbers(n, s - 3 + t % 2, 8), "y": numbers(n, min(t, 28), 8)})
    check(pt.Graph([*parts, pt.op("Relu", both)], [x, y]), feeds)


def test_a_slice_that_ends_outside_is_compiled_alone() -> None:
    x, y = pt.variable("x", "float32", ("S", 8)), pt.variable("y", "float32", ("T", 8))
    graph = pt.Graph([pt.op("Relu", pt.op("Slice", x, whole(0), length_of(y, 0), whole(0)))], [x, y])
    model, long = check(graph, [{"x": numbers(5, 8), "y": numbers(3, 8)}]), numbers(4, 8)
    np.testing.assert_array_equal(model(long, numbers(9, 8))[0], np.maximum(long, 0))


def test_products_of_matrices_and_vectors() -> None:
    x, v = pt.variable("x", "float32", ("N", "S", 24)), pt.variable("v", "float32", ("S",))
    weight, turned = pt.constant(numbers(24)), pt.op("Transpose", x, perm=[0, 2, 1])
    pairs = [(x, weight), (weight, turned), (v, x), (v, v)]
    feeds = [{"x": numbers(n, s, 24), "v": numbers(s)} for n, s in ((1, 1), (3, 7), (2, 40))]
    check(pt.Graph([pt.op("MatMul", *pair) for pair in pairs], [x, v]), feeds)


def test_numbers_of_the_type_of_others() -> None:
    x, like = pt.variable("x", "int64", ("N", 4)), pt.variable("like", "float32", ("M",))
    given = [{"x": random.integers(-9, 9, (n, 4)), "like": numbers(n + 1)} for n in (1, 6)]
    outputs = [pt.op("Exp", pt.op("CastLike", x, like)), pt.op("CastLike", pt.constant(np.arange(3)), like)]
    check(pt.Graph(outputs, [x, like]), given)


@pytest.mark.parametrize("count", [2, 3])
def test_parts_of_which_the_last_is_smaller(count: int) -> None:
    x = pt.variable("x", "float32", ("N", "S", 8))
    parts = pt.op("Split", x, axis=1, num_outputs=count, n_outputs=count)
    graph = pt.Graph([pt.op("Tanh", parts[0]), *parts.outputs[1:]], [x])
    check(graph, [{"x": numbers(n, s, 8)} for n, s in ((1, 6), (2, 7), (1, 8), (3, 23))])


EQUATIONS = ["bhwc,hkc->bhwk", "n,m->nm", "bn,bn->b", "bnc,bc->bn", "nbc,bcd->nd", "nbc,nbc->nbc", "bnc,md->cmdbn"]
SIZES: dict[str, str | int] = {"b": "B", "n": "N", "m": "M", "h": 3, "w": "W", "k": 4, "c": 5, "d": 6}


def test_sums_of_products_over_groups_of_dimensions() -> None:
    inputs, outputs = [], []
    for i, equation in enumerate(EQUATIONS):
        terms = equation.partition("->")[0].split(",")
        pair = [pt.variable(f"x{i}{j}", "float32", [SIZES[letter] for letter in term]) for j, term in enumerate(terms)]
        inputs += pair
        outputs.append(pt.op("Einsum", *pair, equation=equation))
    feeds = []
    for sizes in ({"B": 1, "N": 1, "M": 1, "W": 1}, {"B": 3, "N": 7, "M": 2, "W": 9}):
        shapes = {node.name: [sizes.get(str(size), size) for size in node[0].type.shape] for node in inputs}  # type: ignore[union-attr]
        feeds.append({name: numbers(*shape) for name, shape in shapes.items()})
    check(pt.Graph(outputs, inputs), feeds)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizes_of_narrow_numbers_to_sizes(dtype: str, mode: str) -> None:
    image = pt.variable("image", dtype, ("N", 4, "H", "W"))
    sides = pt.op("Add", pt.op("Shape", image, start=2), whole(3))
    resized = pt.op("Resize", image, None, None, pt.op("Concat", pt.op("Shape", image, end=2), sides, axis=0), mode=mode)
    graph = pt.Graph([resized], [image])
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for shape in ((1, 4, 8, 8), (2, 4, 9, 7)):
        data = numbers(*shape).astype(numpy_dtype(dtype))
        a, b = model(data)[0], reference(data)[0]
        assert a.dtype == b.dtype == data.dtype
        assert_close(a.astype(np.float32), b.astype(np.float32), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(("opset", "op"), [(9, "Upsample"), (10, "Resize")])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_enlarging_in_older_opsets(opset: int, op: str, mode: str) -> None:
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    first = pt.op("Conv", image, pt.constant(numbers(16, 3, 3, 3)), pads=[1] * 4, opset=opset)
    large = pt.op(op, first, pt.constant(np.array([1, 1, 2, 2], np.float32)), mode=mode, opset=opset)
    graph = pt.Graph([pt.op("Conv", large, pt.constant(numbers(8, 16, 1, 1)), opset=opset)], [image], opsets={"": opset})
    check(graph, [{"image": numbers(*shape)} for shape in ((1, 3, 8, 8), (2, 3, 9, 7))])


@pytest.mark.parametrize("heads", [2, 1])
def test_onnx_s_attention_with_a_past_and_a_mask(heads: int) -> None:
    """In a prompt there is no past; the mask has a symbol of its own."""
    query = pt.variable("query", "float32", ("N", 2, "S", 16))
    given = [pt.variable(name, "float32", ("N", heads, length, 16)) for name, length in zip("kvab", "SSPP", strict=True)]
    mask = pt.variable("mask", "float32", ("S", "T"))
    node = pt.op("Attention", query, *given[:2], mask, *given[2:], n_outputs=3, opset=24)
    graph = pt.Graph(list(node.outputs), [query, *given, mask], opsets={"": 24})
    feeds = []
    for n, s, past in ((1, 5, 0), (2, 1, 3), (1, 7, 16)):
        sides = {name: numbers(n, heads, length, 16) for name, length in zip("kvab", (s, s, past, past), strict=True)}
        feeds.append({"query": numbers(n, 2, s, 16), **sides, "mask": numbers(s, s + past)})
    model = check(graph, feeds)
    assert "attention" in [kernel.schedule for kernel in model.kernels()]


def padded_to(x: pt.Node, axis: int, multiple: int) -> pt.Node:
    """Zeros behind a dimension up to a multiple."""
    lacking = pt.op("Mod", pt.op("Sub", whole(multiple), pt.op("Mod", length_of(x, axis), whole(multiple))), whole(multiple))
    return pt.op("Pad", x, pt.op("Concat", whole(0), lacking, axis=0), None, whole(axis))


def test_amounts_of_padding_that_are_turned_round_in_pairs() -> None:
    """As torch's older exporter writes F.pad: from the last dimension to the first, before and after."""
    x = pt.variable("x", "float32", ("N", "H", "W", 8))
    lacking = [pt.op("Mod", pt.op("Sub", whole(4), pt.op("Mod", length_of(x, axis), whole(4))), whole(4)) for axis in (2, 1)]
    given = pt.op("Concat", whole(0), whole(0), whole(0), lacking[0], whole(0), lacking[1], axis=0)
    missing = pt.op("ConstantOfShape", pt.op("Sub", whole(8), pt.op("Shape", given)), value=np.zeros(1, np.int64))
    pairs = pt.op("Reshape", pt.op("Concat", given, missing, axis=0), whole(-1, 2))
    turned = pt.op("Slice", pairs, whole(-1), whole(-(2**63) + 1), whole(0), whole(-1))
    pads = pt.op("Cast", pt.op("Reshape", pt.op("Transpose", turned, perm=[1, 0]), whole(-1)), to="int64")
    padded = pt.op("Pad", x, pads, pt.constant(np.float32(0)))
    blocks = pt.op("Reshape", padded, whole(0, -1, 4, 8))
    check(pt.Graph([padded, blocks], [x]), [{"x": numbers(n, *sides, 8)} for n, sides in ((1, (4, 8)), (2, (5, 6)), (1, (7, 9)))])


def test_windows_of_padded_patches() -> None:
    """Swin pads its patches to whole windows, cuts what the windows become to what there was, and merges patches two by two."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    patches = pt.op("Transpose", pt.op("Conv", image, pt.constant(numbers(8, 3, 4, 4) / 7), strides=[4, 4]), perm=[0, 2, 3, 1])
    full, four = padded_to(padded_to(patches, 1, 4), 2, 4), whole(4)
    down, across = (pt.op("Div", length_of(full, axis), four) for axis in (1, 2))
    cut = pt.op("Reshape", full, pt.op("Concat", length_of(full, 0), down, four, across, four, whole(8), axis=0))
    windows = pt.op("Reshape", pt.op("Transpose", cut, perm=[0, 1, 3, 2, 4, 5]), whole(-1, 16, 8))
    weights = pt.op("Softmax", pt.op("MatMul", windows, pt.op("Transpose", windows, perm=[0, 2, 1])), axis=-1)
    apart = pt.op("Concat", whole(-1), down, across, four, four, whole(8), axis=0)
    mixed = pt.op("Reshape", pt.op("MatMul", weights, windows), apart)
    back = pt.op("Reshape", pt.op("Transpose", mixed, perm=[0, 1, 3, 2, 4, 5]), pt.op("Shape", full))
    as_before = pt.op("Slice", back, whole(0, 0), pt.op("Shape", patches, start=1, end=3), whole(1, 2))
    even = padded_to(padded_to(pt.op("Add", as_before, patches), 1, 2), 2, 2)
    corners = [(row, column) for row in (0, 1) for column in (0, 1)]
    merged = [pt.op("Slice", even, whole(*corner), whole(2**60, 2**60), whole(1, 2), whole(2, 2)) for corner in corners]
    graph = pt.Graph([pt.op("MatMul", pt.op("Concat", *merged, axis=-1), pt.constant(numbers(32, 16)))], [image])
    check(graph, [{"image": numbers(n, 3, *sides)} for n, sides in ((1, (32, 32)), (2, (20, 44)), (1, (53, 24)))])


def test_reductions_and_activations_that_few_networks_use() -> None:
    x = pt.variable("x", "float32", ("N", "S", 8))
    inside = pt.op("Abs", x)
    reduced = [pt.op(f"ReduceLogSum{kind}", inside, whole(axis)) for kind in ("", "Exp") for axis in (1, 2)]
    outputs = [*reduced, pt.op("MeanVarianceNormalization", x, axes=[0, 1]), pt.op("Shrink", x, lambd=0.2, bias=0.1)]
    check(pt.Graph(outputs, [x]), [{"x": numbers(n, s, 8)} for n, s in ((1, 2), (3, 7))])
