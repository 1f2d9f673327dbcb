"""What graphs, plans, placements, reports, profiles and models show of themselves in a notebook."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import Any

import pytest

import partita as pt
from partita.accelerators.runtime.profile import Profile, Row, Span, timeline_svg
from partita.graph.pictures import html
from partita.graph.pictures.html import table
from tests.graphs.pages import long, small

LARGEST = 700_000
"""A notebook keeps what it shows."""


class Html(HTMLParser):
    """The elements, and the text of the cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.images: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "img":
            self.images += [value or "" for name, value in attrs if name == "src"]

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def shown(subject: Any) -> Html:
    """The HTML that it shows, if its bundle is as it should be."""
    result = subject._repr_mimebundle_()
    assert set(result) == {"text/plain", "text/html"}
    assert result["text/plain"] and len(result["text/html"]) < LARGEST
    html = Html(result["text/html"])
    assert set(html.tags) <= {"table", "caption", "tr", "th", "td", "div", "img", "p", "br"}
    for image in html.images:
        ElementTree.fromstring(base64.b64decode(image.removeprefix("data:image/svg+xml;base64,")))
    return html


def everything(hostile: bool = False) -> dict[str, Any]:
    partitioned = small(hostile)
    graph = pt.apply_pass(partitioned, "InlineSubgraphs")
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    placement[next(name for name in placement if graph[name].op == "MaxPool")] = "reference"
    model = pt.compile(placement.apply(graph), "HETERO:onnxruntime,reference")
    return {
        "report": partitioned.attrs["partition_report"],
        "plan": partitioned.attrs["partition_report"].plan,
        "placement": placement,
        "compile report": model.report,
        "profile": model.profile(),
        "model": model,
    }


def test_what_they_show() -> None:
    listed = {name: shown(subject) for name, subject in everything().items()}
    assert listed["report"].cells[:8] == ["subgraph", "device", "ops", "nodes", "conv_0", "", "2", "conv1, relu1"]
    assert "'conv' does not take 'pool' (MaxPool)" in listed["report"].cells
    assert listed["placement"].cells[-6:] == ["not on", "ops", "because", "onnxruntime", "1", "placed by hand"]
    assert "reference_1" in listed["compile report"].cells
    assert {"MaxPool", "reference", "pool"} <= set(listed["profile"].cells)
    assert listed["model"].cells[:2] == ["devices", "onnxruntime, reference"]
    assert {name for name, html in listed.items() if html.images} == {"plan", "placement", "profile", "model"}


@pytest.mark.parametrize("without_dot", [False, True], ids=["dot", "ours"])
def test_no_name_makes_an_element(without_dot: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if without_dot:
        monkeypatch.setattr("partita.graph.pictures.svg.find_program", lambda program: None)
    for subject in everything(hostile=True).values():
        shown(subject)
    svg = small(hostile=True)._repr_mimebundle_()["image/svg+xml"]
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert not tags & {"script", "img", "image", "foreignObject"}
    assert "onerror" not in re.sub(r">[^<]*<", "><", svg)


def test_large_graphs_are_told_in_numbers() -> None:
    graph = long(1000)
    result = graph._repr_mimebundle_()
    assert set(result) == {"text/plain"}
    assert "Relu" in result["text/plain"] and "partita.report_page(" in result["text/plain"]
    assert not shown(graph.attrs["partition_report"]).images
    assert "… " in graph.attrs["partition_report"]._repr_mimebundle_()["text/html"]


def test_a_table_is_escaped_and_cut() -> None:
    html = table(("<b>", "n"), [("x" * 300, 1234567)] * 3, title="a & b", most=2)
    assert "&lt;b&gt;" in html and "a &amp; b" in html and "1,234,567" in html and "… 1 more" in html
    assert "x" * 199 + "…" in html and "x" * 200 not in html


def test_a_timeline_has_a_line_for_each_device_and_the_kernels_below() -> None:
    row = Row("a_0", 1, "conv<1>", "EXECUTED", "Conv", 30.0, 30.0, "a", "kernel")
    gone = Row("a_0", 2, "norm", "OPTIMIZED_OUT", "BatchNormalization", 0.0, 0.0, "a", "")
    spans = (Span("a_0", "a", 0.0, 40.0, (row, gone)), Span("b_0", "b", 40.0, 60.0, ()))
    svg = timeline_svg(Profile("net", "no inputs", 100.0, spans, ()))
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]
    titles = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}title")]
    assert texts[:2] == ["net: 100 µs", "a"] and "b" in texts
    assert titles == ["a_0: 40.0 µs", "Conv conv<1>: 30.0 µs", "b_0: 60.0 µs"]
    bars = [element.attrib for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}rect")]
    (a, inside, b) = [(float(bar["x"]), float(bar["y"]), float(bar["width"]), float(bar["height"])) for bar in bars]
    assert a[0] == inside[0] and a[0] + a[2] == pytest.approx(b[0], abs=1) and b[2] == pytest.approx(1.5 * a[2], abs=1)
    assert a[1] + a[3] <= inside[1] and inside[1] + inside[3] <= b[1] - 4, "below each other, and devices apart"
    assert float(ElementTree.fromstring(svg).attrib["height"]) >= b[1] + 2 * b[3]


def test_numbers_of_a_table_are_at_the_right() -> None:
    """Whole ones with their thousands apart, others with one digit behind the point."""
    for value, shown, side in (("a<b", "a&lt;b", "left"), (12345, "12,345", "right"), (1234.56, "1,234.6", "right")):
        assert html._cell("td", value) == f'<td style="{html.CELL.replace("left", side)}">{shown}</td>'


def test_notes_are_a_line_each_and_few() -> None:
    assert html.lines([]) == "" and html.lines(["a", "b>"]) == "<p>a<br>b&gt;</p>"
    assert html.lines([str(i) for i in range(4)], 3) == "<p>0<br>1<br>2<br>… 1 more</p>"
    assert html.lines(["a", "b", "c"], 3) == "<p>a<br>b<br>c</p>"


def test_long_texts_are_cut() -> None:
    assert html.cut("a" * html.LONGEST) == "a" * html.LONGEST
    assert html.cut("a" * (html.LONGEST + 1)) == "a" * (html.LONGEST - 1) + "…"
