"""What a notebook shows of a graph."""

from __future__ import annotations

from graph.graph import Graph
from graph.pictures.svg import to_svg

LARGEST = 400
"""Graphs with more ops than this are shown as a summary."""


def mimebundle(graph: Graph) -> dict[str, str]:
    """A picture with the text form beside it; a summary of a large graph."""
    if sum(node.is_op for node in graph.nodes) > LARGEST:
        from graph.summary import summarize, summary_text

        return {"text/plain": summary_text(summarize(graph))}
    return {"text/plain": str(graph), "image/svg+xml": to_svg(graph)}
