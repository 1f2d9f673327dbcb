"""A graph in Graphviz's language.

Constants have no boxes: they are listed in the box of the op that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from partita.graph.formatting import counted, truncated
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Type

if TYPE_CHECKING:
    from partita.graph.graph import Graph

PALETTE = ("#a6cee3", "#b2df8a", "#fdbf6f", "#fb9a99", "#cab2d6", "#ffff99", "#8dd3c7", "#d9d9d9", "#fccde5", "#bc80bd")
"""Fill colours, assigned in order of first appearance."""

FRAME = "#f2f2f2"
"""Default fill colour of an expanded call."""

SMALL_BODY = 24
"""Calls whose bodies have more ops than this are drawn as one box."""

EXPANDED_DEPTH = 8
"""Nested calls are expanded down to this depth."""

LONGEST = 80
"""Longer texts are truncated."""


def to_dot(
    graph: Graph,
    *,
    groups: Mapping[str, str] | None = None,
    colour_by: Callable[[Node], str | None] | None = None,
    title: str | None = None,
) -> str:
    """The graph as DOT text. Calls with a small body are expanded.

    `groups` puts nodes, by name, into labelled frames; `colour_by` returns the key of a node's colour
    (by default its affinity)."""
    drawing = _Drawing(groups or {}, colour_by or (lambda node: node.affinity))
    ends = drawing.graph(graph, None)
    for i, (name, end) in enumerate(zip(graph.output_names, ends, strict=True)):
        lines = [name] if end.box is not None else [name, end.described]
        drawing.line(None, f"out{i} [label={label(*lines)}, shape=ellipse, style=bold]")
        drawing.edge(end, f"out{i}")
    return drawing.text(graph.name if title is None else title)


@attrs.frozen(slots=True)
class _EdgeStart:
    """Start of an edge."""

    box: str | None
    """The box in the picture; None for a constant."""
    name: str
    """The value's name."""
    type: Type | None
    """The value's type."""

    @property
    def described(self) -> str:
        """Description of a constant."""
        return f"constant {self.name}" if self.type is None else f"{self.name}: {self.type}"


