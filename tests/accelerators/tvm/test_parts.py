"""Ops that are taken apart by us, and what TVM would have made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import Array
from partita.passes.decompose import decomposed
from tests.accelerators.tvm.running import as_double, check, compiled, doubled, error, schedules
from tests.close import assert_close

pytest.importorskip("tvm")

random = np.random.default_rng(29)


def normal(*shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def constants(*arrays: Array) -> list[pt.Node]:
    return [pt.constant(array) for array in arrays]


NORMS = {
    "layer, with its statistics": lambda x: pt.op("LayerNormalization", x, *constants(normal(8), normal(8)), n_outputs=3),
    "layer, of several dimensions": lambda x: pt.op("LayerNormalization", x, *constants(normal(9, 8)), axis=-2, n_outputs=2),
    "groups": lambda x: pt.op("GroupNormalization", x, *constants(normal(6), normal(6)), num_groups=2),
    "mean and variance": lambda x: pt.op("MeanVarianceNormalization", x),
}


@pytest.mark.parametrize("mean", [0, 1000])
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_of_what_is_far_from_nothing(norm: str, mean: int) -> None:
    """What is left of the mean of squares less the mean's square has no digits then."""
    x = pt.variable("x", "float32", (2, 6, 9, 8))
    node = NORMS[norm](x)
    graph = pt.Graph(list(node.outputs), inputs=[x])
    value = normal(2, 6, 9, 8) + np.float32(mean)
    for item, wanted in zip(compiled(graph).run([value]), interpret(doubled(graph), [as_double(value)]), strict=True):
        assert error(item, wanted) < (2e-4 if mean else 2e-6)


def test_groups_of_the_first_definition() -> None:
    x = pt.variable("x", "float32", (2, 6, 5, 4))
    node = pt.op("GroupNormalization", x, *constants(normal(3), normal(3)), num_groups=3, opset=18)
    same(pt.Graph([node], inputs=[x], opsets={"": 18}), normal(2, 6, 5, 4))


def same(graph: pt.Graph, value: Array) -> None:
    """The device and the definition agree."""
    (result,), (wanted,) = compiled(graph).run([value]), interpret(graph, [value])
    assert result.dtype == wanted.dtype and error(result, wanted) < 2e-6


FLOATS = {"scales": (None, np.array([1, 1, 1.5, 0.6], np.float32)), "sizes": (None, None, np.array([1, 2, 8, 3]))}


