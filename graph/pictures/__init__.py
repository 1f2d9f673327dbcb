"""Pictures of a graph: DOT text, SVG, and what a notebook shows."""

from graph.pictures.dot import to_dot
from graph.pictures.notebook import mimebundle
from graph.pictures.svg import to_svg

__all__ = ["mimebundle", "to_dot", "to_svg"]
