"""DOT text, SVG, and what a notebook shows."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from partita.graph import Graph, call, op, variable
from partita.graph.pictures import svg, to_dot, to_svg
from partita.graph.pictures.dot import SMALL_BODY, label
from partita.graph.readers.text import parse

NET = """
func f(a: float32[2], k) -> (b, c, a) {
  b = Relu(a) : float32[2]
  c = Add(b, k) : float32[2]
}
graph net(x: float32[2, N]) -> (r, z, w) {
  w = const float32[2] [1.0, 2.0]
  h = Mul(x, w) : float32[2, N] @cuda
  p, q, r = call f(h, w) : float32[2], ?, ? @cpu
  z = Add(p, q) : float32[2] after(h)
}
"""

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def test_boxes_and_arrows() -> None:
    assert to_dot(parse("graph g(x: float32[N]) -> (out=y) { y = Relu(x) : float32[N] }")) == """\
digraph {
  label="g"; labelloc=t; rankdir=TB; fontname=Helvetica;
  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica, fontsize=10];
  edge [fontname=Helvetica, fontsize=8, color=grey30];
  n1 [label="x\\nfloat32[N]", shape=ellipse]
  n2 [label="Relu\\ny", fillcolor="white"]
  out0 [label="out", shape=ellipse, style=bold]
  n1 -> n2 [label="float32[N]"]
  n2 -> out0 [label="float32[N]"]
}
"""


def test_a_call_is_a_frame_and_its_inputs_are_what_is_bound() -> None:
    text = to_dot(parse(NET))
    assert 'subgraph cluster_c3 { label="p @cpu"; style="rounded,filled";' in text
    assert 'n4 [label="Relu\\nb", fillcolor="white"]' in text
    assert "n2 -> n4 " in text, "the body's input is the outer value"
    assert "n2 -> out0 " in text, "an output of the body that is its input goes around the call"
    assert 'n5 [label="Add\\nc\\nw: float32[2]"' in text, "constants stand in the box that reads them"
    assert 'out2 [label="w\\nw: float32[2]"' in text
    assert "n2 -> n6 [style=dotted]" in text


def test_a_call_on_no_device_is_a_frame_too() -> None:
    text = to_dot(parse("func f(a) -> (b) { b = Relu(a) }\ngraph g(x) -> (y) { y = call f(x) }"))
    assert 'color=grey60; fillcolor="#f2f2f2";' in text


def test_a_call_of_a_large_body_is_one_box() -> None:
    chain = "\n".join(f"  y{i + 1} = Relu(y{i})" for i in range(30))
    text = to_dot(parse(f"func f(y0) -> (y30) {{\n{chain}\n}}\ngraph g(x) -> (z) {{ z = call f(x) }}"))
    assert 'label="partita::Call\\nz\\nsubgraph: 30 ops"' in text
    assert "cluster" not in text


def test_colours_stand_for_devices_or_for_what_the_caller_says() -> None:
    assert 'key0 [label="cuda", fillcolor="#a6cee3", shape=note]' in to_dot(parse(NET))
    assert 'key0 [label="Mul"' in to_dot(parse(NET), colour_by=lambda node: node.op)


def test_groups_are_frames() -> None:
    text = to_dot(parse(NET), groups={"h": "first", "z": "second"}, title="a plan")
    assert text.startswith('digraph {\n  label="a plan"')
    assert re.search(r'subgraph cluster_g0 \{\n    label="first".*\n    n2 \[label="Mul', text)
    assert re.search(r'subgraph cluster_g1 \{\n    label="second".*\n    n6 \[label="Add\\nz', text)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("\\N \\G", r'"\\N \\G"'),
        ("a\nb\0", r'"a\\u{a}b\\u{0}"'),
        ("<b>&amp;</b>", '"<b>&amp;amp;</b>"'),
        ('"]; evil [label="', r'"\"]; evil [label=\""'),
        ("x" * 500, f'"{"x" * 79}…"'),
    ],
)
def test_hostile_names_mean_just_their_characters(name: str, shown: str) -> None:
    assert label(name) == shown


@needs_dot
def test_graphviz_draws_hostile_names_as_text() -> None:
    graph = Graph([op("Relu", variable('"]; evil [x="\\'), name="<script>&lt;\n\0")], name='"}')
    drawn = to_svg(graph)
    assert drawn is not None and drawn.startswith("<svg")
    assert "<script" not in drawn and "&lt;script&gt;&amp;lt;" in drawn


def test_a_notebook_shows_a_picture_of_a_small_graph() -> None:
    shown = parse(NET)._repr_mimebundle_()
    assert set(shown) == {"text/plain", "image/svg+xml"}
    assert shown["text/plain"] == str(parse(NET))


def test_without_graphviz_a_plainer_picture_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "find_program", lambda name: None)
    assert "<title>net</title>" in to_svg(parse(NET))


def test_a_picture_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(svg, "find_program", lambda name: name)
    monkeypatch.setattr(svg.subprocess, "run", slow)
    assert "<title>net</title>" in to_svg(parse(NET))


def test_a_notebook_shows_a_summary_of_a_large_graph() -> None:
    chain = "\n".join(f"  y{i + 1} = Relu(y{i})" for i in range(500))
    shown = parse(f"graph large(y0: float32[N]) -> (y500) {{\n{chain}\n}}")._repr_mimebundle_()
    assert set(shown) == {"text/plain"}
    assert "500 Relu" in shown["text/plain"]


def chain(count: int, inner: int = 0) -> Graph:
    """A chain of ops, and a call of a chain if `inner` is positive."""
    y = variable("x", "float32", (2,))
    if inner:
        y = call(chain(inner), y)
    for _ in range(count):
        y = op("Relu", y)
    return Graph([y])


@pytest.mark.parametrize(
    ("count", "inner", "is_drawn"),
    [(svg._LARGEST, 0, True), (svg._LARGEST + 1, 0, False), (svg._LARGEST - SMALL_BODY, SMALL_BODY, True),
     (svg._LARGEST - SMALL_BODY + 1, SMALL_BODY, False), (svg._LARGEST - 1, SMALL_BODY + 1, True)],
)
def test_a_picture_has_so_many_boxes_at_most(monkeypatch: pytest.MonkeyPatch, count: int, inner: int, is_drawn: bool) -> None:
    """A small body is drawn with its ops, and a larger one as a single box."""
    monkeypatch.setattr(svg, "to_svg", lambda graph, colour_by: "<svg/>")
    assert svg.notebook_svg(chain(count, inner)) == ("<svg/>" if is_drawn else None)


@pytest.mark.parametrize(("size", "is_shown"), [(svg.LARGEST_PICTURE, True), (svg.LARGEST_PICTURE + 1, False)])
def test_a_picture_that_is_too_long_is_not_shown(monkeypatch: pytest.MonkeyPatch, size: int, is_shown: bool) -> None:
    monkeypatch.setattr(svg, "to_svg", lambda graph, colour_by: " " * size)
    assert (svg.notebook_svg(chain(1)) is not None) is is_shown
    assert ("image/svg+xml" in svg.mimebundle(chain(1))) is is_shown


def test_a_text_that_is_too_long_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(3)
    monkeypatch.setattr(svg, "_LONGEST_TEXT", len(str(graph)))
    assert svg.mimebundle(graph)["text/plain"] == str(graph)
    monkeypatch.setattr(svg, "_LONGEST_TEXT", len(str(graph)) - 1)
    assert svg.mimebundle(graph)["text/plain"].endswith("shows it all.")


def test_bodies_in_bodies_are_counted_as_deep_as_they_are_drawn() -> None:
    graph = chain(2)
    for _ in range(svg.EXPANDED_DEPTH + 2):
        graph = Graph([call(graph, variable("x", "float32", (2,)))])
    assert svg._boxes(graph) == 1, "the innermost call that is drawn"
    assert svg._boxes(graph, svg.EXPANDED_DEPTH) == 1 and svg._boxes(chain(2, 3)) == 5
