"""PRECISION with sizes that are symbols: one compilation, whose numbers are as close to float32's as those of the kernels for
each size, and the same where these sum in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction.amx import unit_for
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.sizing import sized
from tests.accelerators.tvm.any_size import numbers, specialized

ROUNDING = {"bf16": 2**-8, "f16": 2**-11}

WAYS = [("bf16", "fma"), ("bf16", "amx-bf16"), ("bf16", "vdpbf16ps"), ("f16", "")]
"""Precisions, and instructions that are written out in portable code where the processor lacks them."""


def weight(*shape: int) -> pt.Node:
    return pt.constant(numbers(*shape) / np.float32(np.prod(shape[1:] if len(shape) > 2 else shape[:1]) ** 0.5))


def products() -> pt.Graph:
    """Two products by constant matrices, the second of columns that fill no tile."""
    x = pt.variable("x", "float32", ("N", "S", 64))
    hidden = pt.op("Gelu", pt.op("MatMul", x, weight(64, 96)))
    return pt.Graph([pt.op("Add", pt.op("MatMul", hidden, weight(96, 50)), pt.constant(numbers(50)))], [x])


def attention() -> pt.Graph:
    """Two heads, and products of two values of any length that are not attention."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    split = pt.constant(np.array([0, 0, 2, 16]))
    query, key, value = (
        pt.op("Transpose", pt.op("Reshape", pt.op("MatMul", x, weight(32, 32)), split), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = pt.op("Mul", scores, pt.constant(np.float32(0.25)))
    return pt.Graph([pt.op("MatMul", f, value) for f in (pt.op("Softmax", scaled), pt.op("Tanh", scaled))], [x])


def convolutions() -> pt.Graph:
    x = pt.variable("x", "float32", ("N", 3, "H", "W"))
    y = pt.op("Relu", pt.op("Conv", x, weight(32, 3, 3, 3), pads=[1] * 4, strides=[2, 2]))
    y = pt.op("Relu", pt.op("Conv", y, weight(32, 32, 3, 3), pads=[1] * 4))
    y = pt.op("Conv", pt.op("Conv", y, weight(48, 32, 1, 1)), weight(48, 1, 3, 3), group=48, pads=[1] * 4)
    return pt.Graph([pt.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)], [x])


Shapes = Sequence[tuple[int, ...]]


def differences(graph: pt.Graph, precision: str, instruction: str, shapes: Shapes) -> list[tuple[float, float]]:
    """For each size how far the kernels for any are from those for that size, and from float32, over the largest number."""
    config: dict[str, Any] = {"PRECISION": precision, "NUM_THREADS": 2, "BFLOATS": instruction}
    model, apart = pt.compile(graph, "cpu", config), pt.compile(graph, "cpu", {**config, "ANY_SIZE": False})
    exact, notes = pt.compile(graph, "reference"), " ".join(model.report.notes)
    assert "compiled once for any size" in notes and "no kernel supports them" not in notes, notes
    far = []
    for shape in shapes:
        x = numbers(*shape)
        for a, b, c in zip(model(x), apart(x), exact(x), strict=True):
            assert a.dtype == np.float32 and a.shape == b.shape
            far.append((float(np.abs(a - b).max() / np.abs(c).max()), float(np.abs(a - c).max() / np.abs(c).max())))
    assert specialized(model).sizes == (), "a size was compiled by itself"
    return far


@pytest.mark.parametrize(("precision", "instruction"), [*WAYS[:2], pytest.param(*WAYS[2], marks=pytest.mark.slow), *WAYS[3:]])
@pytest.mark.thinned(3)
def test_products_of_any_number_of_rows(precision: str, instruction: str) -> None:
    sizes = [(1, size, 64) for size in (1, 5, 33)] + [(2, 50, 64)]
    for to_apart, to_exact in differences(products(), precision, instruction, sizes):
        assert to_apart == 0.0 and 0 < to_exact <= 4 * ROUNDING[precision]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "instruction"), [WAYS[0], *[pytest.param(*way, marks=pytest.mark.slow) for way in WAYS[1:]]]
)
def test_attention_of_any_length(precision: str, instruction: str) -> None:
    for to_apart, to_exact in differences(attention(), precision, instruction, [(1, 1, 32), (2, 5, 32), (1, 37, 32)]):
        assert to_apart <= 6 * ROUNDING[precision] and to_exact <= 8 * ROUNDING[precision]


@pytest.mark.parametrize("is_emulated", [False, True])
def test_fewer_columns_than_an_instruction_has_lanes(is_emulated: bool) -> None:
    """Tiles of one lane are part of a kernel for any number of columns, also where the processor has the instruction."""
    left, right = (pt.variable(name, "bfloat16", ("N", size, 16)) for name, size in (("q", "R"), ("k", "K")))
    graph = pt.Graph([pt.op("MatMul", left, pt.op("Transpose", right, perm=[0, 2, 1]))], [left, right])
    body = make_body(sized(pt.apply_pass(graph, "InferShape")).graph)
    draft = draft_kernel(body, Machine("cpu", "znver4", 2, 16, 32, (Used("vdpbf16ps", is_emulated),)))
    assert draft is not None and draft.schedule == "product"


@pytest.mark.parametrize(
    ("precision", "instruction"), [WAYS[1], *[pytest.param(*way, marks=pytest.mark.slow) for way in (WAYS[0], *WAYS[2:])]]
)
def test_images_of_any_size(precision: str, instruction: str) -> None:
    sizes = [(1, 3, 12, 12), (2, 3, 33, 47), (1, 3, 66, 70)]
    for to_apart, to_exact in differences(convolutions(), precision, instruction, sizes):
        assert to_apart == 0.0 and 0 < to_exact <= 4 * ROUNDING[precision]


def test_the_units_tiles_cover_any_number_of_rows() -> None:
    machine = Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("amx-bf16"),))
    unit = unit_for("bfloat16", 840, 96, 64, machine)
    assert unit is not None
    assert [lower.high * lower.rows for lower in unit.heights()] == [1, 2, 4, 8, 16, 32]
    assert all((lower.wide, lower.depth) == (unit.wide, unit.depth) for lower in unit.heights()), "they read the same panels"
    cycles = [lower.half_cycles for lower in unit.heights()]
    assert cycles == sorted(cycles) and cycles[-1] <= 2 * cycles[-2] <= 4 * cycles[0]
