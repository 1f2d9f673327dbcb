"""Functions of a single byte, which are looked up in a table that is made when the model is compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from tests.accelerators.tvm.quantizing import dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


def again(given: pt.Node, scale: float, point: int, dtype: str = "uint8") -> pt.Node:
    """Quantized and dequantized."""
    return dequantized(quantized(given, scale, point, dtype), scale, point, dtype=dtype)


def gelu(x: pt.Node) -> pt.Node:
    """As torch exports it, quantized between all its ops."""
    inner = again(pt.op("Erf", again(pt.op("Div", x, pt.constant(np.float32(1.4142135))), 0.02, 128)), 0.0078, 127)
    above = again(pt.op("Add", inner, pt.constant(np.float32([1.0]))), 0.0078, 0)
    return pt.op("Mul", x, again(pt.op("Mul", above, pt.constant(np.float32(0.5))), 0.0039, 0))


FUNCTIONS: dict[str, Callable[[pt.Node], pt.Node]] = {
    "Sigmoid": lambda x: pt.op("Sigmoid", x),
    "Swish in parts": lambda x: pt.op("Mul", x, again(pt.op("Sigmoid", x), 1 / 256, 0)),
    "Gelu in parts": gelu,
    "Softplus of Tanh": lambda x: pt.op("Softplus", pt.op("Tanh", x)),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_of_a_byte_is_what_the_reference_makes(kind: str, dtype: str) -> None:
    given = integers(0, (3, 5000), dtype)
    x = dequantized(pt.variable("x", dtype, given.shape), 0.03, 5)
    graph = pt.apply_pass(pt.Graph([quantized(FUNCTIONS[kind](x), 0.01, 3, dtype)]), "InferShape")
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == ["Table"]
    (result,), (wanted,) = model.run([given], [None]), interpret(graph, [given])
    assert np.array_equal(result, wanted)
    assert len(np.unique(wanted)) > 20


def test_a_function_of_what_a_convolution_makes_is_looked_up_beside_it() -> None:
    x = dequantized(pt.variable("x", "uint8", (1, 8, 6, 7)), 0.05, 100)
    weights = [dequantized(integers(seed, (8, 8, 1, 1), "int8"), 0.002) for seed in (1, 2)]
    first = again(pt.op("Conv", x, weights[0]), 0.05, 128)
    second = again(pt.op("Sigmoid", first), 1 / 256, 0)
    graph = pt.apply_pass(pt.Graph([quantized(pt.op("Conv", second, weights[1]), 0.01, 128)]), "InferShape")
    model, given = compiled(graph), integers(0, (1, 8, 6, 7), "uint8")
    assert [launch.layer_type for launch in model.launches] == [
        "Transpose", "Product+QuantizeLinear", "Table", "Product+QuantizeLinear", "Transpose"
    ]
    assert np.abs(model.run([given], [None])[0].astype(int) - interpret(graph, [given])[0]).max() <= 1


def test_a_function_of_two_values_or_of_one_in_two_shapes_is_no_table() -> None:
    given = integers(0, (4, 1), "uint8")
    x, y = (dequantized(pt.variable(name, "uint8", (4, 1)), 0.03, 5) for name in "xy")
    both = quantized(pt.op("Sigmoid", pt.op("Add", x, y)), 1 / 256, 0)
    spread = quantized(pt.op("Add", pt.op("Tanh", x), pt.constant(np.zeros((4, 3), "f"))), 1 / 256, 0)
    graph = pt.apply_pass(pt.Graph([both, spread]), "InferShape")
    model = compiled(graph)
    assert not any("Table" in launch.layer_type for launch in model.launches)
    for result, wanted in zip(model.run([given, given], [None, None]), interpret(graph, [given, given]), strict=True):
        assert np.abs(result.astype(int) - wanted).max() <= 1


def test_a_dequantized_number_is_a_number() -> None:
    """torch makes zeros of rows of NaN; none of these is one."""
    given = integers(0, (2, 40), "uint8")
    weights = again(pt.op("Softmax", dequantized(pt.variable("x", "uint8", given.shape), 0.05, 100)), 1 / 255, 0)
    kept = pt.op("Where", pt.op("IsNaN", weights), pt.constant(np.float32(0)), weights)
    graph = pt.apply_pass(pt.Graph([quantized(kept, 1 / 255, 0)]), "InferShape")
    model = compiled(graph)
    assert [launch.layer_type for launch in model.launches] == ["DequantizeLinear+Softmax+QuantizeLinear"]
    assert np.abs(model.run([given], [None])[0].astype(int) - interpret(graph, [given])[0]).max() <= 1
