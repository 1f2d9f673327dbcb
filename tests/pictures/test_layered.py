"""The drawing that needs no Graphviz."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

from partita.graph import Graph, call, op, variable
from partita.graph.pictures.layered import layered_svg

SVG = "{http://www.w3.org/2000/svg}"


def skipping() -> Graph:
    x = variable("x", "float32", (4,))
    a = op("Relu", x, name="a")
    b = op("Neg", op("Abs", a, name="mid"), name="low")
    return Graph([op("Add", a, b, name='<s>&"')], name="skip")


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """The last line of each box, and its left, top, right and bottom."""
    root = ElementTree.fromstring(svg)
    texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in root.iter(SVG + "text")]
    listed = {}
    for rect in root.iter(SVG + "rect"):
        left, top, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        inside = [t for x, y, t in texts if left < x < left + width and top < y < top + height]
        listed[inside[-1]] = (left, top, left + width, top + height)
    return listed


def test_boxes_stand_below_what_they_read_and_do_not_overlap() -> None:
    result = boxes(layered_svg(skipping()))
    tops = [result[name][1] for name in ("float32[4]", "a", "mid", "low", '<s>&"')]
    assert tops == sorted(set(tops))
    placed = list(result.values())
    for i, (left, top, right, bottom) in enumerate(placed):
        for left2, top2, right2, bottom2 in placed[i + 1 :]:
            assert right < left2 or right2 < left or bottom < top2 or bottom2 < top


def test_an_edge_over_several_layers_passes_beside_the_boxes() -> None:
    svg = layered_svg(skipping())
    result = boxes(svg)
    passages = [p.get("d") for p in ElementTree.fromstring(svg).iter(SVG + "path") if " v" in p.get("d", "")]
    assert len(passages) == 2
    for passage, name in zip(passages, ("mid", "low"), strict=True):
        x = float(passage[1:].split()[0])
        assert not result[name][0] <= x <= result[name][2]


def test_boxes_are_sorted_so_that_edges_do_not_cross() -> None:
    """Five chains whose ops are listed in another order in each layer."""
    lasts = [variable(f"in{i}", "float32", (4,)) for i in range(5)]
    for layer in range(4):
        made = {i: op("Relu", lasts[i], name=f"{layer}.{i}") for i in ((2 * i + layer) % 5 for i in range(5))}
        lasts = [made[i] for i in range(5)]
    edges = [curve(p) for p in ElementTree.fromstring(layered_svg(Graph(lasts[::-1]))).iter(SVG + "path")]
    assert len(edges) == 25
    crossing = [(a, b) for a, b in itertools.combinations(edges, 2) if a[1] == b[1] and (a[0] - b[0]) * (a[2] - b[2]) < 0]
    assert not crossing


def curve(path: ElementTree.Element) -> tuple[float, float, float]:
    """Where an edge starts, from left and from the top, and where it ends, from left."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", path.get("d", ""))]
    return numbers[0], numbers[1], numbers[-2]


def test_a_call_lists_what_is_inside_and_has_a_colour() -> None:
    x = variable("x", "float32", (4,))
    body = Graph([op("Relu", op("Neg", x, name="n"), name="r")], inputs=[x])
    outer = variable("y", "float32", (4,))
    svg = layered_svg(Graph([call(body, outer, name="fused_0")]))
    assert "fused_0" in svg
    assert "Neg · Relu" in svg
    assert svg.count('fill="#a6cee3"') == 1


def test_an_empty_graph_and_a_passed_through_input() -> None:
    ElementTree.fromstring(layered_svg(Graph([])))
    x = variable("x", "float32", (4,))
    assert set(boxes(layered_svg(Graph([x])))) == {"float32[4]", "x"}