class _Drawing:
    def __init__(self, groups: Mapping[str, str], colour_by: Callable[[Node], str | None]) -> None:
        self.groups = groups
        self.colour_by = colour_by
        self.colours: dict[str, str] = {}
        self.lines: list[str] = []
        self.framed: dict[str, list[str]] = {}
        self.edges: list[str] = []
        self.count = 0

    def text(self, title: str) -> str:
        """The whole drawing."""
        frames = []
        for i, (name, lines) in enumerate(self.framed.items()):
            frames += [f"subgraph cluster_g{i} {{", f"  label={label(name)}; style=rounded; color=grey40;"]
            frames += [f"  {line}" for line in lines] + ["}"]
        key = [
            f"key{i} [label={label(name)}, fillcolor={colour!r}, shape=note]".replace("'", '"')
            for i, (name, colour) in enumerate(self.colours.items())
        ]
        head = [
            f"label={label(title)}; labelloc=t; rankdir=TB; fontname=Helvetica;",
            'node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica, fontsize=10];',
            "edge [fontname=Helvetica, fontsize=8, color=grey30];",
        ]
        return "\n".join(["digraph {", *(f"  {x}" for x in [*head, *self.lines, *frames, *key, *self.edges]), "}", ""])

    def graph(
        self, graph: Graph, bound: Sequence[_EdgeStart] | None, depth: int = 0, frame: str | None = None
    ) -> list[_EdgeStart]:
        """Draws the nodes of a graph (of a body, if its inputs are bound); returns the sources of its outputs."""
        values: dict[NodeEntry, _EdgeStart] = {}
        inputs = {} if bound is None else dict(zip(graph.inputs, bound, strict=False))
        boxes: dict[Node, str] = {}
        for node in graph.nodes:
            if not depth:
                frame = self.groups.get(node.name)
            if node in inputs:
                values[NodeEntry(node)] = inputs[node]
            elif node.is_constant:
                values[NodeEntry(node)] = _EdgeStart(None, node.name, node.output_types[0] if node.output_types else None)
            elif node.subgraph is not None and self.opens(node, depth):
                self.open_call(node, values, depth, frame)
            else:
                boxes[node] = self.box(node, values, frame)
                for before in node.after:
                    if before in boxes:
                        self.edges.append(f"{boxes[before]} -> {boxes[node]} [style=dotted]")
                for entry in node.outputs:
                    values[entry] = _EdgeStart(boxes[node], entry.name, entry.type)
        return [values.get(entry) or _EdgeStart(None, entry.name, entry.type) for entry in graph.outputs]

    def opens(self, node: Node, depth: int) -> bool:
        """True if the call is expanded."""
        body = node.subgraph
        fits = body is not None and len(body.inputs) == len(node.inputs) and len(body.outputs) == len(node.output_names)
        return fits and depth < EXPANDED_DEPTH and body is not None and sum(n.is_op for n in body.nodes) <= SMALL_BODY

    def open_call(self, node: Node, values: dict[NodeEntry, _EdgeStart], depth: int, frame: str | None) -> None:
        """Draws a frame with the body's nodes, its inputs replaced by those of the call."""
        assert node.subgraph is not None
        self.count += 1
        affinity = "" if node.affinity is None else f" @{node.affinity}"
        self.line(frame, f"subgraph cluster_c{self.count} {{ label={label(node.name + affinity)}; style=\"rounded,filled\";")
        self.line(frame, f"color=grey60; fillcolor={self.colour(node, FRAME)}; fontsize=10;")
        bound = [values[e] if e is not None else _EdgeStart(None, "", None) for e in node.inputs]
        ends = self.graph(node.subgraph, bound, depth + 1, frame)
        self.line(frame, "}")
        for entry, end in zip(node.outputs, ends, strict=True):
            values[entry] = attrs.evolve(end, name=entry.name, type=entry.type or end.type)

    def box(self, node: Node, values: Mapping[NodeEntry, _EdgeStart], frame: str | None) -> str:
        """Draws one box and the edges into it; returns its identifier."""
        self.count += 1
        box = f"n{self.count}"
        if node.is_variable:
            self.line(frame, f"{box} [label={label(*_described(node))}, shape=ellipse]")
            return box
        held = [values[e] for e in node.reads if values[e].box is None]
        lines = [*_described(node), *(source.described for source in held)]
        self.line(frame, f"{box} [label={label(*lines)}, fillcolor={self.colour(node)}]")
        for entry in node.reads:
            self.edge(values[entry], box)
        return box

    def colour(self, node: Node, plain: str = "white") -> str:
        """The fill colour for the node's key (by default its device), or the plain one."""
        key = self.colour_by(node)
        if key is None:
            return f'"{plain}"'
        return f'"{self.colours.setdefault(key, PALETTE[len(self.colours) % len(PALETTE)])}"'

    def edge(self, source: _EdgeStart, target: str) -> None:
        """Adds an arrow labelled with the value's type."""
        if source.box is not None:
            self.edges.append(f"{source.box} -> {target} [label={label('' if source.type is None else str(source.type))}]")

    def line(self, frame: str | None, text: str) -> None:
        """Adds a statement to a frame, or outside all of them."""
        (self.lines if frame is None else self.framed.setdefault(frame, [])).append(text)


def _described(node: Node) -> list[str]:
    if node.is_variable:
        made = node.output_types[0] if node.output_types else None
        return [node.name] if made is None else [node.name, str(made)]
    op = f"{node.domain}::{node.op}" if node.domain else f"{node.op}"
    bodies = [f"{key}: {counted(sum(n.is_op for n in body.nodes), 'op')}" for key, body in node.bodies]
    return [op, node.name, *bodies]


def label(*lines: str) -> str:
    """Lines of any text as a quoted DOT string of exactly these characters."""
    return '"' + "\\n".join(map(_escaped, lines)) + '"'


def _escaped(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in truncated(text, LONGEST))
    return shown.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
