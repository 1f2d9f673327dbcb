"""Values that are moved, joined and computed with between bytes: they stay bytes, or are bytes again in the same kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from tests.accelerators.tvm.quantizing import dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, normals

pytest.importorskip("tvm")

SCALE, POINT = 0.05, 100


def again(given: pt.Node, scale: float = SCALE, point: int = POINT) -> pt.Node:
    """Quantized and dequantized."""
    return dequantized(quantized(given, scale, point), scale, point, dtype="uint8")


def whole(*numbers: int) -> pt.Node:
    return pt.constant(np.array(numbers, np.int64))


def one(value: float) -> pt.Node:
    return pt.constant(np.float32(value))


MOVES: dict[str, Callable[[pt.Node], pt.Node]] = {
    "Reshape": lambda x: pt.op("Reshape", x, whole(2, 64, 12)),
    "Flatten": lambda x: pt.op("Flatten", x),
    "Unsqueeze": lambda x: pt.op("Unsqueeze", x, whole(0)),
    "Transpose": lambda x: pt.op("Transpose", x, perm=[0, 2, 3, 1]),
    "Slice": lambda x: pt.op("Slice", x, whole(1, 0), whole(6, 5), whole(1, 3), whole(2, 1)),
    "Gather": lambda x: pt.op("Gather", x, whole(3, 1, 1), axis=2),
    "Pad": lambda x: pt.op("Pad", x, whole(0, 0, 1, 2, 0, 0, 0, 1)),
    "Pad with a number": lambda x: pt.op("Pad", x, whole(0, 0, 1, 2, 0, 0, 0, 1), one(2.5)),
    "Tile": lambda x: pt.op("Tile", x, whole(1, 2, 1, 1)),
    "Expand": lambda x: pt.op("Expand", x, whole(2, 8, 16, 6)),
    "DepthToSpace": lambda x: pt.op("DepthToSpace", x, blocksize=2),
    "SpaceToDepth": lambda x: pt.op("SpaceToDepth", x, blocksize=2),
    "Concat of rows": lambda x: pt.op("Concat", x, x, axis=2),
    "shuffle": lambda x: pt.op(
        "Reshape", pt.op("Transpose", pt.op("Reshape", x, whole(2, 2, 4, 96)), perm=[0, 2, 1, 3]), whole(2, 8, 16, 6)
    ),
}


@pytest.mark.parametrize("kind", MOVES)
def test_what_is_moved_between_the_same_bytes_stays_bytes(kind: str) -> None:
    given = integers(0, (2, 8, 16, 6), "uint8")
    moved = quantized(MOVES[kind](dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT)), SCALE, POINT)
    graph = pt.apply_pass(pt.Graph([moved]), "InferShape")
    model = compiled(graph)
    assert not any("Quantize" in launch.layer_type or "Dequantize" in launch.layer_type for launch in model.launches)
    assert np.array_equal(model.run([given], [None])[0], interpret(graph, [given])[0])


def test_the_parts_of_a_split_stay_bytes() -> None:
    given = integers(0, (2, 8, 5), "uint8")
    parts = pt.op("Split", dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT), whole(3, 5), axis=1, n_outputs=2)
    graph = pt.apply_pass(pt.Graph([quantized(part, SCALE, POINT) for part in (parts[0], parts[1])]), "InferShape")  # type: ignore[arg-type]
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == ["Split"]
    for result, wanted in zip(model.run([given], [None, None]), interpret(graph, [given]), strict=True):
        assert np.array_equal(result, wanted)


def test_what_no_integer_stands_for_is_put_around_as_a_number() -> None:
    given = integers(0, (2, 3), "uint8")
    padded = pt.op("Pad", dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT), whole(0, 1, 0, 1), one(0.01))
    graph = pt.apply_pass(pt.Graph([quantized(padded, SCALE, POINT)]), "InferShape")
    assert np.array_equal(compiled(graph).run([given], [None])[0], interpret(graph, [given])[0])


def test_a_join_of_values_of_other_scales_quantizes_them_as_its_result_is() -> None:
    given = [integers(seed, (2, 3, 20), "uint8") for seed in (0, 1)]
    variables = [pt.variable(name, "uint8", (2, 3, 20)) for name in "ab"]
    parts = [dequantized(x, scale, POINT) for x, scale in zip(variables, (0.05, 0.07), strict=True)]
    graph = pt.apply_pass(pt.Graph([quantized(pt.op("Concat", *parts, axis=1), 0.05, POINT)], variables), "InferShape")
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == ["DequantizeLinear+QuantizeLinear", "Concat"]
    assert np.array_equal(model.run(given, [None])[0], interpret(graph, given)[0])


OF_NUMBERS, BETWEEN = ["DequantizeLinear", "DequantizeLinear", "Concat"], "DequantizeLinear+QuantizeLinear"


@pytest.mark.parametrize(
    ("parts", "afters", "kernels"),
    [
        ((0.05, 0.05), {"Transpose": 0.05}, ["Concat", "Transpose"]),
        ((0.05, 0.05), {"Identity": 0.05, "Transpose": 0.07}, ["Concat", "Transpose", BETWEEN]),
        ((0.05, 0.05), {"": 0.07}, [BETWEEN, BETWEEN, "Concat"]),
        ((0.05, 0.07), {"Transpose": 0.05}, [*OF_NUMBERS, "Transpose", "QuantizeLinear"]),
        ((0.05, 0.07), {"": 0.05, "Identity": 0.07}, [*OF_NUMBERS, "QuantizeLinear", "QuantizeLinear"]),
        ((None, None), {"": 0.05}, ["Concat", "QuantizeLinear"]),
        ((0.05, None), {"": 0.05}, ["QuantizeLinear", "Concat"]),
        ((None, 0.05), {"Transpose": 0.05}, ["DequantizeLinear", "Concat", "Transpose", "QuantizeLinear"]),
        ((None, 0.05, 0.05), {"": 0.05}, ["QuantizeLinear", "Concat"]),
    ],
)
def test_bytes_are_joined_where_all_have_one_scale_or_the_result_has(
    parts: tuple[float | None, ...], afters: dict[str, float], kernels: list[str]
) -> None:
    shape = (2, 3, 20)
    variables = [pt.variable(f"x{i}", "float32" if scale is None else "uint8", shape) for i, scale in enumerate(parts)]
    read = [x if scale is None else dequantized(x, scale, POINT) for x, scale in zip(variables, parts, strict=True)]
    joined = pt.op("Concat", *read, axis=1)
    results = [quantized(pt.op(op, joined) if op else joined, scale, POINT) for op, scale in afters.items()]
    graph = pt.apply_pass(pt.Graph(results, variables), "InferShape")
    given = [normals(i)(*shape) if scale is None else integers(i, shape, "uint8") for i, scale in enumerate(parts)]
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == kernels
    for made, wanted in zip(model.run(given, [None] * len(results)), interpret(graph, given), strict=True):
        assert np.array_equal(made, wanted)


@pytest.mark.parametrize("columns", [64, 37])
def test_norms_and_softmax_read_bytes_and_write_bytes(columns: int) -> None:
    given = integers(0, (5, columns), "uint8")
    x = dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT)
    scale, bias = (pt.constant(normals(seed)(columns)) for seed in (1, 2))
    norm = pt.op("LayerNormalization", x, scale, bias)
    graph = pt.apply_pass(
        pt.Graph([quantized(norm, 0.04, 120), quantized(pt.op("Softmax", x), 1 / 255, 0)]), "InferShape"
    )
    model = compiled(graph)
    assert all("QuantizeLinear" in launch.layer_type and "+" in launch.layer_type for launch in model.launches)
    for result, wanted in zip(model.run([given], [None, None]), interpret(graph, [given]), strict=True):
        off = np.abs(result.astype(int) - wanted)
        assert off.max() <= 1 and (off > 0).mean() < 2e-2


def test_a_product_of_floats_is_quantized_in_its_kernel() -> None:
    x, weight = normals(0)(9, 40), normals(1)(40, 33)
    product = pt.op("MatMul", pt.variable("x", "float32", x.shape), pt.constant(weight))
    summed = pt.op("Add", product, dequantized(pt.variable("b", "uint8", (9, 33)), SCALE, POINT))
    graph = pt.apply_pass(pt.Graph([quantized(summed, 0.1, 128)]), "InferShape")
    beside = integers(2, (9, 33), "uint8")
    by_name = {"x": x, "b": beside}
    given = [by_name[node.name] for node in graph.inputs]
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == ["MatMul+DequantizeLinear+Add+QuantizeLinear"]
    assert np.abs(model.run(given, [None])[0].astype(int) - interpret(graph, given)[0]).max() <= 1


def test_a_convolution_reads_bytes_that_were_moved_without_being_quantized_again() -> None:
    given, weight = integers(0, (1, 6, 40), "uint8"), integers(1, (8, 6, 3, 3), "int8")
    x = pt.op("Reshape", dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT), whole(1, 6, 5, 8))
    result = pt.op("Conv", x, dequantized(weight, 0.01), pads=[1, 1, 1, 1])
    graph = pt.apply_pass(pt.Graph([quantized(result, 0.2, 128)]), "InferShape")
    model = compiled(graph)
    assert "Product+QuantizeLinear" in [launch.layer_type for launch in model.launches]
    assert np.abs(model.run([given], [None])[0].astype(int) - interpret(graph, [given])[0]).max() <= 1


@pytest.mark.parametrize("size", [1, 15, 16, 37, 200, 768])
def test_chains_of_bytes_of_every_length(size: int) -> None:
    given = integers(0, (3, size), "uint8")
    x = dequantized(pt.variable("x", "uint8", given.shape), SCALE, POINT)
    product = again(pt.op("Mul", again(pt.op("Erf", x), 0.01, 100), x))
    graph = pt.apply_pass(pt.Graph([quantized(product, 0.04, 90)]), "InferShape")
    assert np.abs(compiled(graph).run([given], [None])[0].astype(int) - interpret(graph, [given])[0]).max() <= 1
