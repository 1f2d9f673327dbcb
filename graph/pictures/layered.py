"""SVG without Graphviz: nodes in layers from the inputs down, each layer sorted so that few edges cross.

Long edges pass through a point in every layer between, so that they run beside the boxes. A call is one box
that lists its ops. Plainer than Graphviz's drawing, but available everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from partita.graph.formatting import in_xml, truncated
from partita.graph.node import Node
from partita.graph.pictures.dot import PALETTE

if TYPE_CHECKING:
    from partita.graph.graph import Graph

LINE, MARGIN, GAP, RISE, LETTER = 14, 10, 26, 44, 6.2
"""Pixels: height of a line of text, padding of a box, gap between boxes, gap between layers, width of a letter."""

LONGEST = 40
"""Longer lines of text are truncated."""

STYLE = (
    "<style>.layered{background:white}.layered text{font:11px Helvetica,Arial,sans-serif;text-anchor:middle;fill:#222}"
    ".layered path{fill:none;stroke:#777}</style>"
)
"""The style of the picture; it affects nothing else on the page."""

SWEEPS = 6
"""Number of sorting passes over the layers, alternately down and up."""


@attrs.define(slots=True, eq=False)
class _LayoutPoint:
    """A box, or a point that a long edge passes through."""

    lines: tuple[str, ...] = ()
    """The text; none for a point."""
    fill: str = "none"
    """The box's colour."""
    css: str = ""
    """The box's class, if it has one."""
    above: list[_LayoutPoint] = attrs.Factory(list)
    """Sources of its edges."""
    below: list[_LayoutPoint] = attrs.Factory(list)
    """Targets of its edges."""
    layer: int = 0
    """The layer; 0 is the topmost."""
    x: float = 0
    """Horizontal centre."""
    y: float = 0
    """Upper edge."""
    height: float = 0
    """Height; a point is as high as its layer, so that the edge runs straight past the boxes."""

    @property
    def width(self) -> float:
        """Width."""
        return max(map(len, self.lines)) * LETTER + 2 * MARGIN if self.lines else GAP / 2


def layered_svg(
    graph: Graph,
    colour_by: Callable[[Node], str | None] | None = None,
    *,
    class_of: Callable[[Node], str | None] | None = None,
    style: str = "",
    only: Callable[[Node], bool] | None = None,
) -> str:
    """The graph as SVG; `colour_by` returns the key of a node's colour (by default its affinity, or that it is a call).

    `class_of` gives boxes a class, for which `style` may have rules. `only` selects the ops that are drawn."""
    spots = _spots(graph, only, colour_by or (lambda node: node.affinity or ("call" if node.is_call else None)), class_of)
    layers = _layers(spots)
    for sweep in range(SWEEPS):
        _sort(layers if sweep % 2 == 0 else layers[::-1], down=sweep % 2 == 0)
    width, height = _place(layers)
    drawn = [_edge(spot, other) for layer in layers for spot in layer for other in spot.below]
    drawn += [_box(spot) if spot.lines else _passage(spot) for layer in layers for spot in layer]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="layered" {size}>'
    rules = STYLE + (f"<style>{style}</style>" if style else "")
    return "\n".join([head, rules, f"<title>{in_xml(graph.name)}</title>", *drawn, "</svg>", ""])


def _shown(graph: Graph, only: Callable[[Node], bool] | None) -> list[Node]:
    """The inputs and ops to draw, in topological order; only inputs that a drawn op reads."""
    if only is None:
        return [node for node in graph.nodes if not node.is_constant]
    ops = {node for node in graph.nodes if node.is_op and only(node)}
    read = {entry.node for node in ops for entry in node.reads}
    return [node for node in graph.nodes if node in ops or (node.is_variable and node in read)]


def _spots(
    graph: Graph, only: Callable[[Node], bool] | None, colour_by: Callable[[Node], str | None],
    class_of: Callable[[Node], str | None] | None,
) -> list[_LayoutPoint]:
    """A box for every input, op and output, in topological order, with its edges."""
    colours: dict[str, str] = {}
    spots: dict[Node, _LayoutPoint] = {}
    for node in _shown(graph, only):
        key = colour_by(node)
        fill = "white" if key is None else colours.setdefault(key, PALETTE[len(colours) % len(PALETTE)])
        css_class = (class_of(node) if class_of else None) or ""
        spots[node] = _LayoutPoint(tuple(_cut(line) for line in _described(node)), fill, css_class)
        for source in dict.fromkeys(entry.node for entry in node.reads):
            if source in spots:
                _join(spots[source], spots[node])
    outputs = []
    for name, entry in zip(graph.output_names, graph.outputs, strict=True):
        if only is None or entry.node in spots:
            outputs.append(_LayoutPoint((_cut(name),), "#eeeeee"))
        if entry.node in spots:
            _join(spots[entry.node], outputs[-1])
    return [*spots.values(), *outputs]


