"""Pictures of a graph: DOT text, SVG, and display in notebooks."""

from partita.graph.pictures.dot import to_dot
from partita.graph.pictures.svg import mimebundle, notebook_svg, to_svg

__all__ = ["mimebundle", "notebook_svg", "to_dot", "to_svg"]
