"""Weights that a model stores as bytes or half bytes stay so on the device `cpu`."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from partita.accelerators.tvm.machine.processor import host_features
from partita.graph.interpret import interpret
from tests.accelerators.tvm.narrow import Weight, rows_of, typed
from tests.accelerators.tvm.running import compiled, error, normals, schedules
from tests.drawn import some

pytest.importorskip("tvm")

KINDS = ("int8", "uint8", "int4", "uint4")

LIMIT = 2e-6


def weight_bytes(model: Any) -> int:
    """All that the kernels read beside values."""
    return sum(array.nbytes for array in model.export_weights())


def runs(graph: pt.Graph, *more: Any, **config: Any) -> tuple[Any, list[float]]:
    """The model, and how far its outputs are from those of the graph as it is written."""
    model, inputs = compiled(graph, **config), [rows_of(graph), *more]
    outputs = model.run(inputs, [None] * len(graph.outputs))
    return model, [error(a, b) for a, b in zip(outputs, interpret(graph, inputs), strict=True)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    "weight",
    [
        Weight(70, 100),
        Weight(64, 50, single=True, point=2),
        Weight(96, 33, block=32, point=-1),
        Weight(70, 70, block=32),
        Weight(40, 80, block=20, point=-1),
        Weight(33, 5, point=-1),
    ],
    ids=["each column", "one scale", "blocks", "a block that is cut off", "blocks of twenty", "few columns"],
)
def test_a_product_reads_the_stored_bytes(weight: Weight, dtype: str) -> None:
    weight = attrs.evolve(weight, dtype=dtype, turned=dtype in ("uint8", "int4"))
    for rows in (1, 17):
        model, (off,) = runs(weight.product(rows))
        assert schedules(model) == ["packed product"]
        assert off <= LIMIT


@some
@given(
    st.integers(1, 20), st.integers(1, 90), st.integers(1, 90), st.sampled_from(KINDS), st.sampled_from((0, 1, 5, 12, 20, 24)),
    st.sampled_from((None, 1, -1)), st.booleans(),
)
def test_products_of_every_size(
    rows: int, depth: int, columns: int, dtype: str, block: int, point: int | None, turned: bool
) -> None:
    weight = Weight(depth, columns, dtype, block if block < depth else 0, point, turned)
    model, (off,) = runs(weight.product(rows))
    assert schedules(model) == ["packed product"]
    assert off <= LIMIT


@pytest.mark.parametrize("dtype", ["uint8", "int4"])
def test_vectors_of_every_width(dtype: str, lanes: int) -> None:
    for rows in (3, 12):
        model, (off,) = runs(Weight(48, 75, dtype, 16).product(rows))
        assert schedules(model) == ["packed product"]
        assert off <= LIMIT


def test_what_follows_is_computed_in_the_same_kernel(avx2: Machine) -> None:
    x, weight = pt.variable("x", "float32", (2, 40)), Weight(40, 24, "int4", 8).node()
    biased = pt.op("Add", pt.op("MatMul", x, weight), pt.constant(normals(1)(24)))
    model, (off,) = runs(typed(pt.op("Mul", biased, pt.op("Sigmoid", biased))))
    assert [launch.layer_type for launch in model.launches] == ["PackedMatMul+Add+Sigmoid+Mul"]
    assert off <= LIMIT


def test_a_gemm_has_its_factors_and_its_bias() -> None:
    x, weight = pt.variable("x", "float32", (3, 40)), Weight(40, 24, turned=True).node()
    bias = pt.constant(normals(1)(24))
    _, (off,) = runs(typed(pt.op("Gemm", x, weight, bias, transB=1, alpha=0.5, beta=3.0)))
    assert off <= LIMIT


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("block", [0, 16])
def test_a_table_that_is_multiplied_by_too_is_held_once(dtype: str, block: int) -> None:
    table = Weight(64, 301, dtype, block, -1, turned=True).node()
    indices = pt.variable("i", "int64", (2, 3))
    scores = pt.op("MatMul", pt.variable("x", "float32", (1, 64)), pt.op("Transpose", table, perm=[1, 0]))
    graph = typed(scores, pt.op("Gather", table, indices))
    graph = graph.evolve(inputs=sorted(graph.inputs, key=lambda node: node.name, reverse=True))
    chosen = np.array([[0, 300, -1], [150, -301, 288]])
    model, (off, rows_off) = runs(graph, chosen)
    assert sorted(schedules(model)) == ["indices", "packed product", "packed rows"]
    assert off <= LIMIT
    assert rows_off == 0.0
    stored = 64 * 301 * (1 if "8" in dtype else 0.5)
    scales = 2 * 4 * 301 * (64 // block if block else 1)
    assert weight_bytes(model) <= 1.1 * stored + scales


@pytest.mark.parametrize(("dtype", "block", "point", "scaled"), [
    ("int4", 20, None, "float32"), ("uint4", 7, -1, "float32"), ("uint4", 16, -1, "float16"), ("uint8", 16, -1, "bfloat16"),
])
def test_weights_take_what_the_model_stores(dtype: str, block: int, point: int | None, scaled: str) -> None:
    """Half bytes in odd blocks took a byte each, and scales of two bytes and zero points four."""
    graph = Weight(280, 64, dtype, block, point, scaled=scaled).product(9, scaled)
    arrays = [node.value for node in graph.nodes if node.value is not None]
    stored = sum(array.size * (0.5 if "4" in array.dtype.name else array.dtype.itemsize) for array in arrays)
    model, (off,) = runs(graph)
    assert schedules(model) == ["packed product"] and off <= (LIMIT if scaled == "float32" else 2**-7)
    assert weight_bytes(model) <= 1.1 * stored


def test_an_index_outside_of_a_packed_table_is_an_error() -> None:
    graph = typed(pt.op("Gather", Weight(8, 30, turned=True).node(), pt.variable("i", "int64", (2,))))
    model = pt.compile(graph, "cpu")
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 30"):
        model(np.array([3, 30]))


def test_rows_of_constant_places() -> None:
    graph = typed(pt.op("Gather", Weight(8, 30, "int4", turned=True).node(), pt.constant(np.array([3, -1]))))
    model = pt.compile(graph, "cpu")
    assert np.array_equal(model()[0], interpret(graph, [])[0])


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_a_table_of_half_bytes_in_a_register_makes_the_same_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "avx512f" not in host_features():
        pytest.skip("this processor has no vpermps of 16 numbers")
    graph = Weight(96, 75, dtype, 16, -1).product(3)
    x = rows_of(graph)
    (by_table,) = compiled(graph, NUM_THREADS=1).run([x], [None])
    plain = attrs.evolve(host_machine(1), instructions=())
    monkeypatch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: attrs.evolve(plain, threads=threads))
    model = compiled(graph, NUM_THREADS=1)
    assert "vpermps" not in model.kernels()[0].text
    assert np.array_equal(by_table, model.run([x], [None])[0])


@pytest.mark.parametrize(
    ("axis", "block", "shape"), [(0, 0, (48,)), (1, 8, (48, 5))], ids=["a scale for each row", "blocks across columns"]
)
def test_scales_that_no_sum_can_be_multiplied_by_are_worked_in_when_it_is_compiled(axis: int, block: int, shape: Any) -> None:
    random = np.random.default_rng(0)
    scale = pt.constant(random.uniform(0.01, 0.02, shape).astype("float32"))
    integers = pt.constant(random.integers(-128, 128, (48, 40)).astype("int8"))
    weight = pt.op("DequantizeLinear", integers, scale, axis=axis, **({"block_size": block} if block else {}))
    model, (off,) = runs(typed(pt.op("MatMul", pt.variable("x", "float32", (2, 48)), weight)))
    assert schedules(model) == ["gemm"]
    assert off <= LIMIT


def test_a_transposed_weight_that_no_product_takes_is_transposed_when_it_is_compiled() -> None:
    random = np.random.default_rng(0)
    stored = pt.constant(random.integers(-128, 128, (2, 40, 48)).astype("int8"))
    weight = pt.op("Transpose", pt.op("DequantizeLinear", stored, pt.constant(np.float32(0.01))), perm=[0, 2, 1])
    fused = accelerator("cpu").fused(typed(pt.op("MatMul", pt.variable("x", "float32", (2, 5, 48)), weight)), host_machine(1))
    bodies = [node.subgraph for node in fused.nodes if node.subgraph is not None]
    assert [node.op for body in bodies for node in body.nodes if node.is_op] == ["MatMul"]


@pytest.mark.parametrize("scale", [np.inf, np.nan, 1e-38, 0.0])
def test_a_scale_that_is_no_factor_of_sums_is_worked_in_when_it_is_compiled(scale: float) -> None:
    weight = pt.op("DequantizeLinear", pt.constant(np.eye(20, dtype=np.int8)), pt.constant(np.float32(scale)))
    graph = typed(pt.op("MatMul", pt.variable("x", "float32", (2, 20)), weight))
    x = rows_of(graph)
    model = compiled(graph)
    assert schedules(model) == ["gemm"]
    assert np.array_equal(model.run([x], [None])[0], interpret(graph, [x])[0], equal_nan=True)


def test_activations_of_float16() -> None:
    weight = Weight(64, 48, "int4", 16, scaled="float16")
    model, (off,) = runs(weight.product(2, "float16"))
    assert schedules(model) == ["packed product"]
    assert off <= 2e-3


def test_a_model_of_packed_weights_travels(tmp_path: Any) -> None:
    graph = Weight(64, 48, "uint4", 16, -1).product(2)
    model, x = pt.compile(graph, "cpu"), rows_of(graph)
    model.export(tmp_path / "packed.partita")
    assert np.array_equal(pt.import_model(tmp_path / "packed.partita")(x)[0], model(x)[0])
