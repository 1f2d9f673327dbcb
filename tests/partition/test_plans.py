"""Plans, their JSON, reports, and the checker."""

from __future__ import annotations

import json
import random
from typing import Any

import networkx
import numpy as np
import pytest

from partita.graph import Graph, Node, PartitaError, constant, op, variable
from partita.graph.order import EdgeArrays
from partita.partition import (
    AffinityProperty,
    ContainOpSelector,
    PartitionError,
    Pattern,
    PatternProperty,
    Plan,
    SubgraphProperty,
    SubgraphSelector,
    plan,
)
from partita.partition.checker import check_connected, check_partition
from partita.partition.fingerprint import fingerprint
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain, from_edges

from .making import Property, check_partition_of, groups_of, ops

EDGES = {"1": [], "2": ["1"], "3": ["2"], "4": ["2"], "5": ["3", "4"], "6": ["5"], "7": ["6"]}
DEVICE = {name: "B" if name == "4" else "A" for name in EDGES}
"""The worked example of the HETERO design document."""


def test_a_plan_says_what_would_be_done() -> None:
    g = from_edges(EDGES, DEVICE)
    before = str(g)
    planned = plan(g)
    assert str(planned) == (
        "plan for 'net': 7 ops in 3 subgraphs\n"
        "  A_0 on A: 2 ops (1, 2)\n"
        "  A_1 on A: 4 ops (3, 5, 6, 7)\n"
        "  B_2 on B: 1 op (4)"
    )
    assert str(g) == before
    assert [(b.producer, b.consumer, b.inside, b.rule, b.text) for b in planned.borders] == [
        ("x", "1", "A_0", "input", "a graph input"),
        ("2", "3", "A_0", "cycle", "one subgraph with 'A_1' would close a cycle"),
        ("2", "4", "A_0", "device", "'4' is on B, '2' on A"),
        ("4", "5", "B_2", "device", "'5' is on A, '4' on B"),
    ]


def test_a_plan_read_from_json_does_the_same() -> None:
    g = from_edges(EDGES, DEVICE)
    planned = plan(g)
    text = planned.to_json()
    assert text.startswith('{\n "partita_plan": ') and text.endswith("\n}\n")
    read = Plan.from_json(text)
    assert read == planned
    assert read.to_json() == text == plan(from_edges(EDGES, DEVICE)).to_json()
    result = apply_pass(g, "PartitionGraph")
    assert str(read.apply(g)) == str(planned.apply(g)) == str(result)
    assert read.apply(g).attrs["partition_report"].to_dict() == result.attrs["partition_report"].to_dict()


def test_a_plan_for_another_graph_is_refused() -> None:
    planned = plan(from_edges(EDGES, DEVICE))
    longer = from_edges({**EDGES, "8": ["7"]}, DEVICE)
    with pytest.raises(PartitaError, match=r"the plan was made for another graph \(its name was .*\): it also has '8'"):
        planned.apply(longer)
    with pytest.raises(PartitaError, match=r"another graph \(its name was .*\): it lacks '8'"):
        plan(longer).apply(from_edges(EDGES, DEVICE))
    turned = from_edges({**EDGES, "5": ["4", "3"]}, DEVICE)
    with pytest.raises(PartitaError, match="they differ first in node '5': its op, attributes or inputs"):
        planned.apply(turned)
    with pytest.raises(PartitaError, match="its ops have the same names; their attributes, inputs or constants' sizes differ"):
        Plan.from_json(planned.to_json()).apply(turned)


CYCLE = (
    r"the subgraphs close a cycle; those that start at '1', '6', '4' are in it or behind it: "
    r"\{5 \.\.\. 2\} -> 4 -> \{5 \.\.\. 2\}\n  Change the nodes given"
)


