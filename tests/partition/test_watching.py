"""Watching a selector: the seed's example step by step, the walk's questions, and what a notebook gets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

import partita as pt


def seed_example() -> pt.Graph:
    """The example of the HETERO design document: 4 is on another device."""
    x = pt.variable("x", "float32", (2, 2))
    one = pt.op("Relu", x, name="1")
    two = pt.op("Relu", one, name="2")
    three, four = pt.op("Relu", two, name="3"), pt.op("Sin", two, name="4")
    seven = pt.op("Relu", pt.op("Relu", pt.op("Add", three, four, name="5"), name="6"), name="7")
    graph = pt.Graph([seven], name="example")
    for node in graph.nodes:
        if node.is_op:
            node.affinity = "other" if node.name == "4" else "plugin"
    return graph


class Chain(pt.SubgraphSelector):
    """A Relu and, with the data flow, at most one more: a selector that keeps state."""

    def __init__(self) -> None:
        self.taken = 0

    def select(self, node: pt.Node) -> bool:
        return node.op == "Relu"

    def select_output(self, cur: pt.Node, new: pt.Node) -> bool:
        self.taken += 1
        return new.op == "Relu" and self.taken < 2


def test_the_seeds_example_grows_as_the_document_says() -> None:
    steps = pt.watch(seed_example(), pt.ContainOpSelector())
    assert str(steps).split("\n")[:15] == [
        "example: growth seed, 32 steps",
        "   1  root 1  →  {1}",
        "   2  merge 2  →  {1, 2}",
        "   3  merge 3  →  {1, 2, 3}",
        "   4  merge 5  →  {1, 2, 3, 5}",
        "   5  merge 6  →  {1, 2, 3, 5, 6}",
        "   6  merge 7  →  {1, 2, 3, 5, 6, 7}",
        "   7  4 may not join: rejected  →  {1, 2, 3, 5, 6, 7}  rejected {4}",
        "   8  a path leaves and comes back through a rejected node: roll back 7  →  {1, 2, 3, 5, 6}  rejected {4, 7}",
        "   9  a path leaves and comes back through a rejected node: roll back 6  →  {1, 2, 3, 5}  rejected {4, 7, 6}",
        "  10  a path leaves and comes back through a rejected node: roll back 5  →  {1, 2, 3}  rejected {4, 7, 6, 5}",
        "  11  candidate: {1, 2, 3}  →  {1, 2, 3}  rejected {4, 7, 6, 5}",
        "  12  root 5  →  {5}",
        "  13  merge 6  →  {5, 6}",
        "  14  merge 7  →  {5, 6, 7}",
    ]
    assert steps.groups == (("1", "2"), ("3", "5", "6", "7"), ("4",))
    assert steps[-1].text == "the result: {1, 2}, {3, 5, 6, 7}, {4}"


def test_the_result_is_that_of_the_pass() -> None:
    graph = seed_example()
    plan = pt.plan(graph, subgraph_property=pt.AffinityProperty(), growth="seed")
    assert pt.watch(graph, pt.ContainOpSelector()).groups == tuple(group.nodes for group in plan.groups)


def test_a_selector_that_keeps_state_is_watched_question_by_question() -> None:
    steps = pt.watch(seed_example(), Chain)
    assert str(steps) == "\n".join(
        [
            "example: growth walk, 15 steps",
            "   1  select(1): yes, a subgraph starts  →  {1}",
            "   2  select_output(1, 2): yes  →  {1, 2}",
            "   3  select_output(2, 3): no  →  {1, 2}  rejected {3}",
            "   4  select_output(2, 4): no  →  {1, 2}  rejected {3, 4}",
            "   5  finished: {1, 2}  →  {1, 2}  rejected {3, 4}",
            "   6  select(3): yes, a subgraph starts  →  {3}",
            "   7  select_output(3, 5): no  →  {3}  rejected {5}",
            "   8  finished: {3}  →  {3}  rejected {5}",
            "   9  select(4): no",
            "  10  select(5): no",
            "  11  select(6): yes, a subgraph starts  →  {6}",
            "  12  select_input(6, 5): no  →  {6}  rejected {5}",
            "  13  select_output(6, 7): yes  →  {6, 7}  rejected {5}",
            "  14  finished: {6, 7}  →  {6, 7}  rejected {5}",
            "  15  the result: {1, 2}, {3}, {6, 7}",
        ]
    )


def test_what_would_close_a_cycle_is_not_offered() -> None:
    class NotFour(pt.SubgraphSelector):
        def select(self, node: pt.Node) -> bool:
            return node.name != "4"

        def select_output(self, cur: pt.Node, new: pt.Node) -> bool:
            return new.name != "4"

        def select_input(self, cur: pt.Node, new: pt.Node) -> bool:
            return new.name != "4"

    graph = seed_example()
    steps = pt.watch(graph, NotFour)
    assert "5 is not offered: joining would close a cycle through 4" in [frame.text for frame in steps.frames]
    assert all(not set(frame.selected) & set(frame.rejected) for frame in steps.frames)


def test_filter_and_a_property_are_watched_too() -> None:
    class Filtered(pt.SubgraphProperty):
        name = "filtered"

        def create_subgraph_selector(self) -> pt.SubgraphSelector:
            class Selector(Chain):
                def filter(self, candidates: list[pt.Node]) -> list[pt.Node]:
                    return candidates[:1]

            return Selector()

    texts = [frame.text for frame in pt.watch(seed_example(), Filtered()).frames]
    assert "filter removes {2}" in texts and "finished: {1}" in texts


def test_what_cannot_be_watched_says_so() -> None:
    graph = seed_example()
    with pytest.raises(pt.PartitionError, match=re.escape("growth 'largest' has no steps to watch")):
        pt.watch(graph, pt.ContainOpSelector(), growth="largest")
    with pytest.raises(pt.PartitionError, match="a Pattern is matched, it does not grow"):
        pt.watch(graph, pt.PatternProperty(pt.Pattern("Relu"), "p"))
    with pytest.raises(pt.PartitionError, match="Chain may keep state, so every seed needs a new one"):
        pt.watch(graph, Chain())
    with pytest.raises(pt.PartitionError, match="3 is no selector"):
        pt.watch(graph, 3)  # type: ignore[arg-type]
    with pytest.raises(pt.GraphError, match="a Graph is expected, not str"):
        pt.watch("model.onnx", Chain)  # type: ignore[arg-type]


def test_a_notebook_gets_a_picture_to_step_through() -> None:
    steps = pt.watch(seed_example(), Chain)
    bundle = steps._repr_mimebundle_()
    assert bundle["text/plain"] == str(steps)
    html = bundle["text/html"]
    assert html.count('type="radio"') == html.count("<label") == len(steps)
    assert "<script" not in html and len(html) < 60_000
    mark = re.search(r'<div class="(w[0-9a-f]{10})">', html)
    assert mark is not None
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", html[html.index("<style>") + 7 : html.index("</style>")])
    assert all(mark[1] in rule for rule in rules), "no style may reach beyond"


def test_a_picture_of_one_step() -> None:
    steps = pt.watch(seed_example(), pt.ContainOpSelector())
    svg = steps.svg(7)
    ElementTree.fromstring(svg)
    assert svg.count("fill:#fdbf6f") == 1 and svg.count("fill:#fb9a99") == 1
    assert steps.svg(0) != svg != steps.svg()


def test_a_long_watch_is_text_alone_and_bounded() -> None:
    value = pt.variable("x", "float32", (2,))
    for i in range(300):
        value = pt.op("Relu", value, name=f"n{i}")
    bundle = pt.watch(pt.Graph([value]), Chain)._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    assert "more steps" in bundle["text/plain"] and bundle["text/plain"].count("\n") < 310
