"""A graph as SVG, drawn by Graphviz's `dot` program if it is installed, else by ourselves; and its display in notebooks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

from partita.graph.node import Node
from partita.graph.pictures.dot import EXPANDED_DEPTH, SMALL_BODY, to_dot
from partita.graph.pictures.html import LARGEST_PICTURE
from partita.graph.pictures.layered import layered_svg
from partita.graph.programs import find_program
from partita.graph.summary import summarize, summary_text

if TYPE_CHECKING:
    from partita.graph.graph import Graph

SECONDS = 20.0
"""Time limit of `dot` in seconds."""


def to_svg(graph: Graph, *, colour_by: Callable[[Node], str | None] | None = None, seconds: float = SECONDS) -> str:
    """The graph as SVG; if `dot` is not installed, fails or takes longer than `seconds`, a plainer drawing.

    `colour_by` returns the key of a node's colour (by default its affinity)."""
    return render(to_dot(graph, colour_by=colour_by), seconds=seconds) or layered_svg(graph, colour_by)


def render(dot: str, *, seconds: float = SECONDS) -> str | None:
    """The SVG of a DOT text; None if `dot` is missing, fails or takes too long."""
    command = find_program("dot")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "-Tsvg"], input=dot.encode(), capture_output=True, timeout=seconds, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return None
    svg = done.stdout.decode("utf-8", "replace")
    start = svg.find("<svg")
    return svg[start:] if done.returncode == 0 and start >= 0 else None


_LARGEST = 400
"""Maximum number of boxes in a picture; larger graphs are shown as a summary."""

_LONGEST_TEXT = 30_000
"""Longer text forms are replaced by a summary."""


def mimebundle(graph: Graph) -> dict[str, str]:
    """A picture and the text form, or a summary of a large graph."""
    shown = notebook_svg(graph)
    if shown is None:
        return {"text/plain": _summarized(graph)}
    text = str(graph)
    return {"text/plain": text if len(text) <= _LONGEST_TEXT else _summarized(graph), "image/svg+xml": shown}


def notebook_svg(graph: Graph, colour_by: Callable[[Node], str | None] | None = None) -> str | None:
    """The picture of a graph, or None if the graph is too large."""
    if _boxes(graph) > _LARGEST:
        return None
    svg = to_svg(graph, colour_by=colour_by)
    return svg if len(svg) <= LARGEST_PICTURE else None


def _boxes(graph: Graph, depth: int = 0) -> int:
    """Number of ops in a picture, including those in expanded bodies."""
    count = 0
    for node in graph.nodes:
        body = node.subgraph
        inside = 0 if body is None or depth >= EXPANDED_DEPTH else sum(inner.is_op for inner in body.nodes)
        count += _boxes(body, depth + 1) if body is not None and 0 < inside <= SMALL_BODY else node.is_op
    return count


def _summarized(graph: Graph) -> str:
    """A summary of the graph, and a hint how to see more."""
    return summary_text(summarize(graph)) + 'Too large to draw here: partita.report_page(graph, "graph.html") shows it all.'