def test_a_plan_that_was_tampered_with_is_checked_again() -> None:
    g = from_edges(EDGES, DEVICE)
    content = json.loads(plan(g).to_json())
    content["groups"][0]["nodes"].append("3")
    with pytest.raises(PartitaError, match="node '3' is in two subgraphs"):
        Plan.from_json(json.dumps(content)).apply(g)
    content["groups"][1]["nodes"] = ["5", "6", "7"]
    content["groups"][0]["nodes"].append("5")
    content["groups"][1]["nodes"].remove("5")
    with pytest.raises(PartitaError, match=CYCLE):
        Plan.from_json(json.dumps(content)).apply(g)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is not JSON"),
        ("[]", "not a plan of a version that is known"),
        ('{"partita_plan": 1}', "the plan is damaged: 'groups'"),
    ],
)
def test_what_is_no_plan(text: str, message: str) -> None:
    with pytest.raises(PartitaError, match=message):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device", 5, "5 stands for device"), ("name", None, "None stands for name"), ("index", "0", "'0' stands for index"),
        ("nodes", "12", "'12' stands for nodes"), ("nodes", [1, 2], "1 stands for nodes"),
    ],
)
def test_fields_of_a_plan_have_their_types(field: str, value: object, message: str) -> None:
    content = json.loads(plan(from_edges(EDGES, DEVICE)).to_json())
    content["groups"][0][field] = value
    with pytest.raises(PartitaError, match=f"the plan is damaged: {message}"):
        Plan.from_json(json.dumps(content))


def test_a_plan_calls_the_hooks_that_make_calls_only_when_applied() -> None:
    listed: list[int] = []

    class Counting(Property):
        def create_subgraph_node(self, subgraph: Graph, index: int) -> None:
            listed.append(index)

    g = chain("Relu", "Exp", "Relu")
    planned = plan(g, subgraph_property=Counting(lambda: ContainOpSelector({"Relu"})))
    assert listed == []
    done = planned.apply(g)
    assert listed == [0, 1]
    assert str(done) == str(g)
    assert done.attrs["partition_report"].notes == (
        "create_subgraph_node of 'mine' left the ops of mine_0 as they were",
        "create_subgraph_node of 'mine' left the ops of mine_1 as they were",
    )


def test_properties_may_be_given_anew() -> None:
    g = chain("Relu", "Exp", "Relu")
    text = plan(g, subgraph_property=ops("Relu")).to_json()
    plain = Plan.from_json(text).apply(g)
    check_partition_of(g, plain)

    class Own(Property):
        def review_subgraph(self, subgraph: Graph, index: int) -> dict[str, int]:
            return {"index": index}

    result = Plan.from_json(text).apply(g, Own(lambda: None))
    assert result["mine_1"].attrs["index"] == 1
    with pytest.raises(PartitaError, match="the plan has subgraphs of a property 'mine', which is not among those given"):
        Plan.from_json(text).apply(g, Property(lambda: None, "other"))


def test_the_report_finds_the_path_of_a_cycle_when_asked() -> None:
    result = apply_pass(from_edges(EDGES, DEVICE), "PartitionGraph")
    rows = result.attrs["partition_report"].to_dict(paths=True)["borders"]
    assert [row["path"] for row in rows] == [None, ["A_0", "B_2", "A_1"], None, None]
    assert "path" not in result.attrs["partition_report"].to_dict()["borders"][0]


def test_the_report_in_words_and_as_a_table() -> None:
    from rich.console import Console

    g = chain("Relu", "Exp", "Relu", "Neg")
    report = apply_pass(g, "PartitionGraph", subgraph_property=ops("Relu", "Neg")).attrs["partition_report"]
    assert str(report) == (
        "net: 3 of 4 ops in 2 subgraphs\n"
        "  mine_0: 1 op (relu0)\n"
        "  mine_1: 2 ops (relu2, neg3)\n"
        "  outside: 1 op, unsupported: 'mine' does not take 'exp1' (Exp)\n"
        "  borders: 1 input, 2 unsupported"
    )
    assert report.explain("relu2") == "relu2 is in mine_1\n  exp1 -> relu2: unsupported: 'mine' does not take 'exp1' (Exp)"
    with pytest.raises(PartitaError, match=r"there is no op 'relu9' in the report[\s\S]*Did you mean"):
        report.explain("relu9")
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report)
    text = console.export_text()
    assert "3 of 4 ops in 2 subgraphs" in text
    assert "mine_1" in text and "(outside)" in text


