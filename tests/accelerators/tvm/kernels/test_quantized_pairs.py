"""Products of two quantized values, by every instruction, held against exact sums."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.machine.instructions import INSTRUCTIONS
from partita.graph.types import Array
from tests.accelerators.tvm.quantizing import dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled
from tests.close import is_close

pytest.importorskip("tvm")

NAMES = [row.name for row in INSTRUCTIONS if row.multiplies == "int8"]


@attrs.frozen
class Pair:
    """Two quantized values that are multiplied, as attention has them."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    dtypes: tuple[str, str] = ("uint8", "uint8")
    points: tuple[int, int] = (7, 130)
    turned: bool = False
    shared: bool = False

    factor = np.float32(0.02)
    result = np.float32(0.9)

    @property
    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        right = (self.columns, self.depth) if self.turned else (self.depth, self.columns)
        return (*self.batch, self.rows, self.depth), (*(() if self.shared else self.batch), *right)

    @property
    def inputs(self) -> list[Array]:
        return [integers(seed, shape, dtype) for seed, (shape, dtype) in enumerate(zip(self.sides, self.dtypes, strict=True))]

    def graph(self) -> pt.Graph:
        """DequantizeLinear of both, the product, QuantizeLinear."""
        given = [pt.variable(name, dtype, shape) for name, dtype, shape in zip("ab", self.dtypes, self.sides, strict=True)]
        left, right = (dequantized(x, self.factor, point) for x, point in zip(given, self.points, strict=True))
        if self.turned:
            rank = len(self.sides[1])
            right = pt.op("Transpose", right, perm=[*range(rank - 2), rank - 1, rank - 2])
        return pt.apply_pass(pt.Graph([quantized(pt.op("MatMul", left, right), float(self.result), 5)], given), "InferShape")

    def expected(self) -> Array:
        """The sums, scaled once, rounded half to even, saturated."""
        left, right = (x.astype(np.int64) - point for x, point in zip(self.inputs, self.points, strict=True))
        sums = left @ (np.swapaxes(right, -1, -2) if self.turned else right)
        factor = np.float32(self.factor * self.factor) / self.result
        return np.clip(np.rint(sums.astype("f") * factor) + 5, 0, 255).astype("uint8")


PAIRS = {
    "scores": Pair((2, 3), 19, 32, 37, turned=True),
    "mix": Pair((2, 2), 9, 21, 48, ("uint8", "int8"), (0, -3)),
    "one row": Pair((3,), 1, 40, 64, ("int8", "uint8"), (-9, 128)),
    "few columns": Pair((), 12, 30, 5, ("int8", "int8"), (4, 0)),
    "one product": Pair((4,), 6, 1, 20),
    "shared": Pair((2, 3), 5, 10, 33, shared=True),
}


def product_of(pair: Pair, name: str, **config: int) -> Array:
    """What an instruction makes of it, in one kernel."""
    model = compiled(pair.graph(), INTEGERS=name, **config)
    (launch,) = model.launches
    assert "MatMul+QuantizeLinear" in launch.layer_type
    return np.asarray(model.run(pair.inputs, [None])[0])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("name", NAMES)
