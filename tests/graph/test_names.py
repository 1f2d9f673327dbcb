"""Names in a new graph: nodes and values without one get one; one that two would bear is refused where the graph is made."""

from __future__ import annotations

import numpy as np
import pytest

import partita.graph as pt
from partita.accelerators import compile as compiled
from partita.graph.errors import GraphError, PartitaError, ReadError
from partita.graph.nested import graphs_in
from partita.graph.readers.text import parse
from partita.graph.verify import verify
from partita.passes import apply_pass

X = pt.variable("x", "float32", (4,))
REMEDY = "Give one of the nodes another name=, or its values other names with output_names=[...]."


def _halves(value, name=None):
    return pt.op("Split", value, name=name, n_outputs=2, num_outputs=2)


def _own_names():
    return pt.Graph([pt.op("Exp", pt.op("Relu", X, name="a", output_names=["v"]), name="b", output_names=["v"])])


def _an_input():
    return pt.Graph([_halves(pt.variable("s_0", "float32", (4,)), "s")[1]])


def _a_constant():
    return pt.Graph([pt.op("Add", X, pt.constant(1.0, "v"), name="a", output_names=["v"])])


def _one_node():
    return pt.Graph([pt.op("Split", X, name="s", output_names=["v", "v"], num_outputs=2)])


def _unnamed_nodes():
    first = pt.op("Relu", X, output_names=["v"])
    return pt.Graph([pt.op("Exp", first, name="b", output_names=["v"])])


def _a_dead_node():
    return pt.Graph([pt.op("Relu", X, name="a")], nodes=[pt.op("Exp", X, name="b", output_names=["a"])])


def _evolved():
    whole = pt.Graph([pt.op("Relu", X, name="a")])
    return whole.evolve(nodes=[*whole.nodes, pt.op("Exp", X, name="b", output_names=["a"])])


@pytest.mark.parametrize("make, message", [
    (_own_names, "node 'b' (Exp): two values are named 'v': output 0 of 'a' (Relu) and output 0 of 'b' (Exp)"),
    (_an_input, "node 's' (Split): two values are named 's_0': the input 's_0' and output 0 of 's' (Split)"),
    (_a_constant, "node 'a' (Add): two values are named 'v': the constant 'v' and output 0 of 'a' (Add)"),
    (_one_node, "node 's' (Split): two values are named 'v': output 0 of 's' (Split) and output 1 of 's' (Split)"),
    (_unnamed_nodes, "node 'b' (Exp): two values are named 'v': output 0 of a new node (Relu) and output 0 of 'b' (Exp)"),
    (_a_dead_node, "node 'b' (Exp): two values are named 'a': output 0 of 'a' (Relu) and output 0 of 'b' (Exp)"),
    (_evolved, "node 'b' (Exp): two values are named 'a': output 0 of 'a' (Relu) and output 0 of 'b' (Exp)"),
])
def test_two_values_of_one_name_are_refused_where_the_graph_is_made(make, message):
    with pytest.raises(GraphError) as caught:
        make()
    assert str(caught.value) == f"{message}\n  {REMEDY}"


def test_bodies_are_graphs_too():
    with pytest.raises(GraphError, match="two values are named 'v'"):
        pt.call(_own_names(), X, name="call")


def test_a_body_may_use_the_names_of_the_graph_around_it():
    inner = pt.Graph([pt.op("Neg", pt.variable("x", "float32", (4,)), name="n", output_names=["call"])])
    whole = pt.Graph([pt.call(inner, X, name="call")])
    verify(whole)
    assert [entry.name for entry in whole.outputs] == ["call"]


def test_a_graph_that_is_refused_leaves_its_nodes_unnamed():
    unnamed = pt.op("Relu", X)
    with pytest.raises(GraphError, match="two values"):
        pt.Graph([unnamed, _halves(pt.variable("s_0"), "s")[0]])
    assert unnamed.name == ""


def test_absent_outputs_bear_no_name():
    norm = pt.op("Dropout", X, name="a", output_names=["y", ""])
    other = pt.op("Dropout", norm, output_names=["z", ""])
    whole = pt.Graph([other])
    assert [node.output_names for node in whole.nodes] == [("x",), ("y", ""), ("z", "")]