@pytest.mark.parametrize(("count", "most", "rows"), [(30, None, 30), (32, None, 31), (4, 3, 4), (3, 3, 3), (11, None, 11)])
def test_a_report_shows_so_many_subgraphs(count: int, most: int | None, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    g = chain(*["Relu", "Exp"] * count)
    report = apply_pass(g, "PartitionGraph", subgraph_property=ops("Relu")).attrs["partition_report"]
    table = report.to_table() if most is None else report.to_table(most)
    assert table.row_count == rows + 1, "and a row for what is outside"
    report.print() if most is None else report.print(most)
    printed = capsys.readouterr().out
    shown = min(count, most or 30)
    assert f"mine_{shown - 1} " in printed and f"mine_{shown} " not in printed
    assert ("more" in printed) == (count > shown) and (count == shown or f"... {count - shown} more" in printed)
    lines = str(report).splitlines()
    assert [line for line in lines if "more" in line] == ([f"  ... and {count - 10} more"] if count > 10 else [])
    assert sum("1 op (relu" in line for line in lines) == min(count, 10)


def test_the_repairs_of_growth_seed_are_told() -> None:
    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    device = {"a1": "A", "b2": "B", "b1": "B", "b3": "B", "a2": "A", "a3": "A"}
    a1, b2 = op("Relu", x, name="a1"), op("Relu", y, name="b2")
    b1, a2 = op("Relu", a1, name="b1"), op("Relu", b2, name="a2")
    g = Graph([op("Add", b1, b2, name="b3"), op("Add", a1, a2, name="a3")])
    for name, where in device.items():
        g[name].affinity = where
    result = apply_pass(g, "PartitionGraph", growth="seed")
    check_partition_of(g, result)
    assert result.attrs["partition_report"].notes == (
        "Growth seed chose {b2, b1, b3}, which would have closed a cycle with a subgraph chosen before: it became {b2}, {b1, b3}",
    )
    assert len(groups_of(result)) == 3


def test_waves_may_be_unconnected() -> None:
    x = variable("x", "float32", SHAPE)
    g = Graph([op("Exp", op("Relu", x, name="a"), name="b"), op("Neg", op("Relu", x, name="c"), name="d")])
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops("Relu"), growth="waves")
    check_partition_of(g, result, unconnected=True)
    assert groups_of(result) == [{"a", "c"}]


def name(v: int) -> str:
    return f"n{v}"


@pytest.mark.parametrize(
    ("preds", "groups", "message"),
    [
        ([[], [0], [1]], [[0, 2]], r"start at 'n0' are in it or behind it: \{n2 \.\.\. n0\} -> n1 -> \{n2 \.\.\. n0\}"),
        (
            [[], [], [0], [1], [0, 3], [1, 2]],
            [[0, 4], [1, 5]],
            r"'n1' are in it or behind it: \{n4 \.\.\. n0\} -> n2 -> \{n5 \.\.\. n1\} -> n3 -> \{n4",
        ),
        ([[], [0]], [[0, 1], [1]], "node 'n1' is in two subgraphs"),
        ([[], [0]], [[]], "a subgraph has no nodes"),
    ],
)
def test_the_checker_refuses(preds: list[list[int]], groups: list[list[int]], message: str) -> None:
    with pytest.raises(PartitaError, match=message):
        check_partition(EdgeArrays.of(preds), groups, [True] * len(preds), name)


