"""The hooks of a property, the limits, several properties, and where properties come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, Node, NodeEntry, PartitaError, call, constant, op, variable
from partita.partition import (
    AffinityProperty,
    ContainOpSelector,
    Pattern,
    PatternProperty,
    SubgraphProperty,
    SubgraphSelector,
    list_backends,
    list_properties,
    optimize_for,
    register_property,
    unregister_property,
)
from partita.partition.property import HOOKS
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain, from_edges

from .making import Property, check_partition_of, check_same, groups_of, ops


def two_runs() -> Graph:
    """relu0 neg1 | exp2 | relu3 neg4 neg5."""
    return chain("Relu", "Neg", "Exp", "Relu", "Neg", "Neg")


def takes() -> ContainOpSelector:
    return ContainOpSelector({"Relu", "Neg"})


def made_with(subject: SubgraphProperty | list[SubgraphProperty], g: Graph | None = None, **options: Any) -> Graph:
    return apply_pass(g or two_runs(), "PartitionGraph", subgraph_property=subject, **options)


def test_the_page_lists_the_hooks_in_the_order_in_which_they_run() -> None:
    page = Path(__file__, "../../../docs/selectors.md").resolve().read_text("utf-8")
    assert re.findall(r"^\| `(\w+_\w+)\([\w, ]*\)` \|", page, re.MULTILINE) == [*HOOKS]


def test_hooks_run_in_this_order() -> None:
    log: list[str] = []

    class Logging(SubgraphProperty):
        name = "log"

        def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
            log.append(f"pre {graph.name} {dict(options)}")

        def create_subgraph_selector(self) -> ContainOpSelector:
            log.append("selector")
            return takes()

        def init_subgraph_inputs(self, variables: Sequence[Node], entries: Sequence[NodeEntry]) -> Sequence[Node]:
            log.append(f"inputs {[v.name for v in variables]} {[e.name for e in entries]}")
            return variables

        def review_subgraph(self, subgraph: Graph, index: int) -> bool:
            log.append(f"review {subgraph.name} {index}")
            return True

        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            log.append(f"create {subgraph.name} {index}")
            return call(subgraph, name=f"{self.name}_{index}")

        def connect_subgraph_inputs(self, node: Node, entries: Sequence[NodeEntry]) -> Node:
            log.append(f"connect {node.name} to {[e.name for e in entries]}")
            return super().connect_subgraph_inputs(node, entries)

        def connect_subgraph_outputs(self, node: Node, entries: Sequence[NodeEntry]) -> Sequence[NodeEntry]:
            log.append(f"outputs of {node.name}: {[e.name for e in entries]}")
            return super().connect_subgraph_outputs(node, entries)

        def post_partition(self, graph: Graph) -> None:
            log.append(f"post {[n.name for n in graph.nodes]}")

    made_with(Logging(), effort=3)
    assert log == [
        "pre net {'effort': 3}",
        "selector",
        "inputs ['x'] ['x']",
        "review log_0 0",
        "create log_0 0",
        "inputs ['exp2'] ['exp2']",
        "review log_1 1",
        "create log_1 1",
        "connect log_0 to ['x']",
        "outputs of log_0: ['neg1']",
        "connect log_1 to ['exp2']",
        "outputs of log_1: ['neg5']",
        "post ['x', 'log_0', 'exp2', 'log_1']",
    ]


def test_none_leaves_the_nodes_as_they_were() -> None:
    class Choosy(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node | None:
            return None if index == 0 else super().create_subgraph_node(subgraph, index)

    g = two_runs()
    result = made_with(Choosy(takes), g)
    check_partition_of(g, result)
    assert groups_of(result) == [{"relu3", "neg4", "neg5"}]
    assert [n.name for n in result.nodes] == ["x", "relu0", "neg1", "exp2", "mine_1"]
    reason = result.attrs["partition_report"].outside[0]
    assert (reason.rule, reason.text) == ("hook", "create_subgraph_node returned None for its subgraph, by 'mine'")


def test_a_later_property_may_take_what_an_earlier_one_gave_back() -> None:
    class No(Property):
        def review_subgraph(self, subgraph: Graph, index: int) -> bool:
            return index > 0

    g = two_runs()
    result = made_with([No(takes, "no"), ops("Neg")], g)
    check_partition_of(g, result)
    assert [(n.name, len(n.subgraph.nodes)) for n in result.nodes if n.is_call] == [("mine_0", 2), ("no_1", 4)]


def test_a_review_adds_attributes() -> None:
    class Attributes(Property):
        def review_subgraph(self, subgraph: Graph, index: int) -> Mapping[str, Any]:
            return {"index": index}

    assert [n.attrs["index"] for n in made_with(Attributes(takes)).nodes if n.is_call] == [0, 1]


def test_nodes_may_be_adjusted_in_place_of_a_call() -> None:
    class Slope(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> None:
            return None

        def adjust_subgraph_node(self, nodes: Sequence[Node], index: int) -> Sequence[Node]:
            return [node.evolve(attrs={"alpha": 0.5}) for node in nodes]

    x = variable("x", "float32", SHAPE)
    g = Graph([op("Neg", op("LeakyRelu", x, name="a"), name="b")])
    result = made_with(Slope(lambda: ContainOpSelector({"LeakyRelu"})), g)
    assert result["a"].attrs["alpha"] == 0.5
    assert [e.node is result["a"] for e in result["b"].inputs] == [True]


def test_an_op_of_ones_own_and_outputs_in_another_order() -> None:
    class Swapped(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            return op("Both", name="both", domain="mine", n_outputs=3)

        def connect_subgraph_outputs(self, node: Node, entries: Sequence[NodeEntry]) -> Sequence[NodeEntry]:
            return [node[2], node[0]]

        def connect_subgraph_inputs(self, node: Node, entries: Sequence[NodeEntry]) -> Node:
            return node.evolve(inputs=(*entries[::-1],))

    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    a = op("Relu", op("Add", x, y, name="s"), name="a")
    g = Graph([op("Exp", op("Neg", a, name="b"), name="c"), op("Abs", a, name="d")])
    result = made_with(Swapped(lambda: ContainOpSelector({"Add", "Relu", "Neg"})), g, verify=False)
    both = result["both"]
    assert [e.name for e in both.inputs] == ["y", "x"]
    assert both.output_names == ("b", "both_1", "a")
    assert (result["c"].inputs[0].index, result["d"].inputs[0].index) == (0, 2)


def test_outputs_that_stand_for_no_value_of_the_subgraph_get_names_that_are_free() -> None:
    class First(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            return op("Both", subgraph.inputs[0], constant(np.float32(1), "both_1_2"), name="both", domain="mine", n_outputs=2)

        def connect_subgraph_outputs(self, node: Node, entries: Sequence[NodeEntry]) -> Sequence[NodeEntry]:
            return [node[0]]

    x = variable("x", "float32", SHAPE)
    a = op("Tanh", op("Relu", x, name="a"), name="both_1")
    g = Graph([op("Neg", op("Relu", op("Tanh", op("Relu", a, name="b"), name="t"), name="c"), name="d")])
    result = made_with(First(lambda: ContainOpSelector({"Relu"})), g, verify=False)
    names = [node.output_names for node in result.nodes if node.op == "Both"]
    assert names == [("a", "both_1_1"), ("b", "both_1_3"), ("c", "both_1_4")]


def test_inputs_may_be_replaced() -> None:
    class Renamed(Property):
        def init_subgraph_inputs(self, variables: Sequence[Node], entries: Sequence[NodeEntry]) -> Sequence[Node]:
            return [variable(f"in{i}", "float32", SHAPE) for i in range(len(variables))]

    g = two_runs()
    result = made_with(Renamed(takes), g)
    check_same(g, result)
    assert [n.name for n in result["mine_1"].subgraph.inputs] == ["in0"]


def test_limits() -> None:
    assert groups_of(made_with(ops("Relu", "Neg"), min_subgraph_size=3)) == [{"relu3", "neg4", "neg5"}]
    assert groups_of(made_with(ops("Relu", "Neg"), max_subgraphs=1)) == [{"relu3", "neg4", "neg5"}]
    assert groups_of(made_with(ops("Relu", "Neg"), max_subgraphs=0)) == []
    result = made_with(Property(takes, min_subgraph_size=3, max_subgraphs=None))
    outside = result.attrs["partition_report"].outside[0]
    assert outside.text == "'relu0' was in a subgraph of 2 ops, fewer than min_subgraph_size=3"
    border = result.attrs["partition_report"].borders[0]
    assert (border.producer, border.consumer, border.rule) == ("exp2", "relu3", "unsupported")
    assert [n.name for n in result.nodes if n.is_call] == ["mine_0"]


def test_large_subgraphs_are_cut() -> None:
    result = made_with(ops("Relu", "Neg"), max_nodes=2)
    assert groups_of(result) == [{"relu0", "neg1"}, {"relu3", "neg4"}, {"neg5"}]
    border = next(one for one in result.attrs["partition_report"].borders if one.producer == "neg4")
    assert (border.consumer, border.rule) == ("neg5", "size")
    assert border.text == "'neg5' is in 'mine_2': one subgraph may hold max_nodes=2"
    own = Property(takes)
    own.max_nodes = 1
    assert groups_of(made_with(own)) == [{name} for name in ("relu0", "neg1", "relu3", "neg4", "neg5")]
    cut = made_with(ops("Relu", "Neg"), cuts=["neg4", "relu3", "exp2"])
    assert groups_of(cut) == [{"relu0", "neg1"}, {"relu3"}, {"neg4", "neg5"}]
    border = next(one for one in cut.attrs["partition_report"].borders if one.consumer == "neg4")
    assert border.text == "'neg4' is in 'mine_2': it was cut by the option cuts"
    assert groups_of(made_with(ops("Relu", "Neg"), cuts=["neg5"], max_nodes=1)) == groups_of(made_with(own))
    with pytest.raises(PartitaError, match="cuts are names of ops, not 'neg4'"):
        made_with(ops("Relu", "Neg"), cuts="neg4")
    with pytest.raises(PartitaError, match=r"cuts are names of ops, not \[4\]"):
        made_with(ops("Relu", "Neg"), cuts=[4])
    with pytest.raises(PartitaError, match="'neg_4' is not an op of the graph\n  Did you mean 'neg4'"):
        made_with(ops("Relu", "Neg"), cuts=["neg_4"])
    match = PatternProperty(Pattern("Relu", "Neg", "Neg"), "match")
    assert len(groups_of(made_with(match, cuts=["neg4"]))) == 1
    outside = made_with(match, max_nodes=2).attrs["partition_report"].outside
    assert outside[-1].text == "'neg5' was in a subgraph of 3 ops, more than max_nodes=2"


@pytest.mark.parametrize("option", ["min_subgraph_size", "max_subgraphs", "max_nodes"])
@pytest.mark.parametrize("value", [-1, "3", 2.5, True])
def test_limits_that_are_none(option: str, value: Any) -> None:
    with pytest.raises(PartitaError, match="is not a count"):
        made_with(ops("Relu"), **{option: value})


def test_limits_may_be_numbers_of_numpy() -> None:
    assert groups_of(made_with(ops("Relu", "Neg"), min_subgraph_size=np.int64(3))) == [{"relu3", "neg4", "neg5"}]


@pytest.mark.parametrize("option", ["infer_types", "dedup_inputs"])
def test_a_word_is_no_flag(option: str) -> None:
    with pytest.raises(PartitaError, match=f"option {option}: 'no' is neither True nor False\n  Write True or False"):
        made_with(ops("Relu"), **{option: "no"})


@pytest.mark.parametrize("attribute", ["inline", "dedup_inputs"])
def test_a_word_is_no_flag_of_a_property(attribute: str) -> None:
    chosen = ops("Relu")
    setattr(chosen, attribute, "no")
    with pytest.raises(PartitaError, match=f": {attribute}: 'no' is neither True nor False"):
        made_with(chosen)
    with pytest.raises(PartitaError, match="call 'c': inline: 'no' is neither True nor False"):
        call(two_runs(), name="c", inline="no")  # type: ignore[arg-type]


def test_the_order_of_precedence_and_consumption() -> None:
    g = two_runs()
    g["exp2"].affinity = "gpu"
    g.attrs["subgraph_property"] = ops("Neg")
    register_property("for_exp", lambda: ops("Exp"))
    try:
        by_option = made_with(ops("Relu"), g, backend="for_exp")
        by_backend = apply_pass(g, "PartitionGraph", backend="for_exp")
        by_attribute = apply_pass(g, "PartitionGraph")
        by_affinity = apply_pass(g.evolve(attrs={}), "PartitionGraph")
    finally:
        unregister_property("for_exp")
    assert groups_of(by_option) == [{"relu0"}, {"relu3"}]
    assert groups_of(by_backend) == [{"exp2"}]
    assert groups_of(by_attribute) == [{"neg1"}, {"neg4", "neg5"}]
    assert groups_of(by_affinity) == [{"exp2"}]
    assert all("subgraph_property" not in item.attrs for item in (by_option, by_backend, by_attribute))
    assert "subgraph_property" in g.attrs


def test_a_list_in_the_graph_attribute() -> None:
    g = two_runs()
    g.attrs["subgraph_property"] = [PatternProperty(ContainOpSelector({"Exp"}), "e"), ops("Neg")]
    assert [n.name for n in apply_pass(g, "PartitionGraph").nodes if n.is_call] == ["mine_0", "e_0", "mine_1"]


def test_nothing_says_what_goes_together() -> None:
    with pytest.raises(PartitaError) as caught:
        apply_pass(two_runs(), "PartitionGraph")
    assert "there is no property, no backend, and no node has an affinity" in str(caught.value)
    assert "set node.affinity" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Property, "Property is a class"),
        ("mine", "it holds 'mine' (str), not a SubgraphProperty"),
        ([], "the list of properties is empty"),
    ],
)
def test_what_is_no_property(given: Any, message: str) -> None:
    with pytest.raises(PartitaError) as caught:
        made_with(given)
    assert message in str(caught.value)


def test_unknown_options_and_growths() -> None:
    with pytest.raises(PartitaError, match=r"there is no option 'min_subgraph_sise'[\s\S]*Did you mean 'min_subgraph_size'"):
        made_with(ops("Relu"), min_subgraph_sise=3)
    with pytest.raises(PartitaError, match=r"there is no growth 'larges'[\s\S]*Did you mean 'largest'"):
        made_with(ops("Relu"), growth="larges")


def test_a_growth_asked_for_by_name_takes_the_selector_for_stateless() -> None:
    class Stateful(ContainOpSelector):
        stateless = False

    result = made_with(Property(lambda: Stateful({"Relu"})), growth="largest")
    assert groups_of(result) == groups_of(made_with(ops("Relu")))
    assert result.attrs["partition_report"].notes == (
        "Growth largest took Stateful for stateless, which it does not claim to be",
    )


def test_backends() -> None:
    listed: list[SubgraphProperty] = []

    def factory() -> SubgraphProperty:
        listed.append(ops("Relu"))
        return listed[-1]

    def second() -> SubgraphProperty:
        return PatternProperty(ContainOpSelector({"Exp"}), "second")

    register_property("mine", factory)
    register_property("mine", second)
    try:
        assert "mine" in list_backends()
        assert list_properties("mine") == (factory, second)
        assert [n.name for n in optimize_for(two_runs(), "mine").nodes if n.is_call] == ["mine_0", "second_0", "mine_1"]
        optimize_for(two_runs(), "mine", growth="walk")
        assert len({id(subject) for subject in listed}) == 2
        with pytest.raises(PartitaError, match=r"there is no backend 'mime'; known are: [\s\S]*'mine'"):
            optimize_for(two_runs(), "mime")
        unregister_property("mine", factory)
        assert list_properties("mine") == (second,)
    finally:
        unregister_property("mine")
    assert "mine" not in list_backends()
    with pytest.raises(PartitaError, match="there is no backend 'mine'"):
        unregister_property("mine")


def test_factories_that_make_no_properties() -> None:
    with pytest.raises(PartitaError, match="Register the class"):
        register_property("mine", ops("Relu"))  # type: ignore[arg-type]
    register_property("mine", lambda: "no")  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(PartitaError, match=r"property '<lambda>', hook factory, backend 'mine': it returned 'no'"):
            optimize_for(two_runs(), "mine")
    finally:
        unregister_property("mine")


def test_each_device_has_its_own_hooks() -> None:
    class Gpu(SubgraphProperty):
        name = "gpu"

        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            return call(subgraph, name=f"on_gpu_{index}")

    g = from_edges({"a": [], "b": ["a"], "c": ["b"]}, {"a": "gpu", "b": "cpu", "c": "gpu"})
    result = apply_pass(g, "PartitionGraph", subgraph_property=AffinityProperty({"gpu": Gpu()}))
    check_partition_of(g, result)
    calls = [(node.name, node.affinity) for node in result.nodes if node.is_call]
    assert calls == [("on_gpu_0", "gpu"), ("cpu_1", "cpu"), ("on_gpu_2", "gpu")]


def test_two_levels() -> None:
    g = two_runs()
    outer = made_with(ops("Relu", "Neg"), g)
    inner = made_with(PatternProperty(ContainOpSelector({"Neg"}), "kernel"), outer, inside=True)
    assert [n.name for n in inner["mine_0"].subgraph.nodes if n.is_op] == ["relu0", "kernel_0"]
    assert [n.name for n in inner["mine_1"].subgraph.nodes if n.is_op] == ["relu3", "kernel_0_1"]
    check_same(g, inner)
    assert str(apply_pass(inner, "InlineSubgraphs")) == str(g)
    one = apply_pass(outer, "PartitionGraph", inside=lambda node: node.name == "mine_0", subgraph_property=ops("Neg"))
    assert [n.is_call for n in one["mine_0"].subgraph.nodes if n.is_op] == [False, True]
    assert one["mine_1"].subgraph is outer["mine_1"].subgraph
    assert one["mine_0"].subgraph.attrs["partition_report"].groups[0].nodes == ("neg1",)


def test_a_property_may_partition_its_body_itself() -> None:
    class Nested(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            return call(apply_pass(subgraph, "PartitionGraph", subgraph_property=ops("Neg")))

    g = two_runs()
    result = made_with(Nested(takes), g)
    check_same(g, result)
    assert [n.name for n in result["mine_0"].subgraph.nodes] == ["x", "relu0", "mine_0_1"]
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)


def test_inlining_some_calls() -> None:
    result = made_with(ops("Relu", "Neg"))
    some = apply_pass(result, "InlineSubgraphs", calls=["mine_0"])
    assert [n.name for n in some.nodes] == ["x", "relu0", "neg1", "exp2", "mine_1"]
    with pytest.raises(PartitaError, match="there is no call 'exp2'"):
        apply_pass(result, "InlineSubgraphs", calls=["exp2"])


def test_a_property_of_one_selector_takes_none_that_keeps_state() -> None:
    with pytest.raises(PartitaError, match="PatternProperty: SubgraphSelector may keep state, so every seed needs a new one"):
        PatternProperty(SubgraphSelector(), "one")
