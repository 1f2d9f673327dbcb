"""An op that reads only constants joins a group of its device that reads one of them, where that closes no cycle."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import partita as pt
from partita.graph import Graph, constant, op, variable
from partita.partition import ContainOpSelector, PatternProperty, Plan, plan
from partita.passes import apply_pass
from tests.accelerators.hetero.small_devices import device
from tests.graphs.drawn import graphs

from .constant_cases import CASES, SHAPE, graph_of, groups_in, parse
from .making import check_partition_of, connected, contracted_is_acyclic, groups_of

GROWTHS = ("largest", "walk", "seed", "waves")


def groups_found(g: Graph, **options: Any) -> list[list[str]]:
    """The groups by names, sorted; whatever holds for every partition holds."""
    result = apply_pass(g, "PartitionGraph", **options)
    check_partition_of(g, result, unconnected=options.get("growth") == "waves")
    return sorted(map(sorted, groups_of(result)))


@pytest.mark.parametrize("name", CASES)
def test_the_groups_are_those_written_down(name: str) -> None:
    text, groups = CASES[name]
    assert groups_found(graph_of(text)) == groups_in(groups)


@pytest.mark.parametrize("name", CASES)
def test_no_more_groups_than_openvino(name: str) -> None:
    pytest.importorskip("openvino")
    text, _ = CASES[name]
    assert len(groups_found(graph_of(text))) <= len(groups_of_openvino(text))


def test_no_more_groups_than_openvino_on_random_graphs() -> None:
    """Where OpenVINO's groups hang together by our rule: it also joins branches that merely share a constant or an input."""
    pytest.importorskip("openvino")
    rng = random.Random(16)
    compared = 0
    for _ in range(150):
        text = random_case(rng)
        try:
            g, theirs = graph_of(text), groups_of_openvino(text)
        except RuntimeError as error:
            assert "Cannot sort subgraphs" in str(error), "its groups would depend on each other, up to 2026.2"
            continue
        if contracted_is_acyclic(g, theirs) and all(connected(g, set(group)) for group in theirs):
            compared += 1
            assert len(groups_found(g)) <= len(theirs), text
    assert compared > 75


def random_case(rng: random.Random) -> str:
    """Ops that read others, constants, inputs of their own."""
    ops: list[str] = []
    parts = []
    for name in "PQRSTUVWZ"[: rng.randint(3, 9)]:
        constants = rng.sample(["k1", "k2", "k3"], rng.randint(1, 2))
        if rng.random() < 0.3:
            read = constants
        else:
            read = rng.sample(ops, rng.randint(1, min(2, len(ops)))) if ops and rng.random() < 0.75 else [f"x{name}"]
            read += constants[:1] if rng.random() < 0.5 else []
        parts.append(f"{name}@{rng.choice('AB')}({','.join(read)})")
        ops.append(name)
    return " ".join(parts)


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("name", CASES)
def test_with_every_growth_what_is_left_apart_would_close_a_cycle(name: str, growth: str) -> None:
    g = graph_of(CASES[name][0])
    groups = groups_found(g, growth=growth)
    assert not joinable(g, groups)
    if growth == "waves":
        assert len(groups) <= len(groups_in(CASES[name][1]))


@settings(max_examples=60, deadline=None)
@given(g=graphs(devices=("A", "B")))
def test_on_random_graphs(g: Graph) -> None:
    assert not joinable(g, groups_found(g))


def joinable(g: Graph, groups: list[list[str]]) -> list[tuple[list[str], list[str]]]:
    """The pairs of groups that a constant joins by the rule, and that are apart for no reason."""
    read = {node.name: [entry.node.name for entry in node.reads] for node in g.nodes if node.is_op}
    alone = {name for name, values in read.items() if values and all(g[value].is_constant for value in values)}

    def bonded(a: list[str], b: list[str]) -> bool:
        return any({x, y} & alone and set(read[x]) & set(read[y]) & set(constants) for x in a for y in b)

    constants = [node.name for node in g.nodes if node.is_constant]
    return [
        (a, b)
        for a, b in combinations(groups, 2)
        if g[a[0]].affinity == g[b[0]].affinity
        and bonded(a, b)
        and contracted_is_acyclic(g, [*(other for other in groups if other not in (a, b)), a + b])
    ]