def test_the_checker_refuses_nodes_that_were_not_offered_and_loose_groups() -> None:
    with pytest.raises(PartitaError, match="node 'n1' may not be in a subgraph"):
        check_partition(EdgeArrays.of([[], [0]]), [[0, 1]], [True, False], name)
    with pytest.raises(PartitaError, match="does not hang together"):
        check_connected(EdgeArrays.of([[], [0], [0, 1]]), [[1, 2]], {(1, 2)}, name)


@pytest.mark.parametrize("seed", range(60))
def test_the_checker_finds_loose_groups(seed: int) -> None:
    rng = random.Random(seed)
    preds = [[rng.randrange(v) for _ in range(rng.choice((0, 1, 2)))] if v else [] for v in range(rng.randint(1, 12))]
    refused = {(u, v) for v, producers in enumerate(preds) for u in producers if rng.random() < 0.1}
    group = sorted(rng.sample(range(len(preds)), rng.randint(1, len(preds))))
    readers = sorted(rng.sample(range(len(preds)), rng.randint(0, len(preds))))
    alone = set(readers[:1])
    joined = networkx.Graph((u, v) for v, producers in enumerate(preds) for u in producers if (u, v) not in refused)
    joined.add_nodes_from(group)
    if alone <= set(group):
        joined.add_edges_from((a, b) for a in alone for b in readers)
    try:
        check_connected(EdgeArrays.of(preds), [group], refused, name, [(alone, readers)])
    except PartitaError:
        assert not networkx.is_connected(joined.subgraph(group))
    else:
        assert networkx.is_connected(joined.subgraph(group))


def test_the_checker_gives_a_topological_order() -> None:
    edges = EdgeArrays.of([[], [0], [1], [0, 2]])
    assert check_partition(edges, [[1, 2]], [True] * 4, name) == [0, ~0, 3]


def test_plans_of_large_groups_are_by_name() -> None:
    g = chain(*["Relu"] * 50)
    planned = plan(g, subgraph_property=PatternProperty(ContainOpSelector({"Relu"}), "all"))
    assert planned.groups[0].nodes == tuple(f"relu{i}" for i in range(50))


class Fusing(SubgraphProperty):
    """Makes an op of its own of each subgraph."""

    def __init__(self, takes: str, makes: str, name: str = "subgraph") -> None:
        self.takes, self.makes, self.name = takes, makes, name

    def create_subgraph_selector(self) -> ContainOpSelector:
        return ContainOpSelector({self.takes})

    def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
        return op(self.makes, domain="mine", name=f"{self.makes}{index}")


def test_properties_of_one_name_keep_their_hooks_when_a_plan_is_applied() -> None:
    g = chain("Sin", "Cos")
    both = [Fusing("Sin", "FusedSin"), Fusing("Cos", "FusedCos")]
    planned = plan(g, subgraph_property=both)
    assert str(planned.apply(g)) == str(apply_pass(g, "PartitionGraph", subgraph_property=both))
    with pytest.raises(PartitaError, match="a property 'subgraph', and several of those given have this name"):
        Plan.from_json(planned.to_json()).apply(g, both)


def test_the_properties_of_devices_keep_their_hooks_when_a_plan_is_applied() -> None:
    g = chain("Sin", "Cos")
    g["sin0"].affinity, g["cos1"].affinity = "gpu", "cpu"
    devices = AffinityProperty({"gpu": Fusing("Sin", "FusedSin", "mine")})
    want = str(apply_pass(g, "PartitionGraph", subgraph_property=devices))
    planned = plan(g, subgraph_property=devices)
    assert "mine::FusedSin" in want
    assert str(planned.apply(g)) == want
    assert str(planned.apply(g, devices)) == want
    assert str(Plan.from_json(planned.to_json()).apply(g, devices)) == want


