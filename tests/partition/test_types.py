"""A graph without types: selectors and hooks see those that are inferred, once, and the result is as if nobody had looked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from partita.graph import Graph, Node, TensorType, call, op, variable
from partita.partition import (
    AffinityProperty,
    ContainOpSelector,
    Pattern,
    PatternProperty,
    Plan,
    SubgraphProperty,
    SubgraphSelector,
    plan,
    watch,
)
from partita.partition.with_types import looks_at_types
from partita.passes import apply_pass, infer
from tests.graphs.drawn import graphs
from tests.graphs.topologies import SHAPE, chain

from .making import Property, check_partition_of, groups_of

FLOAT = TensorType("float32", SHAPE)


class Seeing(SubgraphSelector):
    """Takes what reads a matrix of floats, and writes down the types that it sees."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def select(self, node: Node) -> bool:
        self.seen.append((node.name, node.inputs[0].type, node[0].type))
        return node.inputs[0].type == FLOAT

    def select_output(self, cur: Node, new: Node) -> bool:
        return self.select(new)


class Fusing(SubgraphProperty):
    """Makes an op of the user's own, and writes down the bodies that it is shown."""

    name = "fused"

    def __init__(self, ops: set[str]) -> None:
        self.ops = ops
        self.bodies: list[Graph] = []

    def create_subgraph_selector(self) -> SubgraphSelector:
        return ContainOpSelector(self.ops)

    def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
        self.bodies.append(subgraph)
        return op("Fused", name=f"fused_{index}", domain="mine", n_outputs=len(subgraph.outputs))


def typed_entries(g: Graph) -> list[Any]:
    return [entry.type for node in g.nodes for entry in node.outputs]


def test_selectors_see_types_and_the_graph_stays_as_it_was() -> None:
    g, seen = chain("Exp", "Relu", "Neg"), []
    before = str(g), typed_entries(g), g.nodes
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing(seen)))
    assert seen == [("exp0", FLOAT, FLOAT), ("relu1", FLOAT, FLOAT), ("neg2", FLOAT, FLOAT)]
    assert (str(g), typed_entries(g), g.nodes) == before
    assert groups_of(result) == [{"exp0", "relu1", "neg2"}]
    check_partition_of(g, result)


def test_the_inference_runs_once_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    g, runs = chain("Exp", "Relu"), []
    infer_once = infer.infer
    monkeypatch.setattr("partita.passes.infer_types.infer", lambda *args, **given: runs.append(1) or infer_once(*args, **given))
    for _ in range(2):
        apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing([])))
        plan(g, subgraph_property=Property(lambda: Seeing([])))
        plan(g, subgraph_property=Property(lambda: Seeing([]))).apply(g)
        watch(g, lambda: Seeing([]))
    assert runs == [1]


def test_it_can_be_switched_off() -> None:
    g, seen = chain("Exp", "Relu"), []
    untyped = [("exp0", FLOAT, None), ("relu1", None, None)]  # the type of x is declared
    apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing(seen)), infer_types=False)
    assert seen[:2] == untyped
    planned = plan(g, subgraph_property=Property(lambda: Seeing([])), infer_types=False)
    assert '"infer_types": false' in planned.to_json()
    shown = Fusing({"Exp", "Relu"})
    shown.name = "mine"
    Plan.from_json(planned.to_json()).apply(g, shown)
    assert [body.outputs[0].type for body in shown.bodies] == [None]


def test_where_nobody_can_look_nothing_is_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.passes.infer_types.infer", lambda *args, **options: pytest.fail("types were inferred"))
    g = chain("Exp", "Relu")
    for subject in (
        PatternProperty(ContainOpSelector({"Exp"}), "some"),
        PatternProperty(Pattern("Exp", "Relu?"), "pair"),
        AffinityProperty(),
    ):
        apply_pass(g, "PartitionGraph", subgraph_property=subject)


def test_what_has_types_already_is_taken_as_it_is() -> None:
    g = apply_pass(chain("Exp", "Relu"), "InferType")
    shown: list[Node] = []
    selector = ContainOpSelector(lambda node: bool(shown.append(node)) or node is g["relu1"])
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(selector))
    assert shown == [g["exp0"], g["relu1"]]
    assert groups_of(result) == [{"relu1"}]
    assert result["exp0"] is g["exp0"]


def test_bodies_have_typed_inputs_and_outputs_and_the_fused_op_keeps_the_types() -> None:
    g = chain("Exp", "Relu", "Neg", "Abs")
    subject = Fusing({"Relu", "Neg"})
    result = apply_pass(g, "PartitionGraph", subgraph_property=subject)
    (body,) = subject.bodies
    assert (body.inputs[0][0].type, body.outputs[0].type) == (FLOAT, FLOAT)
    assert result["fused_0"].output_types == (FLOAT,)
    assert result["fused_0"].output_names == ("neg2",)
    assert [result[name][0].type for name in ("exp0", "abs3")] == [None, None]
    assert result["exp0"] is g["exp0"]  # what did not change is shared


