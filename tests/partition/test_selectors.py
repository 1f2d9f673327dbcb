"""Selectors by themselves, and combined."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph import Graph, Node, PartitaError, op, variable
from partita.partition import ContainOpSelector, SubgraphSelector
from partita.passes import apply_pass
from tests.graphs.drawn import graphs
from tests.graphs.topologies import SHAPE, chain

from .making import Property, Recorder, groups_of


def taken(g: Graph, selector: SubgraphSelector, **options: object) -> list[set[str]]:
    return groups_of(apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: selector), **options))


def test_op_names_mean_onnx_unless_they_name_a_domain() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Gelu", x, name="a", domain="com.microsoft", n_outputs=1)
    g = Graph([op("Relu", a, name="b")])
    selector = ContainOpSelector({"Gelu", "Relu"})
    assert [selector.select(node) for node in (a, g["b"])] == [False, True]
    assert ContainOpSelector({"com.microsoft::Gelu"}).select(a)
    assert repr(ContainOpSelector({"Relu", "com.microsoft::Gelu"})) == "ContainOpSelector({'Relu', 'com.microsoft::Gelu'})"


def test_a_predicate() -> None:
    assert taken(chain("Relu", "Exp", "Relu"), ContainOpSelector(lambda node: node.name != "relu0")) == [{"exp1", "relu2"}]
    with pytest.raises(PartitaError, match=r"hook select, node 'relu0' \(Relu\): it returned 'yes' \(str\), not a bool"):
        taken(chain("Relu"), ContainOpSelector(lambda node: "yes"))


def test_no_argument_means_the_affinity_of_the_seed() -> None:
    g = chain("Relu", "Exp", "Neg", "Abs")
    for name, device in (("relu0", "A"), ("exp1", "A"), ("neg2", "B")):
        g[name].affinity = device
    for growth in ("walk", "largest"):
        assert taken(g, ContainOpSelector(), growth=growth) == [{"relu0", "exp1"}, {"neg2"}]


@pytest.mark.parametrize("given", ["Conv", 3, {""}])
def test_what_is_no_set_of_op_names(given: object) -> None:
    with pytest.raises(PartitaError, match=r"is not (a set of op names|an op name)"):
        ContainOpSelector(given)  # type: ignore[arg-type]


def test_a_subclass_that_answers_itself_is_not_taken_for_stateless() -> None:
    class Own(ContainOpSelector):
        def select_output(self, cur: Node, new: Node) -> bool:
            return new.name != "relu1" and super().select_output(cur, new)

    class Said(Own):
        stateless = True

    assert not Own({"Relu"}).stateless
    assert Said({"Relu"}).stateless
    assert taken(chain("Relu", "Relu", "Relu"), Own({"Relu"})) == [{"relu0"}, {"relu1", "relu2"}]
    assert taken(chain("Relu", "Relu", "Relu"), Said({"Relu"})) == [{"relu0"}, {"relu1", "relu2"}]


def test_combinations() -> None:
    g = chain("Relu", "Neg", "Exp", "Abs")
    unary, curved = ContainOpSelector({"Relu", "Neg", "Abs"}), ContainOpSelector({"Relu", "Exp"})
    assert taken(g, unary | curved) == [{"relu0", "neg1", "exp2", "abs3"}]
    assert taken(g, unary & curved) == [{"relu0"}]
    assert taken(g, ~unary) == [{"exp2"}]
    assert taken(g, unary & ~curved) == [{"neg1"}, {"abs3"}]
    assert taken(g, unary & ~ContainOpSelector(lambda node: node.name == "abs3")) == [{"relu0", "neg1"}]
    assert repr(unary & ~curved) == "(ContainOpSelector({'Abs', 'Neg', 'Relu'}) & ~ContainOpSelector({'Exp', 'Relu'}))"


def test_an_affinity_and_a_set_of_ops() -> None:
    g = chain("Relu", "Neg", "Neg", "Exp", "Neg")
    for node in g.nodes[1:]:
        node.affinity = "A" if node.name in ("relu0", "neg1") else "B"
    assert taken(g, ContainOpSelector() & ContainOpSelector({"Neg"})) == [{"neg1"}, {"neg2"}, {"neg4"}]


def test_every_part_that_keeps_state_sees_every_question() -> None:
    left: list[str] = []
    right: list[str] = []
    result = apply_pass(
        chain("Relu", "Neg", "Abs"),
        "PartitionGraph",
        subgraph_property=Property(lambda: Recorder(left, {"Relu", "Neg"}) | Recorder(right, {"Neg", "Abs"})),
    )
    assert left == right == ["new", "select relu0", "output relu0 neg1", "output neg1 abs2", "filter relu0 neg1 abs2"]
    assert groups_of(result) == [{"relu0", "neg1", "abs2"}]


@settings(max_examples=40, deadline=None)
@given(g=graphs(devices=[None]), which=st.integers(0, 3), growth=st.sampled_from(["walk", "largest"]))
def test_asking_edge_by_edge_gives_what_labels_give(g: Graph, which: int, growth: str) -> None:
    def selector() -> SubgraphSelector:
        some, other = ContainOpSelector({"Add", "Relu", "Split"}), ContainOpSelector({"Add", "Neg", "Concat"})
        return (some | other, some & other, ~some, some & ~other)[which]

    class Asked(SubgraphSelector):
        stateless = True

        def __init__(self) -> None:
            self.inner = selector()
            self.select = self.inner.select  # type: ignore[method-assign]
            self.select_input = self.inner.select_input  # type: ignore[method-assign]
            self.select_output = self.inner.select_output  # type: ignore[method-assign]

    assert selector().labeler() is not None
    both_ways = growth == "largest" and which == 2  # ~a refuses the edges that lead into a, from either side
    by_label, by_edge = taken(g, selector(), growth=growth), taken(g, Asked(), growth=growth)
    assert both_ways or by_label == by_edge
