"""Watching a selector: the seed's example step by step, the walk's questions, and what a notebook gets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

import partita as pt
from tests.graphs.topologies import chain


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
    with pytest.raises(pt.PartitionError, match="a Pattern is matched as a whole"):
        pt.watch(graph, pt.PatternProperty(pt.Pattern("Relu"), "p"))
    with pytest.raises(pt.PartitionError, match="Chain may keep state, so every seed needs a new one"):
        pt.watch(graph, Chain())
    with pytest.raises(pt.PartitionError, match="3 is not a selector"):
        pt.watch(graph, 3)  # type: ignore[arg-type]
    with pytest.raises(pt.GraphError, match="a Graph is expected, not str"):
        pt.watch("model.onnx", Chain)  # type: ignore[arg-type]


def test_a_notebook_gets_a_picture_to_step_through() -> None:
    steps = pt.watch(seed_example(), Chain)
    bundle = steps._repr_mimebundle_()
    assert bundle["text/plain"] == str(steps)
    html = bundle["text/html"]
    assert html.count('type="radio"') == html.count('title="') == len(steps)
    assert html.count("◀ back") == html.count("forth ▶") == len(steps) and html.count('type="checkbox"') == 1
    assert "<script" not in html and len(html) < 60_000
    mark = re.search(r'<div class="(w[0-9a-f]{10})">', html)
    assert mark is not None
    styles = html[html.index("<style>") + 7 : html.index("</style>")]
    styles = re.sub(r"@keyframes w[0-9a-f]{10}-\w+\{([^{}]+\{[^{}]*\})+\}", "", styles)
    assert "@" not in styles
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", styles)
    assert all(mark[1] in rule for rule in rules), "no style may reach beyond"


def test_a_picture_of_one_step() -> None:
    steps = pt.watch(seed_example(), pt.ContainOpSelector())
    svg = steps.svg(7)
    ElementTree.fromstring(svg)
    assert svg.count("fill:#fdbf6f") == 1 and svg.count("fill:#fb9a99") == 1
    assert steps.svg(0) != svg != steps.svg()


def chain_of(ops: int) -> pt.Graph:
    value = pt.variable("x", "float32", (2,))
    for i in range(ops):
        value = pt.op("Relu" if i % 10 else "Sin", value, name=f"n{i}")
    return pt.Graph([value], name="chain")


def test_of_a_large_graph_a_notebook_shows_the_growth_around_one_seed() -> None:
    steps = pt.watch(chain_of(300), Chain)
    bundle = steps._repr_mimebundle_()
    assert "more steps" in bundle["text/plain"] and bundle["text/plain"].count("\n") < 310
    html = bundle["text/html"]
    assert html.startswith("<p>300 ops, ") and "This is the growth that began at &#x27;n1&#x27;" in html
    assert "around(&#x27;n299&#x27;) of this object shows another" in html
    assert html.count('type="radio"') == 5 and len(html) < 20_000
    assert boxes(html) == ["n0", "n1", "n2", "n3", "n4", "n5"]


def boxes(svg: str) -> list[str]:
    """The names in the boxes of ops."""
    drawn = svg[svg.index("<svg") : svg.index("</svg>") + 6]
    groups = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}g")
    return [str([line.text for line in group.iter("{http://www.w3.org/2000/svg}text")][-1]) for group in groups]


def test_one_growth_alone() -> None:
    steps = pt.watch(chain_of(300), Chain)
    one = steps.around("n151")
    assert [frame.text for frame in one.frames] == [
        "select(n151): yes, a subgraph starts",
        "select_input(n151, n150): no",
        "select_output(n151, n152): yes",
        "select_output(n152, n153): no",
        "finished: {n151, n152}",
    ]
    assert one.groups == steps.groups and one.graph is steps.graph
    assert boxes(one.svg()) == ["n148", "n149", "n150", "n151", "n152", "n153", "n154", "n155"]
    assert one.svg(0).count("fill:#fdbf6f") == 1
    assert steps.around("n152").frames == one.frames, "n152 began none, and was taken by this one"
    assert steps.around().frames[0].seed == "n1"


def test_a_growth_that_is_not_there_says_which_are() -> None:
    steps = pt.watch(chain_of(100), Chain)
    with pytest.raises(pt.PartitionError, match="graph 'chain' has no op 'n515'") as caught:
        steps.around("n515")
    assert "'n51'" in str(caught.value) and "(50 in all)" in str(caught.value)
    nothing = pt.watch(chain_of(100), pt.ContainOpSelector({"Cos"}), growth="walk")
    with pytest.raises(pt.PartitionError, match="no growth began: the selector starts at no op"):
        nothing.around()
    assert set(nothing._repr_mimebundle_()) == {"text/plain"}


def test_a_large_growth_is_cut_to_what_a_picture_shows() -> None:
    steps = pt.watch(chain_of(1000), pt.ContainOpSelector({"Relu", "Sin"}), growth="walk")
    html = steps._repr_mimebundle_()["text/html"]
    assert len(steps.around().ops or ()) == 80
    assert html.count('type="radio"') == 200 and "more steps; print lists them" in html
    assert len(html) < 1_500_000


def test_a_page_to_send() -> None:
    page = pt.watch(chain("Relu", "Exp"), pt.ContainOpSelector({"Relu"})).html()
    assert page.startswith("<!doctype html>") and "<svg" in page and "relu0" in page
