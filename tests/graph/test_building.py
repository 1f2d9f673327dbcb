"""Nodes and graphs made by hand: order, names, what never changes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, GraphError, PartitaError, call, constant, op, register_op, unregister_op, variable
from partita.graph.interpret import interpret
from partita.graph.readers import load
from partita.graph.verify import verify
from partita.graph.writers import save
from partita.passes import apply_pass, register_pass


@pytest.fixture
def declared() -> Iterator[Callable[..., Graph]]:
    """Declares the op my::U anew and gives a graph of it."""

    def declare(**words: Any) -> Graph:
        register_op("U", "my", **words)
        return Graph([op("U", variable("x", "float32", (2,)), name="u", domain="my")])

    yield declare
    unregister_op("U", "my")


def test_the_earliest_made_of_the_ready_nodes_comes_first() -> None:
    b, a = variable("b"), variable("a")
    first, second = op("Neg", b, name="first"), op("Relu", a, name="second")
    last = op("Add", second, first, name="last").evolve(place=0)
    g = Graph([last])
    assert [node.name for node in g.nodes] == ["b", "a", "first", "second", "last"]
    rebuilt = first.evolve(op="Abs")
    graph = Graph([last.evolve(inputs=(second[0], rebuilt[0]))])
    assert [node.op for node in graph.nodes] == [None, None, "Abs", "Relu", "Add"]
    assert g.evolve(name="again").nodes == g.nodes and g.evolve(outputs=[second], nodes=()).nodes == (b, a, second)


def test_a_node_listed_twice_stands_in_the_graph_once() -> None:
    x = variable("x")
    y = op("Relu", x, name="y")
    assert Graph([y], nodes=[x, y, y]).nodes == (x, y)


def test_unnamed_nodes_are_named_by_the_first_graph() -> None:
    x = variable("relu_0")
    y = op("Relu", op("Relu", x))
    assert [node.name for node in Graph([y]).nodes] == ["relu_0", "relu_1", "relu_2"]
    assert Graph([y])["relu_2"] is y


def test_outputs_have_names_of_their_own() -> None:
    x = variable("x")
    y = op("Relu", x, name="y")
    g = Graph([y, x, y])
    assert g.output_names == ("y", "x", "y_1") and g.outputs == (y[0], x[0], y[0])


@pytest.mark.parametrize("wanted", [3, b"cpu", ["cpu"]])
def test_an_affinity_is_the_name_of_a_device(wanted: Any) -> None:
    y = op("Relu", variable("x", "float32", (2,)), name="y")
    with pytest.raises(GraphError) as caught:
        y.affinity = wanted
    assert f"node 'y' (Relu): an affinity is the name of a device, not {wanted!r}\n  Write node.affinity = " in str(caught.value)
    assert y.affinity is None


def test_nothing_but_the_affinity_may_be_set() -> None:
    y = op("Relu", variable("x"), name="y")
    g = Graph([y])
    y.affinity = "cpu"
    for change in (
        lambda: setattr(y, "name", "z"),
        lambda: delattr(y, "name"),
        lambda: delattr(y, "affinity"),
        lambda: setattr(g, "nodes", ()),
        lambda: delattr(g, "nodes"),
    ):
        with pytest.raises(GraphError):
            change()
    for mapping in (y.attrs, g.opsets):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["a"] = 1  # type: ignore[index]
    assert (y.name, y.affinity, g["y"]) == ("y", "cpu", y)


X = variable("x", "float32", (2,))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: constant([[1], [2, 3]]), r"\[\[1\], \[2, 3\]\] cannot be converted to an array"),
        (lambda: constant(object()), "holds numbers or strings, not object"),
        (lambda: Graph([X], opsets=21), 'opsets are versions by domain, not 21\n  Write {"": 21}'),
        (lambda: Graph([X], opsets={"": "21"}), "no opset of domain 'ai.onnx' has the version '21'\n  Write {\"\": 21}"),
        (lambda: Graph([X], opsets={"my": 2**35}), "no opset of domain 'my' has the version 34359738368\n  Write {\"\": 21}"),
        (lambda: Graph([X], opsets={"my": 0}), "no opset of domain 'my' has the version 0\n  Write {\"\": 21}"),
        (lambda: Graph(["x"]), "a value is a Node or a NodeEntry, not str"),
        (lambda: Graph([op("Relu", X)], inputs=[]), "reads variables that are not among its inputs: x"),
        (lambda: op("Relu", X)[1], "there is no output 1: the node has 1"),
        (lambda: call(Graph([X]), X, X), "the call has 2 inputs and its body 1"),
        (lambda: verify(Graph([X], opsets={"": 99})), "there is no version 99 of opset 'ai.onnx'"),
        (lambda: verify("x"), "a Graph is expected, not str"),
        (lambda: save("x", "x.onnx"), "a Graph is expected, not str"),
        (lambda: load(b"", shapes=[1]), "shapes are given by the inputs' names, not as list"),
        (lambda: load(3), "an object of type int is not an ONNX model"),
        (lambda: apply_pass(Graph([X]), None), "passes are given as a name or a list of names, not None"),
        (lambda: apply_pass(Graph([X]), "InferShape", shapes=[1]), "shapes are given by the inputs' names"),
        (lambda: register_pass(lambda g: g), r'Write @register_pass\("MyPass"\)'),
        (lambda: interpret(Graph([X]), {"x": 1}), "values are given in the order of the inputs, not by name"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(PartitaError, match=said):
        make()


def test_a_users_function_that_returns_too_much_or_nothing(declared: Callable[..., Graph]) -> None:
    x = [np.ones(2, np.float32)]
    with pytest.raises(GraphError, match=r"'u' \(U\).*returned 2 values, and the node has 1 outputs"):
        interpret(declared(numpy=lambda x: (x, x)), x)
    with pytest.raises(GraphError, match=r"'u' \(U\).*returned None"):
        interpret(declared(numpy=lambda x: None), x)


def test_a_users_shape_rule_that_returns_no_type(declared: Callable[..., Graph]) -> None:
    with pytest.raises(PartitaError, match="the shape rule gave 'float32', which is not a type"):
        apply_pass(declared(shape=lambda types, attrs: "float32"), "InferShape")


@pytest.mark.parametrize("random", [False, True])
def test_random_ops_of_the_users_are_never_folded_or_merged(declared: Callable[..., Graph], random: bool) -> None:
    declared(numpy=lambda x: x + 1, shape=lambda types, attrs: types[0], random=random)
    one, x = constant(np.ones(2, np.float32), "one"), variable("x", "float32", (2,))
    nodes = [op("U", value, name=f"u{i}", domain="my") for i, value in enumerate((one, x, x))]
    result = apply_pass(Graph(nodes), ["FoldConstants", "MergeCommon"])
    assert sum(node.op == "U" for node in result.nodes) == (3 if random else 1)


def test_a_node_that_is_not_there_and_fields_that_no_node_has() -> None:
    node = op("Relu", variable("x"), name="first")
    graph = Graph([node])
    with pytest.raises(GraphError, match=r"there is no node 'frist'\n  Did you mean 'first'"):
        graph["frist"]
    with pytest.raises(GraphError, match=r"there is no node '12345678'\n  graph.nodes lists the nodes"):
        graph["12345678"]
    with pytest.raises(GraphError, match="a node has no age, colour"):
        node.evolve(colour=1, name="second", age=2)


def test_values_are_shown_with_their_types() -> None:
    known = variable("x", "float32", ("n", 3))
    unknown = op("Relu", known, name="y")
    assert (repr(known[0]), repr(unknown[0])) == ("<NodeEntry %x: float32[n, 3]>", "<NodeEntry %y>")


@pytest.mark.parametrize("listed", ["an op", "a constant", "a text", "its value"])
def test_inputs_of_a_graph_are_variables(listed: str) -> None:
    x = variable("x", "float32", (2,))
    y = op("Relu", x, name="y")
    wrong: Any = {"an op": y, "a constant": constant(np.zeros(2)), "a text": "x", "its value": x[0]}[listed]
    with pytest.raises(GraphError, match="is not a graph input"):
        Graph([y], [x, wrong])
