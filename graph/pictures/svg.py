"""SVG through Graphviz's `dot` program, where it is installed."""

from __future__ import annotations

import shutil
import subprocess

from graph.graph import Graph
from graph.pictures.dot import to_dot

SECONDS = 20.0
"""How long `dot` may take."""


def to_svg(graph: Graph, *, seconds: float = SECONDS) -> str | None:
    """The graph as SVG; None where `dot` is not installed, fails or takes longer than `seconds`."""
    return render(to_dot(graph), seconds=seconds)


def render(dot: str, *, seconds: float = SECONDS) -> str | None:
    """The SVG of a DOT text, under the same conditions."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-Tsvg"], input=dot.encode(), capture_output=True, timeout=seconds, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return None
    svg = done.stdout.decode("utf-8", "replace")
    start = svg.find("<svg")
    return svg[start:] if done.returncode == 0 and start >= 0 else None
