"""The drawing that needs no Graphviz."""

from __future__ import annotations

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
