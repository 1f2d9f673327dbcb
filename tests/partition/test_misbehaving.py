"""Hooks that misbehave: one error that names the property, the hook and the node; the given graph stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partita.graph import Graph, Node, NodeEntry, PartitaError, call, op, variable
from partita.partition import ContainOpSelector, Pattern, SubgraphProperty, SubgraphSelector
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain

from .making import Property


class Yes(SubgraphSelector):
    """Takes everything."""

    def select(self, node: Node) -> bool:
        return True

    def select_input(self, cur: Node, new: Node) -> bool:
        return True

    def select_output(self, cur: Node, new: Node) -> bool:
        return True


def selector(**methods: Callable[..., Any]) -> SubgraphProperty:
    """A property whose selector takes everything but for these methods."""
    return Property(type("Bad", (Yes,), methods))


def with_hooks(**hooks: Callable[..., Any]) -> SubgraphProperty:
    """A property that takes everything and has these hooks."""
    return type("Bad", (Property,), hooks)(Yes)


def broken(*args: Any) -> Any:
    raise KeyError("oops")


def error_of(subject: SubgraphProperty, g: Graph | None = None) -> str:
    """The message, and the graph is untouched."""
    g = g or chain("Relu", "Neg", "Abs")
    before, attrs = str(g), dict(g.attrs)
    with pytest.raises(PartitaError) as caught:
        apply_pass(g, "PartitionGraph", subgraph_property=subject)
    assert str(g) == before
    assert g.attrs == attrs
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("select", "hook select, node 'relu0' (Relu)"),
        ("select_output", "hook select_output, node 'neg1' (Neg)"),
        ("filter", "hook filter, node 'relu0' (Relu)"),
    ],
)
def test_an_exception(method: str, where: str) -> None:
    message = error_of(selector(**{method: broken}))
    assert message == f"pass 'PartitionGraph', property 'mine', {where}: it raised KeyError: 'oops'"


@pytest.mark.parametrize("growth", ["walk", "largest"])
@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_an_answer_that_is_no_bool(answer: object, growth: str) -> None:
    subject = selector(select_output=lambda self, cur, new: answer, stateless=True)
    subject.growth = growth
    where = "pass 'PartitionGraph', property 'mine', hook select_output, node 'neg1' (Neg)"
    assert error_of(subject).startswith(f"{where}: it returned {answer!r} ({type(answer).__name__}), not a bool")


def test_filter_invents_nodes() -> None:
    x = variable("z", "float32", SHAPE)
    stranger = op("Relu", x, name="stranger")
    message = error_of(selector(filter=lambda self, candidates: [*candidates, stranger]))
    assert "hook filter, node 'relu0' (Relu): it returned 'stranger', which is none of the candidates" in message


def test_filter_returns_duplicates() -> None:
    assert "it returned 'relu0' twice" in error_of(selector(filter=lambda self, candidates: [candidates[0], candidates[0]]))


def test_filter_returns_nothing_at_all() -> None:
    assert "it returned None (NoneType), not a list of nodes" in error_of(selector(filter=lambda self, candidates: None))


def test_a_selector_that_is_none() -> None:
    message = error_of(Property(lambda: "Conv"))
    assert "hook create_subgraph_selector: it returned 'Conv' (str), not a SubgraphSelector or a Pattern" in message


def test_a_property_without_a_selector() -> None:
    assert "a property has to define create_subgraph_selector()" in error_of(SubgraphProperty())


@pytest.mark.parametrize("count", [0, 2])
def test_a_node_with_the_wrong_number_of_outputs(count: int) -> None:
    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        return op("Fused", name="fused", domain="mine", n_outputs=count, output_names=[f"f{i}" for i in range(count)])

    message = error_of(with_hooks(create_subgraph_node=create))
    where = "property 'mine', hook create_subgraph_node, node 'relu0' (Relu)"
    assert f"{where}: it returned a node with {count} outputs for a subgraph with 1" in message
    assert "override connect_subgraph_outputs" in message


def test_a_node_that_reads_its_own_output() -> None:
    g = chain("Relu", "Neg", "Abs")

    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        return op("Fused", g["abs2"], name="fused", domain="mine")

    message = error_of(with_hooks(create_subgraph_node=create), g)
    assert "hook create_subgraph_node, node 'relu0' (Relu): it returned a node that reads its own output: %abs2" in message


def test_a_connection_that_reads_what_comes_later() -> None:
    g = chain("Relu", "Neg", "Abs")

    def connect(self: SubgraphProperty, node: Node, entries: Any) -> Node:
        return node.evolve(inputs=(g["abs2"][0],))

    subject = type("Bad", (Property,), {"connect_subgraph_inputs": connect})(
        type("First", (Yes,), {"select_output": lambda self, cur, new: False})
    )
    where = "hook connect_subgraph_inputs, node 'relu0' (Relu)"
    assert f"{where}: it returned a node that reads what the subgraph does not read: %abs2" in error_of(subject, g)


def test_no_node_at_all() -> None:
    message = error_of(with_hooks(create_subgraph_node=lambda self, subgraph, index: "fused"))
    assert "it returned 'fused' (str), not a Node or None" in message
    message = error_of(with_hooks(create_subgraph_node=lambda self, subgraph, index: variable("v")))
    assert "not an op or a call" in message


def test_a_review_that_is_no_answer() -> None:
    assert "hook review_subgraph, node 'relu0' (Relu): it returned None" in error_of(
        with_hooks(review_subgraph=lambda self, subgraph, index: None)
    )


def test_inputs_of_another_number() -> None:
    message = error_of(with_hooks(init_subgraph_inputs=lambda self, variables, entries: []))
    assert "hook init_subgraph_inputs, node 'relu0' (Relu): it returned [] (list), not 1 variables" in message


def test_outputs_of_another_node() -> None:
    def connect(self: SubgraphProperty, node: Node, entries: Any) -> Any:
        return entries

    message = error_of(with_hooks(connect_subgraph_outputs=connect))
    assert "hook connect_subgraph_outputs, node 'relu0' (Relu)" in message
    assert "not 1 values of the node" in message


def change_attrs(self: Any, graph: Graph, options: Any) -> None:
    graph.attrs["mine"] = 1


def change_affinity(self: Any, graph: Graph, options: Any) -> None:
    graph.nodes[1].affinity = "gpu"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (change_attrs, "graph 'net': it changed the graph's attributes: mine"),
        (change_affinity, "node 'relu0' (Relu): it set the affinity of a node of the graph that it was shown"),
    ],
)
def test_a_property_that_changes_the_graph(change: Any, cause: str) -> None:
    assert f"property 'mine', hook pre_partition, {cause}" in error_of(with_hooks(pre_partition=change))


def test_a_selector_that_changes_the_graph() -> None:
    def select(self: SubgraphSelector, node: Node) -> bool:
        node.affinity = "gpu"
        return True

    assert "it set the affinity of a node of the graph that it was shown" in error_of(selector(select=select))


def test_a_call_maker_that_changes_the_graph() -> None:
    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        subgraph.nodes[-1].affinity = "gpu"
        return call(subgraph, name="fused")

    message = error_of(with_hooks(create_subgraph_node=create))
    assert "hook create_subgraph_node, node 'abs2' (Abs): it set the affinity" in message


def test_after_partitioning_the_result_is_not_to_be_changed_either() -> None:
    def post(self: SubgraphProperty, graph: Graph) -> None:
        graph.attrs["mine"] = 1

    message = error_of(with_hooks(post_partition=post))
    assert "hook post_partition, graph 'net': it changed the graph's attributes: mine" in message


def raising() -> Any:
    yield from ()
    raise KeyError("oops")


@pytest.mark.parametrize("hook", ["init_subgraph_inputs", "connect_subgraph_outputs"])
def test_a_generator_that_raises_later(hook: str) -> None:
    message = error_of(with_hooks(**{hook: lambda *args: raising()}))
    assert f"property 'mine', hook {hook}, node 'relu0' (Relu): it raised KeyError: 'oops'" in message


def test_a_filter_that_is_a_generator() -> None:
    where = "property 'mine', hook filter, node 'relu0' (Relu)"
    assert f"{where}: it raised KeyError: 'oops'" in error_of(selector(filter=lambda self, candidates: raising()))
    fine = selector(filter=lambda self, candidates: (node for node in candidates))
    result = apply_pass(chain("Relu", "Neg"), "PartitionGraph", subgraph_property=fine)
    assert [node.name for node in result.nodes] == ["x", "mine_0"]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_hook_that_changes_the_graph_and_fails_then(error: type[BaseException]) -> None:
    def select(self: SubgraphSelector, node: Node) -> bool:
        node.affinity = "gpu"
        raise error

    def pre_partition(self: SubgraphProperty, graph: Graph, options: Any) -> None:
        graph.attrs["mine"] = 1
        raise error

    for subject in (selector(select=select), with_hooks(pre_partition=pre_partition)):
        g = chain("Relu", "Neg")
        with pytest.raises(PartitaError if error is KeyError else error):
            apply_pass(g, "PartitionGraph", subgraph_property=subject)
        assert (g.attrs, [node.affinity for node in g.nodes]) == ({}, [None, None, None])


def test_inputs_whose_names_are_taken() -> None:
    message = error_of(with_hooks(init_subgraph_inputs=lambda self, variables, entries: [variable("neg1", "float32", SHAPE)]))
    where = "property 'mine', hook init_subgraph_inputs, node 'relu0' (Relu)"
    assert f"{where}: with the inputs that it returned the body is not a graph: two nodes are named 'neg1'" in message


def test_an_output_that_the_node_does_not_have() -> None:
    message = error_of(with_hooks(connect_subgraph_outputs=lambda self, node, entries: [NodeEntry(node, 7)]))
    assert "hook connect_subgraph_outputs, node 'relu0' (Relu): it returned output 7 of a node that has 1" in message


def test_a_call_that_is_not_connected() -> None:
    message = error_of(with_hooks(connect_subgraph_inputs=lambda self, node, entries: node))
    where = "hook connect_subgraph_inputs, node 'relu0' (Relu)"
    assert f"{where}: it returned a call whose body has 1 inputs; connected are 0" in message


def test_a_body_with_other_inputs() -> None:
    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        a, b = variable("a", "float32", SHAPE), variable("b", "float32", SHAPE)
        return call(Graph([op("Add", a, b, name="sum")]), name="fused")

    message = error_of(with_hooks(create_subgraph_node=create))
    where = "hook create_subgraph_node, node 'relu0' (Relu)"
    assert f"{where}: it returned a call whose body has 2 inputs; connected are 1" in message


def test_a_node_that_comes_after_others() -> None:
    g = chain("Relu", "Neg", "Abs")

    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        return call(subgraph, name="fused").evolve(after=(g["abs2"],))

    message = error_of(with_hooks(create_subgraph_node=create), g)
    where = "hook create_subgraph_node, node 'relu0' (Relu)"
    assert f"{where}: it returned a node with control dependencies of its own: after 'abs2'" in message


def test_a_body_of_the_property_s_own_may_have_any_names() -> None:
    """An op in it may be called like an op outside, or like a value that enters."""

    def create(self: SubgraphProperty, subgraph: Graph, index: int) -> Node:
        x = variable("x", "float32", SHAPE)
        return call(Graph([op("Neg", op("Relu", x, name="exp1"), name="relu0")], [x]), name="fused")

    g = chain("Relu", "Exp", "Relu")
    subject = type("Own", (Property,), {"create_subgraph_node": create})(lambda: ContainOpSelector({"Relu"}))
    result = apply_pass(g, "PartitionGraph", subgraph_property=subject)
    bodies = [node.subgraph for node in result.nodes if node.subgraph is not None]
    names = [[node.name for node in body.nodes if node.is_op] for body in bodies]
    assert names == [["exp1_1", "relu0"], ["exp1_2", "relu0_1"]]


def two_by_two() -> Graph:
    """Two inputs, and two values that leave."""
    total = op("Add", variable("x", "float32", SHAPE), variable("y", "float32", SHAPE), name="total")
    return Graph([op("Relu", total, name="r"), op("Neg", total, name="n")], name="g")


def other_outputs(self: SubgraphProperty, node: Node, entries: Any) -> Node:
    connected = node.evolve(inputs=tuple(entries))
    return connected.evolve(output_names=connected.output_names[:1], output_types=connected.output_types[:1])


@pytest.mark.parametrize(
    ("hook", "answer", "cause"),
    [
        ("init_subgraph_inputs", lambda self, variables, entries: [variables[0]] * 2, "it returned one variable for two inputs"),
        ("connect_subgraph_inputs", other_outputs, "it returned a node with another number of outputs"),
        ("connect_subgraph_outputs", lambda self, node, outputs: [node[0]] * 2,
         "it returned the same output of the node for two values of the subgraph"),
        ("connect_subgraph_outputs", lambda self, node, outputs: [node[0], NodeEntry(node, 2)],
         "it returned output 2 of a node that has 2"),
        ("connect_subgraph_outputs", lambda self, node, outputs: [node[0], NodeEntry(node, -1)],
         "it returned output -1 of a node that has 2"),
    ],
)
def test_values_of_a_subgraph_are_told_apart(hook: str, answer: Callable[..., Any], cause: str) -> None:
    message = error_of(with_hooks(**{hook: answer}), two_by_two())
    assert message == f"pass 'PartitionGraph', property 'mine', hook {hook}, node 'total' (Add): {cause}"


def test_a_selector_first_and_then_a_pattern() -> None:
    alone = type("Alone", (SubgraphSelector,), {"select": lambda self, node: node.op == "Relu"})
    made = iter([alone()])
    message = error_of(Property(lambda: next(made, None) or Pattern("Relu", "Neg")), chain("Relu", "Exp", "Relu"))
    assert "hook create_subgraph_selector: it returned a selector first, and then a Pattern" in message


def test_the_remedy_of_an_answer_that_is_no_bool() -> None:
    message = error_of(selector(select=lambda self, node: 1))
    assert message.endswith("\n  Selectors answer True or False; bool(...) makes one of any value.")
