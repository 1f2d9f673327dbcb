"""Scales and zero points that are constant: those of ops and of weights, and the sums for which int32 has room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.quantized import DOMAIN, WEIGHT
from partita.accelerators.tvm.layouts.blocking import find_shuffles
from partita.accelerators.tvm.layouts.quantized.conv_integer import whole_convolution_of
from partita.accelerators.tvm.layouts.quantized.scales import (
    DEEPEST,
    LEAST,
    Scaling,
    distances_of,
    is_lossless,
    scaling_of,
    weight_of,
    whole_weight,
)
from partita.accelerators.tvm.layouts.transposing import find_phases
from partita.accelerators.tvm.sizes.gathered import goes_forward
from partita.graph.types import Array, numpy_dtype


def c(value: Any, dtype: str = "float32") -> pt.Node:
    return pt.constant(np.asarray(value, numpy_dtype(dtype)))


def typed(node: pt.Node) -> pt.Node:
    return pt.apply_pass(pt.Graph([node]), "InferShape")[node.name]


def quantized(scale: Any, point: Any = None, shape: tuple[Any, ...] = (2, 3), **attributes: Any) -> pt.Node:
    return typed(pt.op("QuantizeLinear", pt.variable("x", "float32", shape), scale, point, name="it", **attributes))


def dequantized(dtype: str, scale: Any, point: Any = None, shape: tuple[Any, ...] = (2, 3), **attributes: Any) -> pt.Node:
    return typed(pt.op("DequantizeLinear", pt.variable("x", dtype, shape), scale, point, name="it", **attributes))


@pytest.mark.parametrize(
    ("node", "scale", "point", "axis"),
    [
        (quantized(c(0.5), c(3, "uint8")), 0.5, 3, None),
        (quantized(c(0.5), c(-3, "int8")), 0.5, -3, None),
        (quantized(c(0.5)), 0.5, 0, None),
        (quantized(c([0.5]), c([3], "uint8")), 0.5, 3, None),
        (quantized(c([1, 2, 3]), c([4, 5, 6], "uint8")), [1, 2, 3], [4, 5, 6], 1),
        (quantized(c([1, 2]), c([4, 5], "uint8"), axis=0), [1, 2], [4, 5], 0),
        (quantized(c([1, 2]), c([4, 5], "uint8"), axis=-2), [1, 2], [4, 5], 0),
        (dequantized("uint8", c(0.5), c(3, "uint8")), 0.5, 3, None),
        (dequantized("int8", c([1, 2]), axis=0), [1, 2], [0, 0], 0),
        (dequantized("int32", c(0.5)), 0.5, 0, None),
    ],
)
def test_scalings_of_ops(node: pt.Node, scale: Any, point: Any, axis: int | None) -> None:
    found = scaling_of(node)
    assert found is not None
    assert (found.scale.tolist(), found.point.tolist(), found.axis) == (scale, point, axis)


@pytest.mark.parametrize(
    "node",
    [
        quantized(pt.variable("s", "float32", ())),
        quantized(c(0.5), pt.variable("p", "uint8", ())),
        quantized(c([1, 2, 3, 4]), c([1, 2, 3, 4], "uint8"), shape=(2, "N")),
        quantized(c([[1, 2], [3, 4]]), c([[1, 2], [3, 4]], "uint8"), shape=(2, 4), block_size=2),
        quantized(c(0.5), c(3, "int4")),
        dequantized("uint4", c(0.5)),
        quantized(c([1, 2, 3]), shape=("N", 3)),
        dequantized("uint8", c(0.5, "float16")),
        quantized(c(0.5), shape=None),  # type: ignore[arg-type]
        typed(pt.op("Relu", pt.variable("x", "float32", (2, 3)), name="it")),
    ],
)
def test_ops_without_a_known_scaling(node: pt.Node) -> None:
    assert scaling_of(node) is None


@pytest.mark.parametrize(
    ("scale", "answer"),
    [(1, True), (0, True), (-1, True), (LEAST, True), (LEAST / 2, False), (1 / LEAST, True), (2 / LEAST, False), (np.nan, False)],
)
def test_scales_without_loss(scale: float, answer: bool) -> None:
    array = np.array([scale, 1.0])
    assert is_lossless(array) is is_lossless(np.ones(2), array) is answer
    assert is_lossless()


def test_scalings_that_are_alike() -> None:
    one, zero = np.array(0.5, np.float32), np.uint8(3)
    scaling = Scaling(one, np.asarray(zero), None)
    assert scaling.is_like(Scaling(one.copy(), np.asarray(zero), None)) and not scaling.is_like(None)
    for other in (
        Scaling(one * 2, np.asarray(zero), None), Scaling(one, np.asarray(zero + np.uint8(1)), None),
        Scaling(one, np.asarray(np.int8(3)), None), Scaling(one, np.asarray(zero), 0),
    ):
        assert not scaling.is_like(other)
    assert scaling.is_plain and scaling.unsigned_point == 3
    assert Scaling(one, np.asarray(np.int8(-128)), None).unsigned_point == 0
    assert not Scaling(-one, np.asarray(zero), None).is_plain and not Scaling(one * 0, np.asarray(zero), None).is_plain
    assert not Scaling(np.float32([1, 2]), np.uint8([0, 0]), 0).is_plain
    assert not Scaling(np.float32(LEAST / 2), np.asarray(zero), None).is_plain


def weight(array: Array, scale: Any, point: Any, **attributes: Any) -> pt.NodeEntry:
    node = typed(pt.op("DequantizeLinear", pt.constant(array), scale, point, name="it", **attributes))
    return node.evolve(op=WEIGHT, domain=DOMAIN)[0]


SIGNED, UNSIGNED = np.array([[-128, 0, 127], [1, 2, 3]], np.int8), np.array([[0, 128, 255], [1, 2, 3]], np.uint8)


@pytest.mark.parametrize(
    ("entry", "axis", "distances", "fits"),
    [
        (weight(SIGNED, c(0.5), c(0, "int8")), 0, SIGNED, True),
        (weight(SIGNED, c(0.5), c(1, "int8")), 0, SIGNED.astype(int) - 1, False),
        (weight(UNSIGNED, c(0.5), c(128, "uint8")), 0, UNSIGNED.astype(int) - 128, True),
        (weight(UNSIGNED, c(0.5), c(127, "uint8")), 0, UNSIGNED.astype(int) - 127, False),
        (weight(UNSIGNED, c([1, 2]), c([128, 1], "uint8"), axis=0), 0, UNSIGNED.astype(int) - [[128], [1]], True),
        (weight(UNSIGNED, c([1, 2, 3]), c([1, 128, 200], "uint8"), axis=1), 1, UNSIGNED.astype(int) - [[1, 128, 200]], False),
        (weight(UNSIGNED, c([1, 2, 3]), c([1, 128, 200], "uint8"), axis=1), 0, None, False),
    ],
)
def test_distances_of_weights(entry: pt.NodeEntry, axis: int, distances: Array | None, fits: bool) -> None:
    found = distances_of(entry, axis)
    assert (found is None) is (distances is None)
    assert found is None or found[0].tolist() == np.asarray(distances).tolist()
    signed = weight_of(entry, axis)
    assert (signed is not None) is fits
    assert signed is None or (signed[0].dtype == np.int8 and signed[0].tolist() == np.asarray(distances).tolist())


def test_matrices_of_bytes() -> None:
    point = c(128, "uint8")[0]
    found = whole_weight(pt.constant(UNSIGNED)[0], point)
    assert found is not None and found.tolist() == (UNSIGNED.astype(int) - 128).tolist()
    assert whole_weight(pt.constant(SIGNED)[0], None) is not None
    assert whole_weight(pt.constant(UNSIGNED)[0], None) is None, "255 is not a signed byte"
    assert whole_weight(pt.constant(SIGNED[0])[0], None) is None
    assert whole_weight(pt.constant(SIGNED.astype(np.int16))[0], None) is None
    assert whole_weight(pt.variable("w", "int8", (2, 3))[0], None) is whole_weight(None, None) is None
    assert whole_weight(pt.constant(SIGNED)[0], pt.variable("p", "int8", ())[0]) is None
    assert whole_weight(pt.constant(SIGNED)[0], pt.constant(np.zeros((2, 3), np.int8))[0]) is None


def test_the_deepest_sum_of_products_of_bytes() -> None:
    assert DEEPEST * 255**2 <= 2**31 - 1 < (DEEPEST + 1) * 255**2


@pytest.mark.parametrize(
    ("split", "perm", "joined", "rows"),
    [
        ((2, 3, 4, 5, 5), (0, 2, 1, 3, 4), (2, 12, 5, 5), 3),
        ((2, 3, 4, 5, 5), (0, 1, 2, 4, 3), (2, 12, 5, 5), None),
        ((2, 3, 4, 5, 5), (0, 2, 1, 3, 4), (2, 4, 15, 5), None),
        ((2, 12, 5, 5), (0, 2, 1, 3), (2, 12, 5, 5), None),
        ((2, 12, 5, 5, 1), (0, 2, 1, 3, 4), (2, 12, 5, 5), None),
    ],
)
def test_shuffles_of_channels(split: tuple[int, ...], perm: tuple[int, ...], joined: tuple[int, ...], rows: int | None) -> None:
    x = pt.variable("x", "float32", (2, 12, 5, 5))
    turned = pt.op("Transpose", pt.op("Reshape", x, c(split, "int64")), perm=perm)
    graph = pt.apply_pass(pt.Graph([pt.op("Reshape", turned, c(joined, "int64"))]), "InferShape")
    assert [shuffle.rows for shuffle in find_shuffles(graph)] == ([] if rows is None else [rows])


def v(dtype: str, *shape: int) -> pt.Node:
    return pt.variable(None, dtype, shape)


BYTES = np.arange(6 * 4 * 9, dtype=np.int8).reshape(6, 4, 3, 3)


@pytest.mark.parametrize(
    ("inputs", "attributes", "is_taken"),
    [
        ((v("uint8", 1, 4, 8, 8), pt.constant(BYTES)), {}, True),
        ((v("int8", 1, 4, 8, 8), pt.constant(BYTES), v("int8")), {}, True),
        ((v("int8", 1, 4, 8, 8), pt.constant(BYTES), v("int8", 1)), {}, True),
        ((v("uint8", 1, 4, 8, 8), pt.constant(BYTES.view(np.uint8)), v("uint8"), c(127, "uint8")), {}, True),
        ((v("uint8", 1, 4, 8, 8), pt.constant(BYTES.view(np.uint8)), v("uint8"), c(0, "uint8")), {}, False),
        ((v("uint8", 1, 4, 8, 8), pt.constant(BYTES), v("uint8"), c([0] * 6, "int8")), {}, True),
        ((v("uint8", 1, 4, 8, 8), pt.constant(BYTES), v("uint8"), v("int8")), {}, False),
        ((v("uint8", 1, 4, 8, 8), v("int8", 6, 4, 3, 3)), {}, False),
        ((v("uint8", 1, 4, 8), pt.constant(BYTES[..., 0])), {}, False),
        ((v("uint8", 1, 8, 8, 8), pt.constant(BYTES)), {"group": 2}, True),
        ((v("uint8", 0, 4, 8, 8), pt.constant(BYTES)), {}, False),
        ((c(np.ones((1, 4, 8, 8)), "uint8"), pt.constant(BYTES)), {}, False),
    ],
)
def test_convolutions_of_bytes_with_a_kernel(inputs: tuple[Any, ...], attributes: dict[str, int], is_taken: bool) -> None:
    node = typed(pt.op("ConvInteger", *inputs, name="it", **attributes))
    found = whole_convolution_of(node)
    assert (found is not None) is is_taken
    assert found is None or found.moved == (128 if node.inputs[0].type.dtype == "int8" else 0)  # type: ignore[union-attr]


@pytest.mark.parametrize(("most", "is_taken"), [(32, True), (33, True), (34, False)])
def test_sums_that_int32_holds(most: int, is_taken: bool) -> None:
    """Twice 255 times the sum of the weights' sizes is at most 2^31 - 1."""
    weights = np.full((1, 127 * 8, 1, most), 127, np.int8)
    weights[..., -1] = 0
    node = typed(pt.op("ConvInteger", v("uint8", 1, 127 * 8, 4, most), pt.constant(weights), name="it"))
    assert 2 * 255 * np.abs(weights.astype(np.int64)).sum() <= 2**31 - 1 or not is_taken
    assert (whole_convolution_of(node) is not None) is is_taken