@pytest.mark.thinned(12)
@pytest.mark.parametrize("size", FLOATS)
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize(
    "attributes",
    [
        *({"mode": "nearest", "nearest_mode": mode} for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
        {"mode": "linear"},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic"},
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    ],
    ids=lambda given: "-".join(map(str, given.values())),
)
def test_a_resize_by_what_leaves_a_rest(attributes: dict[str, Any], coordinates: str, size: str) -> None:
    """5 * 1.5 places are 7, which are 1.5 times as dense, not 7 / 5."""
    x = pt.variable("x", "float32", (1, 2, 5, 7))
    inputs = [None if array is None else pt.constant(array) for array in FLOATS[size]]
    node = pt.op("Resize", x, *inputs, coordinate_transformation_mode=coordinates, **attributes)
    same(pt.Graph([node], inputs=[x]), normal(1, 2, 5, 7))


def test_the_nearest_of_whole_numbers() -> None:
    x = pt.variable("x", "int32", (7,))
    node = pt.op("Resize", x, None, None, pt.constant(np.array([1])), nearest_mode="floor")
    same(pt.Graph([node], inputs=[x]), np.arange(7, dtype=np.int32))


def test_a_resize_of_some_dimensions() -> None:
    x = pt.variable("x", "float32", (4, 5, 6))
    node = pt.op("Resize", x, None, pt.constant(np.array([0.5, 1.7], np.float32)), axes=[2, 0], mode="linear")
    same(pt.Graph([node], inputs=[x]), normal(4, 5, 6))


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_a_reduction_along_nothing(op: str) -> None:
    """The numbers are still squared, or lose their signs."""
    x = pt.variable("x", "float32", (3, 5))
    same(pt.Graph([pt.op(op, x, noop_with_empty_axes=1)], inputs=[x]), normal(3, 5))


@pytest.mark.parametrize("sizes", [[1, 2, 1, 3], [1, 2, 5, 1], [1, 2, 3, 7]])
def test_a_resize_that_keeps_the_first_places(sizes: list[int]) -> None:
    x = pt.variable("x", "float32", (1, 2, 5, 7))
    same(pt.Graph([pt.op("Resize", x, None, None, pt.constant(np.array(sizes)), nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric")], inputs=[x]), normal(1, 2, 5, 7))


@pytest.mark.parametrize("opset", [9, 13])
def test_the_logarithm_of_a_sum_takes_no_op_that_is_younger(opset: int) -> None:
    x = pt.variable("x", "float32", (3, 4))
    y = pt.op("ReduceLogSumExp", x, axes=[1], keepdims=0, opset=opset)
    value = np.array([[1, 2, 3, 100], [np.inf, 0, -np.inf, 1], [-np.inf] * 4], np.float32)
    result = compiled(pt.Graph([y], inputs=[x], opsets={"": opset})).run([value])[0]
    np.testing.assert_allclose(result, [100, np.inf, -np.inf], rtol=1e-6)


@pytest.mark.parametrize(("axes", "shape"), [([2], (1, 16, 1)), ([0, 2, 3], (2, 3, 4, 5))])
def test_a_norm_of_equal_numbers(axes: list[int], shape: tuple[int, ...]) -> None:
    x = pt.variable("x", "float32", shape)
    graph = pt.Graph([pt.op("MeanVarianceNormalization", x, axes=axes)], inputs=[x])
    assert not compiled(graph).run([np.full(shape, 0.5, np.float32)])[0].any()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_shrink_by_a_part_of_one(dtype: str) -> None:
    x = pt.variable("x", dtype, (4,))
    graph = pt.Graph([pt.op("Shrink", x, lambd=0.25, bias=0.125)], inputs=[x])
    assert compiled(graph).run([np.array([123, 1, 0, 7], dtype)])[0].tolist() == [122, 0, 0, 6]


@pytest.mark.parametrize("batch", [1, "N"])
def test_the_nearest_pixel_to_no_position_is_nan(batch: int | str) -> None:
    x, grid = pt.variable("x", "float32", (batch, 2, 4, 5)), pt.variable("grid", "float32", (batch, 3, 2, 2))
    graph = pt.Graph([pt.op("GridSample", x, grid, mode="nearest", opset=20)], [x, grid], opsets={"": 20})
    image = np.arange(40, dtype=np.float32).reshape(1, 2, 4, 5)
    positions = np.zeros((1, 3, 2, 2), np.float32)
    positions[0, 1, 0, 1] = np.nan
    model = pt.compile(graph, "cpu")
    result = model(image, positions)[0]
    assert np.isnan(result[:, :, 1, 0]).all()
    np.testing.assert_array_equal(result, pt.compile(graph, "reference")(image, positions)[0])


TURNED = [
    ((2, 3, 4, 8), {}, True),
    ((2, 3, 4, 8), {"interleaved": 1}, False),
    ((2, 4, 24), {"num_heads": 3, "rotary_embedding_dim": 4}, True),
    ((2, 3, 4, 8), {"rotary_embedding_dim": 6, "interleaved": 1}, True),
]


@pytest.mark.parametrize(("shape", "attributes", "by_position"), TURNED)
def test_pairs_are_turned_as_onnx_says(shape: tuple[int, ...], attributes: dict[str, int], by_position: bool) -> None:
    half = attributes.get("rotary_embedding_dim", 8) // 2
    tables = [normal(*((9,) if by_position else (2, 4)), half) for _ in range(2)]
    values = [normal(*shape), *tables, *([np.array([[3, 1, 4, 1], [5, 8, 2, 6]])] if by_position else [])]
    inputs = [pt.variable(f"x{i}", value.dtype.name, value.shape) for i, value in enumerate(values)]
    node = pt.op("RotaryEmbedding", *inputs, opset=23, **attributes)
    whole = pt.Graph([node], inputs, opsets={"": 23})
    parts = decomposed(node, whole.opsets)
    assert parts is not None and "RotaryEmbedding" not in {inner.op for inner in parts.nodes}
    (wanted,), (given,) = interpret(whole, values), interpret(parts, values)
    assert_close(given, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "taps", "has_bias"),
    [
        ((80, 1, 400), (80,), True),
        ((2, 3, 23), (4,), False),
        ((1, 3, 5, 17, 16), (2, 4, 4), True),
        ((2, 2, 4, 4, 4), (1, 2, 4), False),
    ],
)
def test_windows_side_by_side_are_patches_of_a_product(sizes: tuple[int, ...], taps: tuple[int, ...], has_bias: bool) -> None:
    """Signals of few windows, and volumes, went to TVM's own schedules, which took 5 to 20 times as long."""
    draw = np.random.default_rng(0)
    x, weight = pt.variable("x", "float32", sizes), pt.constant(draw.standard_normal((6, sizes[1], *taps)).astype("f"))
    bias = [pt.constant(draw.standard_normal(6).astype("f"))] if has_bias else []
    graph = pt.Graph([pt.op("Conv", x, weight, *bias, strides=list(taps), kernel_shape=list(taps))])
    model = check(graph, [draw.standard_normal(sizes).astype("f")])
    assert not {"generic", "parallel"} & set(schedules(model)), schedules(model)


@pytest.mark.parametrize(("op", "opset", "attrs"), [("ReduceLogSumExp", 7, {"axes": [1]}), ("TopK", 10, {})])
def test_parts_for_which_the_version_lacks_an_op_are_left_to_others(op: str, opset: int, attrs: dict[str, Any]) -> None:
    """The whole model could not be compiled."""
    x, more = pt.variable("x", "float32", (3, 5)), [pt.constant(np.array([2]))] if op == "TopK" else []
    graph = pt.Graph([pt.op(op, x, *more, opset=opset, **attrs)], opsets={"": opset})
    data = np.array([[1, np.nan, 2, np.inf, 3]] * 3, np.float32)
    np.testing.assert_array_equal(pt.compile(graph, "HETERO:cpu,reference")(data)[0], pt.compile(graph, "reference")(data)[0])
