"""A graph as SVG: drawn by Graphviz's `dot` program if it is installed, else by ourselves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.pictures.dot import to_dot
from partita.graph.pictures.layered import layered_svg
from partita.graph.programs import find_program

SECONDS = 20.0
"""Time limit of `dot` in seconds."""


def to_svg(
    graph: Graph, *, colour_by: Callable[[Node], str | None] | None = None, seconds: float = SECONDS
) -> str:
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