def test_ops_that_read_a_constant_and_more_do_not_join_for_that() -> None:
    assert groups_found(graph_of("X@A(x,k) Y@B(X) Z@A(y,k) W@B(Z)")) == [["W"], ["X"], ["Y"], ["Z"]]


def test_it_holds_for_affinities_alone() -> None:
    g = graph_of("X@A(x,k) Z@A(k)")
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector({"Relu", "Sum"})))
    assert groups_of(result) == [{"X"}, {"Z"}]


def test_a_smaller_group_than_asked_for_counts_what_joined() -> None:
    assert groups_found(graph_of("X@A(x,k) Z@A(k) Y@B(X)"), min_subgraph_size=2) == [["X", "Z"]]


def test_the_report_says_what_it_shares() -> None:
    report = apply_pass(graph_of("X@A(x,k) Z@A(k) Y@B(X)"), "PartitionGraph").attrs["partition_report"]
    assert report.explain("Z") == "Z is in A_0\n  it reads only constants, and shares 'k' with X"
    assert report.explain("X") == "X is in A_0\n  x -> X: input: a graph input\n  X -> Y: device: 'Y' is on B, 'X' on A"


def test_a_plan_from_a_file_is_applied() -> None:
    g = graph_of("X@A(x,k) Z@A(k) Y@B(X)")
    planned = plan(g)
    assert str(Plan.from_json(planned.to_json()).apply(g)) == str(apply_pass(g, "PartitionGraph"))


def test_hetero_groups_by_the_rule() -> None:
    g = graph_of("X@B(x,k) Z@B(k) Y@A(X)")
    with device("A", "Relu"), device("B", "Relu Sum"):
        groups = pt.compile(g, "HETERO:A,B").report.partition.groups
    assert [group.nodes for group in groups] == [("X", "Z"), ("Y",)]


def test_many_groups_share_one_constant() -> None:
    """Each of 300 ops that read nothing else feeds another device before the next reader: each joins the reader before."""
    count = 300
    text = " ".join(f"X{i}@A({f'B{i - 1}' if i else 'x'},k) Z{i}@A(k) B{i}@B(X{i},Z{i})" for i in range(count))
    g = graph_of(text)
    groups = sorted(map(sorted, groups_of(apply_pass(g, "PartitionGraph"))))
    assert len(groups) == 2 * count


def test_ops_that_read_thousands_of_constants() -> None:
    """Each constant is looked at once for each op that reads it."""
    x = variable("x", "float32", SHAPE)
    constants = [constant(np.full(SHAPE, i, np.float32), f"k{i}") for i in range(3000)]
    listed = [op("Sum", *read, name=name) for name, read in {"a": constants, "b": constants, "c": [x, *constants]}.items()]
    for node in listed:
        node.affinity = "A"
    assert [group.nodes for group in plan(Graph(listed)).groups] == [("a", "b", "c")]


def groups_of_openvino(text: str) -> list[list[str]]:
    """How OpenVINO's HETERO splits the same graph. A constant has the affinity of the first op that reads it."""
    import openvino
    from openvino import opset13 as ops

    from benchmarks.partitioners.openvino import picture

    values: dict[str, Any] = {}
    parameters = []

    def named(node: Any, name: str, device: str) -> Any:
        node.set_friendly_name(name)
        node.get_rt_info()["affinity"] = f"NONE{device}"
        return node

    for name, (device_name, read) in parse(text).items():
        for value in read:
            if value not in values:
                result = ops.constant(np.ones(SHAPE, np.float32)) if value[0] == "k" else ops.parameter(SHAPE, np.float32)
                values[value] = named(result, value, device_name)
                parameters += [] if value[0] == "k" else [result]
        total = values[read[0]] if len(read) > 1 else ops.relu(values[read[0]])
        for value in read[1:]:
            total = named(ops.add(total, values[value]), f"part of {name}", device_name)
        values[name] = named(total, name, device_name)
    used = {value for _, read in parse(text).values() for value in read}
    results = [named(ops.result(values[name]), f"out {name}", at) for name, (at, _) in parse(text).items() if name not in used]
    drawn = picture(openvino.Model(results, parameters, "net"), "NONEA,NONEB,NONEC")
    groups: dict[str, list[str]] = defaultdict(list)
    for name, number in re.findall(r'label="([^"\\]+)\\n[^"]*subgraph=(\d+)\\n', drawn):
        if name in parse(text):
            groups[number].append(name)
    return sorted(map(sorted, groups.values()))