def test_a_product_of_two_values_is_exact(kind: str, name: str) -> None:
    pair = PAIRS[kind]
    assert np.array_equal(product_of(pair, name, NUM_THREADS=1), pair.expected())


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Products of every size, small."""
    dtypes = draw(st.sampled_from(("uint8", "int8"))), draw(st.sampled_from(("uint8", "int8")))
    points = [draw(st.integers(low, low + 255)) for low in (0 if dtype == "uint8" else -128 for dtype in dtypes)]
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    sizes = draw(st.integers(1, 40)), draw(st.integers(1, 70)), draw(st.integers(1, 70))
    return Pair(batch, *sizes, dtypes, (points[0], points[1]), draw(st.booleans()), draw(st.booleans()))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pair=pairs(), threads=st.sampled_from((1, 2)))
@pytest.mark.thinned(2)
def test_any_product_of_two_values_is_exact(pair: Pair, name: str, threads: int) -> None:
    assert np.array_equal(product_of(pair, name, NUM_THREADS=threads), pair.expected())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pair=pairs(), threads=st.sampled_from((1, 2)))
def test_very_many_products_of_two_values_are_exact(pair: Pair, name: str, threads: int) -> None:
    assert np.array_equal(product_of(pair, name, NUM_THREADS=threads), pair.expected())


def test_sums_of_products_of_two_values_are_exact() -> None:
    """MatMulInteger, with zero points on both sides."""
    a, b = integers(0, (2, 9, 300), "int8"), integers(1, (2, 300, 21), "uint8")
    points = pt.constant(np.int8(-5)), pt.constant(np.uint8(131))
    given = pt.variable("a", "int8", a.shape), pt.variable("b", "uint8", b.shape)
    graph = pt.apply_pass(pt.Graph([pt.op("MatMulInteger", *given, *points)], list(given)), "InferShape")
    assert np.array_equal(compiled(graph).run([a, b], [None])[0], (a.astype(int) + 5) @ (b.astype(int) - 131))


@pytest.mark.parametrize(("depth", "dtype", "point"), [(30, "uint8", 100), (30, "int8", -7), (1, "uint8", 100), (1, "int8", -7)])
def test_a_gemm_of_two_values_turns_them_and_adds_its_bias(depth: int, dtype: str, point: int) -> None:
    a, b = integers(0, (depth, 8), dtype), integers(1, (21, depth), "int8")
    bias = np.random.default_rng(2).standard_normal(21).astype("f")
    given = pt.variable("a", dtype, a.shape), pt.variable("b", "int8", b.shape)
    sides = dequantized(given[0], 0.02, point), dequantized(given[1], 0.01, -3)
    node = pt.op("Gemm", *sides, pt.constant(bias), transA=1, transB=1, alpha=0.5)
    model = compiled(pt.apply_pass(pt.Graph([node], list(given)), "InferShape"))
    assert [launch.layer_type for launch in model.launches] == ["Transpose+Transpose+MatMul+Add"]
    wanted = (a.astype(int).T - point) @ (b.astype(int).T + 3) * (0.02 * 0.01 * 0.5) + bias
    assert is_close(model.run([a, b], [None])[0], wanted)


def test_a_weight_whose_distances_are_no_bytes_is_multiplied_as_a_value() -> None:
    x, weight = integers(0, (5, 40), "uint8"), integers(1, (40, 24), "uint8")
    node = pt.op("MatMul", dequantized(pt.variable("x", "uint8", x.shape), 0.5, 3), dequantized(weight, 0.25, 90))
    model = compiled(pt.apply_pass(pt.Graph([node]), "InferShape"))
    (launch,) = model.launches
    assert launch.layer_type == "MatMul"
    assert model.kernels()[0].schedule == "quantized pair"
    sums = (x.astype(int) - 3) @ (weight.astype(int) - 90)
    assert np.array_equal(model.run([x], [None])[0], sums.astype("f") * np.float32(0.125))


@pytest.mark.parametrize("right", ["value", "weight"])
def test_a_clip_between_a_product_and_its_rounding_is_of_the_same_numbers(right: str) -> None:
    x, y = integers(0, (6, 16), "uint8"), integers(1, (16, 24), "int8")
    side = dequantized(y, 0.25) if right == "weight" else dequantized(pt.variable("y", "int8", y.shape), 0.25, 0)
    product = pt.op("MatMul", dequantized(pt.variable("x", "uint8", x.shape), 0.5, 100), side)
    clipped = pt.op("Clip", product, pt.constant(np.float32(-30)), pt.constant(np.float32(500)))
    graph = pt.apply_pass(pt.Graph([quantized(clipped, 4.0, 20)]), "InferShape")
    by_name = {"x": x, "y": y}
    (result,) = compiled(graph).run([by_name[node.name] for node in graph.inputs], [None])
    numbers = ((x.astype(int) - 100) @ y.astype(int)) * np.float32(0.125)
    assert np.array_equal(result, np.clip(np.rint(np.clip(numbers, -30, 500) / 4) + 20, 0, 255).astype("uint8"))
