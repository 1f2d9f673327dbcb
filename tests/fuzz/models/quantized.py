"""Recipes: quantized graphs."""

from __future__ import annotations

import numpy as np

from partita.graph.node import NodeEntry
from tests.fuzz.models.builder import Builder
from tests.fuzz.models.recipes import recipe


@recipe("QuantizeLinear")
def quantize(b: Builder, op: str) -> None:
    """QuantizeLinear and DequantizeLinear after it, as in a model trained for it."""
    given = b.tensor("float32", when=lambda array: array.ndim > 0 and bool(np.isfinite(array).all()))
    axis, points = points_of(b, given, b.choice("uint8", "int8"))
    result = b.add(op, given, *points, axis=axis)
    b.add("DequantizeLinear", result[0], *points, axis=axis)


def points_of(b: Builder, given, kind):  # type: ignore[no-untyped-def]
    """A scale and a zero point: for all numbers, or for each place along an axis."""
    axis = b.rng.randrange(len(b.shape(given))) if b.opset >= 13 and b.chance(0.4) else None
    sizes = () if axis is None else (b.shape(given)[axis],)
    scale = b.constant(b.random.uniform("float32", sizes, 0.02, 0.3))
    point = b.constant(b.random.within(kind, sizes, 0, 9))
    return axis, (scale, point)


@recipe("DequantizeLinear")
def dequantize(b: Builder, op: str) -> None:
    """Integers to numbers."""
    kind = b.choice("uint8", "int8", "int32")
    given = b.tensor(kind, when=lambda array: array.ndim > 0)
    axis, (scale, point) = points_of(b, given, kind)
    b.add(op, given, scale, *((point,) if kind != "int32" and b.chance(0.8) else ()), axis=axis)


@recipe("DynamicQuantizeLinear")
def dynamic(b: Builder, op: str) -> None:
    """DynamicQuantizeLinear, whose scale comes from the values."""
    b.add(
        op, b.tensor("float32", when=lambda array: bool(array.size and np.isfinite(array).all())), n_outputs=3
    )


def points_by(b: Builder, kind: str, size: int) -> NodeEntry:
    """One zero point for all numbers, or one for each row or column."""
    return b.given(b.random.within(kind, (size,), 0, 9)) if b.chance(0.3) else b.number(b.choice(0, 1, 5), kind)


@recipe("MatMulInteger QLinearMatMul")
def products(b: Builder, op: str) -> None:
    """Products of integers."""
    m, k, n = (b.choice(1, 2, 3, 5, 8, 17) for _ in range(3))
    kinds = b.choice("uint8", "int8"), b.choice("uint8", "int8")
    left, right = b.tensor(kinds[0], (m, k)), b.tensor(kinds[1], (k, n))
    points = [points_by(b, kind, size) for kind, size in zip(kinds, (m, n))]
    if op == "MatMulInteger":
        b.add(op, left, right, *points[: b.choice(0, 1, 2)])
        return
    scales = [b.number(value, "float32") for value in (0.0625, 0.125, 0.5)]
    for i, point in enumerate(points):
        if b.shape(point):
            scales[i] = b.given(b.random.uniform("float32", b.shape(point), 0.05, 0.2))
    b.add(
        op,
        left,
        scales[0],
        points[0],
        right,
        scales[1],
        points[1],
        scales[2],
        b.number(b.choice(0, 4), kinds[0]),
    )


@recipe("QDQ")
def sandwich(b: Builder, op: str) -> None:
    """An op between DequantizeLinear and QuantizeLinear, as quantizers write it."""
    kind = b.choice("uint8", "int8")

    def through(entry):  # type: ignore[no-untyped-def]
        points = (b.constant(np.float32(0.0625)), b.constant(np.array(b.choice(0, 3), kind)))
        return b.add("DequantizeLinear", b.add("QuantizeLinear", entry, *points)[0], *points)[0]

    m, k, n = (b.choice(1, 3, 8, 16) for _ in range(3))
    finite = lambda array: bool(np.isfinite(array).all())  # noqa: E731
    if b.chance(0.5):
        result = b.add(
            "MatMul",
            through(b.tensor("float32", (m, k), when=finite)),
            through(b.tensor("float32", (k, n), when=finite)),
        )
    else:
        x, w = b.tensor("float32", (1, k, 5, 5), when=finite), b.tensor("float32", (n, k, 3, 3), when=finite)
        result = b.add("Conv", through(x), through(w), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    if b.chance(0.4):
        result = b.add("Relu", result[0])
    through(result[0])