def test_a_hook_that_returns_a_call_leaves_no_types_behind() -> None:
    class Calls(Fusing):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            assert all(entry.type == FLOAT for node in subgraph.nodes for entry in node.outputs)
            return call(subgraph.evolve(name="other"), name=f"fused_{index}")

    g = chain("Exp", "Relu", "Neg", "Abs")
    check_partition_of(g, apply_pass(g, "PartitionGraph", subgraph_property=Calls({"Relu", "Neg"})))


def test_changed_copies_read_the_values_of_the_graph_that_was_given() -> None:
    class Adjusts(Fusing):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> None:  # type: ignore[override]
            return None

        def adjust_subgraph_node(self, nodes: Any, index: int) -> Any:
            assert all(node[0].type == FLOAT for node in nodes)
            return [node.evolve(metadata={"seen": "yes"}) for node in nodes]

    g = chain("Exp", "Relu", "Neg")
    result = apply_pass(g, "PartitionGraph", subgraph_property=Adjusts({"Relu", "Neg"}))
    assert result["relu1"].inputs[0].node is g["exp0"]
    assert [(node.name, node[0].type) for node in result.nodes if node.metadata] == [("relu1", None), ("neg2", None)]


def test_affinities_are_those_of_now() -> None:
    g = chain("Exp", "Relu", "Neg")
    by_affinity = Property(lambda: ContainOpSelector(lambda node: node.affinity == "gpu"))
    assert groups_of(apply_pass(g, "PartitionGraph", subgraph_property=by_affinity)) == []
    g["relu1"].affinity = "gpu"
    first = apply_pass(g, "PartitionGraph", subgraph_property=by_affinity)
    assert groups_of(first) == [{"relu1"}]
    g["relu1"].affinity, g["neg2"].affinity = None, "gpu"
    assert groups_of(apply_pass(g, "PartitionGraph", subgraph_property=by_affinity)) == [{"neg2"}]
    assert first["subgraph_0" if "subgraph_0" in first else "mine_0"].affinity is not None


def test_a_graph_whose_types_contradict_is_partitioned_with_a_note() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    wrong = op("Relu", a, name="b").evolve(output_types=(TensorType("float32", (7,)),))
    g = Graph([op("Neg", wrong, name="c")])
    seen: list[Any] = []
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing(seen)), verify=False)
    (note,) = result.attrs["partition_report"].notes
    assert note.startswith("The types of some values could not be inferred: pass 'InferType', node 'b' (Relu): ")
    assert " is inferred. Correct the declared type" in note
    assert ("a", FLOAT, FLOAT) in seen
    assert plan(g, subgraph_property=Property(lambda: Seeing([]))).notes == (note,)


def test_bodies_of_calls_are_seen_with_types_too() -> None:
    g = chain("Exp", "Relu", "Neg")
    first = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector({"Relu", "Neg"}), "p"))
    seen: list[Any] = []
    result = apply_pass(first, "PartitionGraph", inside=True, subgraph_property=Property(lambda: Seeing(seen)))
    assert seen == [("relu1", FLOAT, FLOAT), ("neg2", FLOAT, FLOAT)]
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)


def test_a_plan_is_the_same_whether_the_graph_was_inferred_before() -> None:
    g = chain("Exp", "Relu", "Neg")
    one = plan(g, subgraph_property=Property(lambda: Seeing([])))
    again = plan(g, subgraph_property=Property(lambda: Seeing([])))
    typed = plan(apply_pass(g, "InferType"), subgraph_property=Property(lambda: Seeing([])))
    assert one.to_json() == again.to_json() == typed.to_json()
    assert str(one.apply(g)) == str(apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing([]))))


def test_a_hook_that_changes_the_graph_that_was_given_is_caught() -> None:
    g = chain("Exp", "Relu")

    class Meddles(Fusing):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
            g["exp0"].affinity = "mine"
            return super().create_subgraph_node(subgraph, index)

    with pytest.raises(Exception, match="it set the affinity of a node of the graph that it was shown"):
        apply_pass(g, "PartitionGraph", subgraph_property=Meddles({"Relu"}))
    assert g["exp0"].affinity is None


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_graphs_come_back_as_they_were(g: Graph) -> None:
    seen: list[Any] = []
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Seeing(seen)))
    check_partition_of(g, result)
    assert all(known is not None for row in seen for known in row[1:])


def test_patterns_without_predicates_look_at_no_types() -> None:
    plain, asking = Pattern("Conv", "Relu"), Pattern("Conv", lambda node: True)
    assert not looks_at_types(PatternProperty(plain)) and looks_at_types(PatternProperty(asking))
    reviewing = PatternProperty(plain)
    reviewing.review_subgraph = lambda subgraph, index: True  # type: ignore[method-assign]
    assert looks_at_types(reviewing)
    assert not looks_at_types(SubgraphProperty()) and looks_at_types(type("Mine", (SubgraphProperty,), {})())