def test_a_node_passed_over_on_account_of_one_that_joined_later() -> None:
    """b is refused as a consumer of a, and then taken as one of d; e was not offered meanwhile."""

    class Choosy(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return True

        def select_output(self, cur: Node, new: Node) -> bool:
            return (cur.name, new.name) != ("a", "b")

    g = from_edges({"a": [], "d": ["a"], "b": ["a", "d"], "e": ["a", "b"]})
    report = apply_pass(g, "PartitionGraph", subgraph_property=Property(Choosy)).attrs["partition_report"]
    assert [group.nodes for group in report.groups] == [("a", "d", "b"), ("e",)]
    rows = [row for row in report.to_dict(paths=True)["borders"] if row["rule"] == "cycle"]
    text = "'e' was not offered, for a path joins it to 'b', refused until then"
    assert [(row["producer"], row["consumer"], row["text"], row["path"]) for row in rows] == [
        ("a", "e", text, ["b", "e"]),
        ("b", "e", text, ["b", "e"]),
    ]


def test_a_cycle_that_only_the_grown_set_would_have_closed() -> None:
    """The filter leaves a alone; the way by the closed node is told all the same."""

    class First(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return node.name != "t"

        def select_output(self, cur: Node, new: Node) -> bool:
            return new.name != "t"

        def filter(self, candidates: list[Node]) -> list[Node]:
            return candidates[:1]

    g = from_edges({"a": [], "b": ["a"], "t": ["b"], "c": ["b", "t"], "d": ["b", "c"]})
    report = apply_pass(g, "PartitionGraph", subgraph_property=Property(First)).attrs["partition_report"]
    rows = [row for row in report.to_dict(paths=True)["borders"] if row["rule"] == "cycle"]
    assert rows and all(row["path"] is not None for row in rows)


def diamond() -> Graph:
    """a → b, c → d, all of float32[4]."""
    x = variable("x", "float32", (4,))
    a = op("Relu", x, name="a")
    b, c = op("Exp", a, name="b"), op("Neg", a, name="c")
    return Graph([op("Add", b, c, name="d")], name="diamond")


def test_groups_given_as_sets_of_nodes() -> None:
    g = diamond()
    planned = plan(g, groups=[{g["a"], g["b"]}, ["d", "c"]])
    assert [group.nodes for group in planned.groups] == [("a", "b"), ("c", "d")]
    assert [group.name for group in planned.groups] == ["group_0", "group_1"]
    applied = planned.apply(g)
    assert [node.name for node in applied.nodes if node.is_call] == ["group_0", "group_1"]
    assert groups_of(apply_pass(g, "PartitionGraph", groups=[["b", "c"]], subgraph_property=ops("Relu"))) == [{"b", "c"}]
    report = apply_pass(g, "PartitionGraph", groups=[["b", "c"]]).attrs["partition_report"]
    assert report.explain("d").startswith("d is in no subgraph: unselected: none of the groups given for 'group' holds 'd'")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["a", "d"]], "cycle"),
        ([["a"], ["e"]], "'e' is not an op of the graph"),
        ([["zzzz"]], "'zzzz' is not an op of the graph\n  Give groups of nodes, or of their names"),
        ([["aa"]], "'aa' is not an op of the graph\n  Did you mean 'a'"),
        ([["x", "a"]], "'x' is not an op of the graph"),
        ([["a", "b"], ["b"]], "'b' is in two groups, or twice in one"),
        ([5], r"\[5\] is not a list of groups"),
        (5, "5 is not a list of groups"),
        ([[op("Relu", variable("z", "float32", (4,)), name="a")]], "'a' is not an op of the graph: it is a node of another one"),
        ([[op("Relu", variable("z", "float32", (4,)), name="a")[0]]], "'a' is not an op of the graph: it is a value"),
        ([[["a"]]], r"\['a'\] is not an op of the graph"),
        ("ab", "'ab' is not a list of groups"),
        ({"first": ["a"]}, "is not a list of groups"),
    ],
)
def test_groups_that_cannot_be(groups: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        plan(diamond(), groups=groups)


def test_groups_are_of_one_property_and_one_graph() -> None:
    with pytest.raises(PartitionError, match="there are 2 properties, and groups are one property's"):
        plan(diamond(), groups=[["a"]], subgraph_property=[ops("Relu"), ops("Exp")])
    with pytest.raises(PartitaError, match="groups are of one graph, not of the bodies in it"):
        apply_pass(diamond(), "PartitionGraph", groups=[["a"]], inside=True)


def test_a_pattern_does_not_ask_for_a_growth() -> None:
    def own(nodes: Any, accepts: Any) -> Any:
        raise AssertionError

    result = apply_pass(diamond(), "PartitionGraph", subgraph_property=PatternProperty(Pattern("Relu"), "mine"), growth=own)
    assert "Growth own was not asked: a pattern finds its matches itself" in str(result.attrs["partition_report"])


def test_a_growth_of_the_users_own() -> None:
    seen: list[Any] = []

    def pairs(nodes: list[Node], accepts: Any) -> list[list[Node]]:
        seen.append([node.name for node in nodes])
        seen.append([(u.name, v.name) for u in nodes for v in nodes if accepts(u, v)])
        return [nodes[i : i + 2] for i in range(0, len(nodes), 2)]

    g = diamond()
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops("Relu", "Exp", "Add"), growth=pairs)
    assert seen == [["a", "b", "d"], [("a", "b"), ("b", "d")]]
    assert groups_of(result) == [{"a", "b"}, {"d"}]
    assert result.attrs["partition_report"].explain("c").startswith("c is in no subgraph: unsupported")
    assert "'d' is in 'mine_1'" in result.attrs["partition_report"].explain("b")


