"""Pictures of a graph: DOT text, SVG, and what a notebook shows."""

from graph.pictures.dot import to_dot
from graph.pictures.notebook import mimebundle, notebook_svg
from graph.pictures.svg import to_svg

__all__ = ["mimebundle", "notebook_svg", "to_dot", "to_svg"]
