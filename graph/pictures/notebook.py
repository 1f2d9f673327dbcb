"""Display of a graph in notebooks."""

from __future__ import annotations

from collections.abc import Callable

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.pictures.dot import EXPANDED_DEPTH, SMALL_BODY
from partita.graph.pictures.html import LARGEST_PICTURE
from partita.graph.pictures.svg import to_svg

LARGEST = 400
"""Maximum number of boxes in a picture; larger graphs are shown as a summary."""

LONGEST_TEXT = 30_000
"""Longer text forms are replaced by a summary."""


def mimebundle(graph: Graph) -> dict[str, str]:
    """A picture and the text form, or a summary of a large graph."""
    shown = notebook_svg(graph)
    if shown is None:
        return {"text/plain": summarized(graph)}
    text = str(graph)
    return {"text/plain": text if len(text) <= LONGEST_TEXT else summarized(graph), "image/svg+xml": shown}


def notebook_svg(graph: Graph, colour_by: Callable[[Node], str | None] | None = None) -> str | None:
    """The picture of a graph, or None if the graph is too large."""
    if boxes(graph) > LARGEST:
        return None
    svg = to_svg(graph, colour_by=colour_by)
    return svg if len(svg) <= LARGEST_PICTURE else None


def boxes(graph: Graph, depth: int = 0) -> int:
    """Number of ops in a picture, including those in expanded bodies."""
    count = 0
    for node in graph.nodes:
        body = node.subgraph
        inside = 0 if body is None or depth >= EXPANDED_DEPTH else sum(inner.is_op for inner in body.nodes)
        count += boxes(body, depth + 1) if body is not None and 0 < inside <= SMALL_BODY else node.is_op
    return count


def summarized(graph: Graph) -> str:
    """A summary of the graph, and a hint how to see more."""
    from partita.graph.summary import summarize, summary_text

    return summary_text(summarize(graph)) + 'Too large to draw here: partita.report_page(graph, "graph.html") shows it all.'