def test_errors_of_a_growth_of_the_users_own() -> None:
    def failing(nodes: Any, accepts: Any) -> Any:
        raise KeyError("boo")

    with pytest.raises(PartitionError, match="option growth, a function: it raised KeyError: 'boo'"):
        plan(diamond(), subgraph_property=ops("Relu"), growth=failing)
    with pytest.raises(PartitionError, match="'b' may not be in a subgraph: the selector refused it"):
        plan(diamond(), subgraph_property=ops("Relu"), growth=lambda nodes, accepts: [["a", "b"]])
    with pytest.raises(PartitionError, match="cycle"):
        plan(diamond(), subgraph_property=ops("Relu", "Add"), growth=lambda nodes, accepts: [nodes])


def test_borders_tell_their_bytes() -> None:
    typed = apply_pass(diamond(), "InferShape")
    borders = {(b.producer, b.consumer): b.bytes for b in plan(typed, subgraph_property=ops("Exp", "Neg")).borders}
    assert borders == {("a", "b"): 16, ("a", "c"): 16, ("b", "d"): 16, ("c", "d"): 16}
    x = variable("x", "float16", ("N", 4))
    (border,) = plan(Graph([op("Relu", x, name="r")]), subgraph_property=ops("Relu")).borders
    assert border.bytes is None


def test_a_plan_makes_no_calls() -> None:
    class Counting(SubgraphProperty):
        calls = 0

        def create_subgraph_selector(self) -> SubgraphSelector:
            return ContainOpSelector(["Relu"])

        def create_subgraph_node(self, subgraph: Graph, index: int) -> Any:
            Counting.calls += 1
            return super().create_subgraph_node(subgraph, index)

    g = chain("Relu", "Exp", "Relu")
    assert len(plan(g, subgraph_property=Counting()).groups) == 2 and Counting.calls == 0
    apply_pass(g, "PartitionGraph", subgraph_property=Counting())
    assert Counting.calls == 2


def test_inputs_that_are_left_out_count() -> None:
    x, bound = variable("x", "float32", (3,)), constant(np.float32(1), name="bound")
    lower, upper = (Graph([op("Clip", x, *bounds, name="clip")], [x]) for bounds in ((bound,), (None, bound)))
    assert len({fingerprint(lower), fingerprint(upper)}) == 2