def test_the_values_of_unnamed_nodes_get_names_that_are_free():
    taken = pt.op("Relu", X, name="split_0_1")
    first, second = _halves(taken), _halves(X)
    whole = pt.Graph([pt.op("Sum", *first, *second)])
    verify(whole)
    assert (first.name, first.output_names) == ("split_1", ("split_1_0", "split_1_1"))
    assert (second.name, second.output_names) == ("split_2", ("split_2_0", "split_2_1"))


def test_two_values_are_not_returned_under_one_name():
    first, second = pt.op("Relu", X, name="a"), pt.op("Exp", X, name="b")
    with pytest.raises(GraphError) as caught:
        pt.Graph([first, second], output_names=["y", "y"])
    assert str(caught.value) == (
        "two outputs are named 'y': output 0 of 'a' (Relu) and output 0 of 'b' (Exp)\n"
        "  Give each a name of its own in output_names=, or leave output_names out."
    )
    assert pt.Graph([first, second, first]).output_names == ("a", "b", "a_1")
    assert pt.Graph([first, first], output_names=["y", "y"]).output_names == ("y", "y")


def test_the_verifier_finds_what_a_pass_assembled():
    first, second = pt.op("Relu", X, name="a"), pt.op("Exp", X, name="b", output_names=["a"])
    with pytest.raises(GraphError, match="two values are named 'a'"):
        verify(pt.Graph.assembled((X, first, second), [X], [first[0]], "net", {"": 21}))
    other = pt.op("Exp", X, name="b")
    with pytest.raises(GraphError, match="two outputs are named 'y'"):
        verify(pt.Graph.assembled((X, first, other), [X], [first[0], other[0]], "net", {"": 21}, ("y", "y")))


def test_the_text_form_refuses_the_second():
    with pytest.raises(ReadError, match=r"line 2, column 1: there are two values named 'v'\n  'a' makes the first"):
        parse("graph g(x) -> (v) { v = Relu(x) name=a\nv = Neg(x) name=b }")


def branch(op: str) -> pt.Graph:
    p = pt.variable("p", "float32", (3,))
    return pt.Graph([pt.op("Exp", pt.op(op, p))], [p], name=op.lower())


def test_ops_that_graphs_named_get_other_names_where_those_of_several_bodies_meet() -> None:
    x, c = pt.variable("x", "float32", (3,)), pt.variable("c", "bool", ())
    shared = branch("Neg")
    first = pt.op("If", c, then_branch=shared, else_branch=branch("Abs")).evolve(captures=(x[0],))
    second = pt.op("If", c, then_branch=shared, else_branch=branch("Neg")).evolve(captures=(x[0],))
    g = pt.Graph([pt.op("Exp", pt.op("Add", first, second))], [x, c])
    names = [node.name for graph in graphs_in(g) for node in graph.nodes if node.is_op]
    assert sorted(names) == ["abs_0", "add_0", *(f"exp_{i}" for i in range(5)), "if_0", "if_1", "neg_0", "neg_1", "neg_2"]
    assert first.attrs["then_branch"] is shared and [node.name for node in shared.nodes] == ["p", "neg_0", "exp_0"]
    for name in ("InferShape", "FoldConstants", "SimplifyIdentities"):
        g = apply_pass(g, name)
    array = np.array([-1, 0, 1], np.float32)
    for chosen in (True, False):
        (result,) = compiled(g, "reference")(array, np.array(chosen))
        other = np.exp(-array) if chosen else np.exp(np.abs(array))
        np.testing.assert_allclose(result, np.exp(other + np.exp(-array)), rtol=1e-6)


def test_names_that_somebody_gave_stay_and_are_an_error() -> None:
    def named(op: str) -> pt.Graph:
        p = pt.variable("p", "float32", (3,))
        return pt.Graph([pt.op(op, p, name="mine")], [p])

    x, c = pt.variable("x", "float32", (3,)), pt.variable("c", "bool", ())
    node = pt.op("If", c, then_branch=named("Neg"), else_branch=named("Abs")).evolve(captures=(x[0],))
    with pytest.raises(PartitaError, match="two nodes are named 'mine'"):
        verify(pt.Graph([node], [x, c]))