def test_depthwise_convolutions_of_bytes() -> None:
    node = typed(pt.op("ConvInteger", v("uint8", 1, 6, 8, 8), pt.constant(BYTES[:, :1]), name="it", group=6))
    found = whole_convolution_of(node)
    assert found is not None and found.is_alone
    node = typed(pt.op("ConvInteger", v("uint8", 1, 1, 8, 8), pt.constant(BYTES[:1, :1]), name="it"))
    found = whole_convolution_of(node)
    assert found is not None and not found.is_alone


@pytest.mark.parametrize(
    ("steps", "answer"), [((), True), ((c([1, 2], "int64"),), True), ((c([1, -1], "int64"),), False), ((v("int64", 2),), False)]
)
def test_slices_that_go_forward(steps: tuple[pt.Node, ...], answer: bool) -> None:
    ends = c([0, 0], "int64"), c([2, 2], "int64"), c([0, 1], "int64")
    assert goes_forward(pt.op("Slice", v("float32", 4, 4), *ends, *steps)) is answer


IMAGE = v("float32", 1, 4, 5, 6)
FILTER = c(np.ones((4, 3, 3, 3)))


@pytest.mark.parametrize(
    ("inputs", "attributes", "is_taken"),
    [
        ((IMAGE, FILTER), {"strides": [2, 2]}, True),
        ((IMAGE, FILTER, c([1, 2, 3])), {"strides": [2, 2]}, True),
        ((IMAGE, FILTER, v("float32", 3)), {"strides": [2, 2]}, False),
        ((IMAGE, v("float32", 4, 3, 3, 3)), {"strides": [2, 2]}, False),
        ((IMAGE, FILTER), {"strides": [4, 2]}, False),
        ((IMAGE, FILTER), {"strides": [3, 3]}, True),
        ((IMAGE, FILTER), {"strides": [2, 2], "dilations": [2, 1]}, False),
        ((IMAGE, c(np.ones((4, 2, 3, 3)))), {"strides": [2, 2], "group": 2}, False),
        ((IMAGE, FILTER), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, False),
        ((IMAGE, FILTER), {"strides": [2, 2], "auto_pad": "VALID"}, True),
        ((IMAGE, FILTER), {"strides": [2, 2], "output_shape": [10, 12]}, False),
        ((v("float32", 1, 4, 5), c(np.ones((4, 3, 3)))), {"strides": [2]}, False),
    ],
)
def test_transposed_convolutions_by_phases(inputs: tuple[pt.Node, ...], attributes: dict[str, Any], is_taken: bool) -> None:
    found = find_phases(typed(pt.op("ConvTranspose", *inputs, name="it", **attributes)), 8)
    assert (found is not None) is is_taken
    assert found is None or (found.sizes, found.channels, found.strides) == ((5, 6), 8, tuple(attributes["strides"]))
