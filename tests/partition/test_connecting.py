"""What a node that create_subgraph_node returns is connected to: all that the subgraph reads, or just what it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, GraphError, Node, call, constant, op, variable
from partita.graph.verify import verify
from partita.partition import ContainOpSelector, PatternProperty
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain

Create = Callable[[Graph, int], "Node | None"]


class Making(PatternProperty):
    """A property around a function that makes nodes."""

    def __init__(self, make: Create, *ops: str) -> None:
        super().__init__(ContainOpSelector(set(ops)), "mine")
        self.make = make

    def create_subgraph_node(self, subgraph: Graph, index: int) -> Node | None:
        return self.make(subgraph, index)


def scaled() -> Graph:
    """Mul(Exp(x), k), then Neg, of which Mul is to be replaced."""
    k = constant(np.float32(2), "k")
    y = op("Exp", variable("x", "float32", SHAPE), name="y")
    return Graph([op("Neg", op("Mul", y, k, name="m"), name="n")])


def partitioned(g: Graph, make: Create, *ops: str, **options: Any) -> Graph:
    return apply_pass(g, "PartitionGraph", subgraph_property=Making(make, *ops), **options)


def error_of(g: Graph, make: Create, *ops: str) -> str:
    with pytest.raises(Exception) as raised:
        partitioned(g, make, *ops)
    return str(raised.value)


@pytest.mark.parametrize("infer_types", [True, False])
def test_the_constants_of_a_fused_node_stay(infer_types: bool) -> None:
    g = scaled()
    result = partitioned(
        g, lambda sg, i: op("FMM", sg.inputs[0], sg["k"], domain="acc", name="fmm"), "Mul", infer_types=infer_types
    )
    assert result["fmm"].inputs[0].node is g["y"]
    assert result["fmm"].inputs[1].node is g["k"]


def test_inputs_stand_in_the_nodes_own_order_and_may_be_absent_or_repeated() -> None:
    a, b = variable("a", "float32", SHAPE), variable("b", "float32", SHAPE)
    g = Graph([op("Sub", op("Exp", a, name="ea"), op("Exp", b, name="eb"), name="s")])

    def back(subgraph: Graph, index: int) -> Node:
        first, second = subgraph.inputs
        return op("Back", second, None, first, second, domain="acc", name="f")

    result = partitioned(g, back, "Sub")
    assert [entry and entry.name for entry in result["f"].inputs] == ["eb", None, "ea", "eb"]


def test_a_constant_that_the_property_brings_along() -> None:
    eps = constant(np.float32(1e-5), "k")  # a name that the graph has already
    x = variable("x", "float32", SHAPE)
    c = op("Relu", op("Exp", op("Relu", x, name="a"), name="b"), name="c")
    g = Graph([c, op("Mul", x, constant(np.float32(3), "k"), name="d")])
    result = partitioned(g, lambda sg, i: op("Soft", sg.inputs[0], eps, domain="acc", name=f"soft{i}"), "Relu")
    one, two = result["soft0"].inputs[1], result["soft1"].inputs[1]
    assert (one, one.name, one.node.value) == (two, "k_1", eps.value)
    assert result["d"].inputs[1].node.value == 3


def test_an_onnx_op_without_inputs_is_connected_as_a_call() -> None:
    g = chain("Exp", "Relu", "Neg")
    result = partitioned(g, lambda sg, i: op("HardSwish"), "Relu")
    reads = [(node.op, [entry.name for entry in node.reads]) for node in result.nodes if node.is_op]
    assert reads == [("Exp", ["x"]), ("HardSwish", ["exp0"]), ("Neg", ["relu1"])]


def test_a_call_of_the_subgraph_with_its_own_inputs() -> None:
    g = scaled()
    result = partitioned(g, lambda sg, i: call(sg, *sg.inputs, name="c"), "Mul")
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)


def test_connect_subgraph_inputs_gets_the_node_as_it_is_connected() -> None:
    class Swapping(Making):
        def connect_subgraph_inputs(self, node: Node, entries: Any) -> Node:
            node = super().connect_subgraph_inputs(node, entries)
            return node.evolve(inputs=node.inputs[::-1])

    g = scaled()
    make = Swapping(lambda sg, i: op("FMM", sg.inputs[0], sg["k"], domain="acc", name="f"), "Mul")
    result = apply_pass(g, "PartitionGraph", subgraph_property=make)
    assert [entry.name for entry in result["f"].inputs] == ["k", "y"]


def test_what_does_not_fit_is_an_error() -> None:
    g = scaled()
    both = Graph([op("Add", op("Exp", variable("x", "float32", SHAPE), name="e"), variable("z", "float32", SHAPE), name="m")])
    result = error_of(g, lambda sg, i: op("Relu", op("Tanh", sg.inputs[0])), "Mul")
    assert "it returned a node that reads another new op, a Tanh\n  One node replaces the subgraph; to put several" in result
    result = error_of(both, lambda sg, i: op("HardSwish"), "Add")
    assert "hook create_subgraph_node, node 'm' (Add): it returned a HardSwish, which takes 1 inputs; connected are 2" in result
    assert "Return the op with its inputs, read from subgraph.inputs, or a call." in result
    result = error_of(both, lambda sg, i: op("One", sg.inputs[0], domain="acc"), "Add")
    assert "it returned a node that reads something, and not the subgraph's inputs z" in result
    assert "Read each input of the subgraph, or none" in result
    result = error_of(g, lambda sg, i: op("In", sg.inputs[0], sg["m"], domain="acc"), "Mul")
    assert "hook create_subgraph_node, node 'm' (Mul): it returned a node that reads its own output: %m" in result
    result = error_of(g, lambda sg, i: op("In", sg["y"], domain="acc"), "Mul", "Exp")
    assert "it returned a node that reads %y, which is computed inside the subgraph that the node replaces" in result
    result = error_of(g, lambda sg, i: op("New", variable("new", "float32", SHAPE), domain="acc"), "Mul")
    assert "it returned a node that reads %new, which is neither an input of the subgraph nor one of the graph" in result


def test_an_op_that_reads_nothing_is_refused_where_a_graph_is_verified() -> None:
    with pytest.raises(GraphError, match=r"node 'h' \(HardSwish\): ai.onnx.HardSwish-14 has 1 inputs, not 0"):
        verify(Graph([op("HardSwish", name="h")]))
    verify(Graph([op("RandomNormal", shape=[2])]))