def _described(node: Node) -> list[str]:
    if node.is_variable:
        return [node.name, str(node.output_types[0])]
    device = f" @{node.affinity}" if node.affinity else ""
    if node.subgraph is None:
        return [f"{node.op}{device}", node.name]
    ops = [str(inner.op) for inner in node.subgraph.nodes if inner.is_op]
    shown = " · ".join(ops[:4])
    return [f"{node.name}{device}", shown if len(ops) <= 4 else f"{shown} … {len(ops)} ops"]


def _cut(text: str) -> str:
    return truncated("".join(c if c.isprintable() else "�" for c in text), LONGEST)


def _join(upper: _LayoutPoint, lower: _LayoutPoint) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def _layers(spots: list[_LayoutPoint]) -> list[list[_LayoutPoint]]:
    """Layers: each spot one below the lowest of those above it, inputs right above their first reader; adds edge points."""
    for spot in spots:
        spot.layer = max((other.layer + 1 for other in spot.above), default=0)
    for spot in spots:
        if not spot.above and spot.below:
            spot.layer = min(other.layer for other in spot.below) - 1
    layers: list[list[_LayoutPoint]] = [[] for _ in range(max((spot.layer for spot in spots), default=0) + 1)]
    for spot in spots:
        layers[spot.layer].append(spot)
    for spot in spots:
        for i, target in enumerate(spot.below):
            _lead(spot, i, target, layers)
    return layers


def _lead(spot: _LayoutPoint, number: int, target: _LayoutPoint, layers: list[list[_LayoutPoint]]) -> None:
    """Leads edge `number` of a spot through a point in each layer on its way."""
    last = spot
    for layer in range(spot.layer + 1, target.layer):
        point = _LayoutPoint(layer=layer, above=[last])
        if last is spot:
            spot.below[number] = point
        else:
            last.below.append(point)
        layers[layer].append(point)
        last = point
    if last is not spot:
        last.below.append(target)
        target.above[target.above.index(spot)] = last


def _sort(layers: list[list[_LayoutPoint]], down: bool) -> None:
    """Sorts each layer by the mean position of its neighbours in the layer before."""
    before: dict[int, int] = {}
    for layer in layers:
        here = {id(spot): i for i, spot in enumerate(layer)}

        def middle(spot: _LayoutPoint, before: dict[int, int] = before, here: dict[int, int] = here) -> float:
            positions = [before[id(other)] for other in (spot.above if down else spot.below) if id(other) in before]
            return sum(positions) / len(positions) if positions else here[id(spot)]

        layer.sort(key=middle)
        before = {id(spot): i for i, spot in enumerate(layer)}


def _place(layers: list[list[_LayoutPoint]]) -> tuple[float, float]:
    """Assigns coordinates, with every layer centred; returns the picture's size."""
    widths = [sum(spot.width for spot in layer) + GAP * (len(layer) + 1) for layer in layers]
    width, y = max(widths, default=0), float(MARGIN)
    for layer, used in zip(layers, widths, strict=True):
        x = (width - used) / 2 + GAP
        height = max((len(spot.lines) for spot in layer), default=0) * LINE + MARGIN
        for spot in layer:
            spot.height = len(spot.lines) * LINE + MARGIN if spot.lines else height
            spot.x, spot.y = x + spot.width / 2, y
            x += spot.width + GAP
        y += height + RISE
    return width, y


def _edge(spot: _LayoutPoint, other: _LayoutPoint) -> str:
    start, end = spot.y + spot.height, other.y
    bend = (end - start) / 2
    return (
        f'<path d="M{spot.x:.1f} {start:.1f} C{spot.x:.1f} {start + bend:.1f} '
        f'{other.x:.1f} {end - bend:.1f} {other.x:.1f} {end:.1f}"/>'
    )


def _passage(spot: _LayoutPoint) -> str:
    return f'<path d="M{spot.x:.1f} {spot.y:.1f} v{spot.height:.1f}"/>'


def _box(spot: _LayoutPoint) -> str:
    left, lines = spot.x - spot.width / 2, []
    for i, line in enumerate(spot.lines):
        lines.append(f'<text x="{spot.x:.1f}" y="{spot.y + (i + 1) * LINE:.1f}">{in_xml(line)}</text>')
    shape = f'<rect x="{left:.1f}" y="{spot.y:.1f}" width="{spot.width:.1f}" height="{spot.height:.1f}" rx="5"'
    drawn = f'{shape} fill="{spot.fill}" stroke="#555"/>' + "".join(lines)
    return f'<g class="{in_xml(spot.css)}">{drawn}</g>' if spot.css else drawn
