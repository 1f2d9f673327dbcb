"""Integers and scales of lowered products: what they stand for is as close as their steps allow."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.precision.lowered_ops import (
    Integers,
    block_of,
    bytes_won,
    channel_axis,
    half_bytes,
    lowerable,
    lowered,
    moved_from,
    signed_bytes,
    why_not,
)
from partita.graph.types import Array

RANDOM = np.random.default_rng(21)


@pytest.mark.parametrize(
    ("bounds", "point"),
    [((0.0, 2.55), 0), ((0.5, 2.55), 0), ((-1.0, 1.0), 127), ((-2.55, 0.0), 255), ((-2.55, -0.5), 255), ((-0.51, 2.04), 51)],
)
def test_bytes_reach_from_end_to_end_and_hold_zero(bounds: tuple[float, float], point: int) -> None:
    step = Integers.of(bounds)
    assert step.point == point
    low, high = (float(step.scale) * (end - point) for end in (0, 255))
    assert low <= min(bounds[0], 0) + step.scale / 2 and high >= max(bounds[1], 0) - step.scale / 2
    assert step.scale == np.float32((max(bounds[1], 0) - min(bounds[0], 0)) / 255)


@pytest.mark.parametrize("bounds", [(0.0, 0.0), (0.0, 1e-40), (-np.inf, np.inf), (np.nan, np.nan)])
def test_a_range_without_steps_has_scale_one(bounds: tuple[float, float]) -> None:
    with np.errstate(invalid="ignore"):
        assert Integers.of(bounds).scale == 1.0


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_are_off_by_half_a_step_of_their_channel(axis: int) -> None:
    weights = RANDOM.standard_normal((6, 8)).astype(np.float32) * np.logspace(-3, 3, 6, dtype=np.float32)[:, None]
    np.moveaxis(weights, axis, 0)[2] = 0
    integers, scales = signed_bytes(weights, axis)
    across = np.expand_dims(scales, 1 - axis)
    assert integers.dtype == np.int8 and scales.shape == (weights.shape[axis],) and scales[2] == 1
    assert (np.abs(integers * across - weights) <= across / 2 * 1.0001).all()
    largest = np.abs(np.moveaxis(integers, axis, 0).astype(np.int32)).max(1)
    assert (largest == np.where(np.arange(len(largest)) == 2, 0, 127)).all()


@pytest.mark.parametrize(("depth", "block"), [(64, 32), (96, 32), (48, 16), (24, 8), (20, 20), (7, 7)])
def test_columns_are_cut_into_blocks_that_divide_them(depth: int, block: int) -> None:
    assert block_of(depth) == block


@pytest.mark.parametrize("axis", [0, 1])
def test_half_bytes_are_off_by_half_a_step_of_their_block(axis: int) -> None:
    weights = np.moveaxis(RANDOM.standard_normal((48, 5)).astype(np.float32), 0, axis)
    np.moveaxis(weights, axis, 0)[16:32, 1] = 0
    integers, scales = half_bytes(weights, axis)
    columns, blocks = (np.moveaxis(part, axis, 0) for part in (integers.astype(np.float32), scales))
    assert (columns.shape, blocks.shape) == ((48, 5), (3, 5)) and blocks[1, 1] == 1
    wide = np.repeat(blocks, 16, axis=0)
    assert (np.abs(columns * wide - np.moveaxis(weights, axis, 0)) <= wide / 2 * 1.0001).all()
    most = np.abs(columns).reshape(3, 16, 5).max(1)
    assert most[1, 1] == 0 and np.delete(most.reshape(-1), 6).tolist() == [7] * 14


def product(kind: str, shape: tuple[int, ...], **attributes: object) -> pt.Node:
    x = pt.variable("x", "float32", (2, *shape[1:]) if kind == "Conv" else (2, shape[1 if attributes.get("transB") else 0]))
    y = pt.op(kind, x, pt.constant(np.ones(shape, np.float32), "w"), name="product", **attributes)
    (node,) = [node for node in pt.apply_pass(pt.Graph([y]), "InferShape").nodes if node.is_op]
    return node


@pytest.mark.parametrize(
    ("node", "axis", "won"),
    [
        (product("Conv", (6, 4, 1, 1)), 0, (72, 48, 60)),
        (product("MatMul", (64, 3)), 1, (576, 384, 648)),
        (product("Gemm", (64, 3)), 1, (576, 384, 648)),
        (product("Gemm", (3, 64), transB=1), 0, (576, 384, 648)),
    ],
)
def test_channels_of_a_product_and_what_each_precision_saves(node: pt.Node, axis: int, won: tuple[int, int, int]) -> None:
    assert channel_axis(node) == axis
    assert (bytes_won(node, "int8"), bytes_won(node, "bf16"), bytes_won(node, "int4-weights")) == won


def test_the_values_that_a_value_is_moved_from() -> None:
    x = pt.variable("x", "float32", (2, 3, 4))
    relu = pt.op("Relu", x, name="relu")
    turned = pt.op("Transpose", relu, perm=[0, 2, 1], name="turned")
    last = pt.op("Reshape", turned, pt.constant(np.array([2, -1])), name="last")
    assert [entry.name for entry in moved_from(last[0])] == ["last", "turned", "relu"]
    halves = pt.op("Split", relu, axis=1, n_outputs=3, name="halves")
    assert moved_from(halves[1]) == [halves[1]]
    still = pt.op("Transpose", pt.constant(np.ones((2, 3)), "table"), name="still")
    assert [entry.name for entry in moved_from(still[0])] == ["still"]


def test_products_that_may_be_lowered() -> None:
    x, w = pt.variable("x", "float32", (4, 4)), np.ones((4, 4), np.float32)
    far = w.copy()
    far[0, 0] = np.inf
    rows = {
        "plain": pt.op("MatMul", x, pt.constant(w)), "gemm": pt.op("Gemm", x, pt.constant(w), name="gemm"),
        "alpha": pt.op("Gemm", x, pt.constant(w), alpha=2.0), "beta": pt.op("Gemm", x, pt.constant(w), pt.constant(w), beta=0.5),
        "turned": pt.op("Gemm", x, pt.constant(w), transA=1), "computed": pt.op("MatMul", x, x),
        "not finite": pt.op("MatMul", x, pt.constant(far)), "vector": pt.op("MatMul", x, pt.constant(w[0])),
        "constants": pt.op("MatMul", pt.constant(w), pt.constant(w)), "double": pt.op("Relu", x),
    }
    named = [node.evolve(name=name, output_names=(name,)) for name, node in rows.items()]
    graph = pt.apply_pass(pt.Graph(named, inputs=[x]), "InferShape")
    assert [node.name for node in lowerable(graph)] == ["plain", "gemm"]


CONV, MATMUL = product("Conv", (6, 4, 1, 1)), product("MatMul", (64, 3))


@pytest.mark.parametrize(
    ("node", "precision", "enough"),
    [(MATMUL, "int8", 13), (CONV, "int8", 13), (MATMUL, "int8-weights", 13), (MATMUL, "int4-weights", 21), (MATMUL, "bf16", 13),
     (CONV, "bf16", 22)],
)
def test_the_first_opset_of_each_precision(node: pt.Node, precision: str, enough: int) -> None:
    assert why_not(node, precision, enough) is None and f"{enough}" in str(why_not(node, precision, enough - 1))


def test_precisions_that_every_opset_has_and_those_that_win_nothing() -> None:
    assert why_not(CONV, "f16", 7) is None
    for precision in ("int8-weights", "int4-weights"):
        assert "wins nothing" in str(why_not(CONV, precision, 23))


@pytest.mark.parametrize(
    ("bias", "is_integer"),
    [
        (np.arange(3), True), (np.full(3, 2.0**40), False), (np.zeros((1, 3)), False), (np.zeros((2, 3)), False),
        (np.zeros(()), False),
    ],
)
def test_a_bias_is_stored_as_integers_where_these_hold_it(bias: Array, is_integer: bool) -> None:
    """In units of both scales, one for each channel."""
    x, w = pt.variable("x", "float32", (2, 4)), pt.constant(np.ones((4, 3), np.float32), "w")
    product = pt.op("Gemm", x, w, pt.constant(bias.astype(np.float32), "b"), name="product")
    graph = pt.apply_pass(pt.Graph([product], [x]), "InferShape")
    result = lowered(graph, {"product": "int8"}, {"x": (-1.0, 1.0)})
    (node,) = [node for node in result.nodes if node.op == "Gemm"]
    given = node.inputs[2]
    assert given is not None and (given.node.op == "DequantizeLinear") is is_integer
    if is_integer:
        (units, *_) = given.node.reads
        assert units.node.value is not None and units.node.value.dtype == np.int32
        step = Integers.of((-1.0, 1.0)).scale / 127
        np.testing.assert_allclose(units.node.value * step, bias, atol=float(step) / 2 * 1.001)
