"""1-D signals as images of one row: the ops that stay on images, and those before which the signal comes back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.layouts.conv1d import lift_conv1d
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.interpret import interpret
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType

pytest.importorskip("tvm")

RANDOM = np.random.default_rng(5)
MACHINE = Machine("cpu", "haswell", 4, 8, 16)


def constant(*shape: int) -> pt.Node:
    return pt.constant(RANDOM.standard_normal(shape).astype("float32"))


def start(x: pt.Node, **attributes: object) -> pt.Node:
    """A transposed convolution, which is always lifted."""
    return pt.op("ConvTranspose", x, constant(4, 4, 3), strides=[2], pads=[1, 1], name="start", **attributes)


def scaled(x: pt.Node) -> pt.Node:
    step, zero = pt.constant(np.float32(0.05)), pt.constant(np.uint8(128))
    return pt.op("DequantizeLinear", pt.op("QuantizeLinear", x, step, zero, name="bytes"), step, zero, name="last")


STAYS: dict[str, Callable[[pt.Node], pt.Node]] = {
    "a function": lambda x: pt.op("Relu", x, name="last"),
    "a number": lambda x: pt.op("Mul", x, pt.constant(np.float32(2)), name="last"),
    "a number for each channel": lambda x: pt.op("Add", x, constant(4, 1), name="last"),
    "a number for each channel of a batch": lambda x: pt.op("Add", x, constant(1, 4, 1), name="last"),
    "a signal": lambda x: pt.op("Add", x, pt.op("Relu", x, name="relu"), name="last"),
    "a pool": lambda x: pt.op("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 0], dilations=[1], name="last"),
    "channels joined": lambda x: pt.op("Concat", x, pt.op("Relu", x, name="relu"), axis=1, name="last"),
    "channels joined, counted from the end": lambda x: pt.op("Concat", x, pt.op("Relu", x, name="relu"), axis=-2, name="last"),
    "quantizing": scaled,
    "limits of which one is left out": lambda x: pt.op("Clip", x, None, pt.constant(np.float32(1)), name="last"),
    "without a bias": lambda x: pt.op("ConvTranspose", x, constant(4, 2, 2), None, strides=[2], name="last"),
    "another": lambda x: pt.op("ConvTranspose", x, constant(4, 2, 2), group=2, output_padding=[1], strides=[2], name="last"),
}

LEAVES: dict[str, Callable[[pt.Node], pt.Node]] = {
    "a mean": lambda x: pt.op("GlobalAveragePool", x, name="last"),
    "a number for each position": lambda x: pt.op("Add", x, constant(1, 1, 11), name="last"),
    "a norm of powers": lambda x: pt.op("LpPool", x, kernel_shape=[2], name="last"),
    "positions joined": lambda x: pt.op("Concat", x, x, axis=2, name="last"),
    "batches joined": lambda x: pt.op("Concat", x, x, axis=0, name="last"),
    "turned": lambda x: pt.op("Transpose", x, perm=[0, 2, 1], name="last"),
    "of four dimensions": lambda x: pt.op("Unsqueeze", x, pt.constant(np.array([1])), name="last"),
}


def lifted(last: Callable[[pt.Node], pt.Node]) -> tuple[pt.Graph, pt.Graph]:
    x = pt.variable("x", "float32", (2, 4, 6))
    graph = pt.apply_pass(pt.Graph([last(start(x))], [x]), "InferShape")
    return graph, lift_conv1d(graph, MACHINE)


def with_shapes(images: pt.Graph) -> pt.Graph:
    """The graph with ONNX's Reshapes: those of the pass have the shape in their type."""

    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        if node.op == "Reshape" and len(node.inputs) == 1:
            assert isinstance(node[0].type, TensorType) and node[0].type.shape is not None
            shape = rewriter.keep(pt.constant(np.array(node[0].type.shape), f"{node.name}_shape"))[0]
            rewriter.keep(node, node.evolve(inputs=(*rewriter.rebuilt(node).inputs, shape)))
        else:
            rewriter.keep(node)

    return rewrite(images, visit)


def same(graph: pt.Graph, images: pt.Graph) -> None:
    images = with_shapes(images)
    given = [RANDOM.standard_normal((2, 4, 6)).astype("float32")]
    for result, wanted in zip(interpret(images, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6, strict=True)
    for entry in (entry for node in images.nodes if node.is_op for entry in node.outputs):
        assert isinstance(entry.type, TensorType)
    assert [entry.type for entry in pt.apply_pass(images, "InferShape").outputs] == [entry.type for entry in graph.outputs]


@pytest.mark.parametrize("kind", STAYS)
def test_ops_that_read_and_make_images(kind: str) -> None:
    graph, images = lifted(STAYS[kind])
    same(graph, images)
    reshapes = [node.name for node in images.nodes if node.op == "Reshape"]
    assert reshapes == ["x_image", f"{images.outputs[0].node.name}"] and reshapes[1].startswith("last"), "one at each end"


@pytest.mark.parametrize("kind", LEAVES)
def test_ops_that_read_signals(kind: str) -> None:
    graph, images = lifted(LEAVES[kind])
    same(graph, images)
    assert [node.name for node in images.nodes if node.op == "Reshape"] == ["x_image", "start_signal"]


def test_a_convolution_of_known_sizes_stays_one_of_signals() -> None:
    x = pt.variable("x", "float32", (2, 4, 16))
    graph = pt.apply_pass(pt.Graph([pt.op("Conv", x, constant(8, 4, 3))], [x]), "InferShape")
    assert lift_conv1d(graph, MACHINE) is graph


@pytest.mark.parametrize("attributes", [{"output_shape": [12]}, {"domain": "my.ops"}])
def test_transposed_convolutions_that_stay(attributes: dict[str, object]) -> None:
    x = pt.variable("x", "float32", (2, 4, 6))
    node = pt.op("ConvTranspose", x, constant(4, 4, 3), strides=[2], **attributes)  # type: ignore[arg-type]
    typed = node.evolve(output_types=(TensorType("float32", (2, 4, 12)),))
    graph = pt.Graph([typed], [x], opsets={"": 21, "my.ops": 1})
    assert lift_conv1d(graph, MACHINE) is graph
