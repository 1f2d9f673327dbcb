"""The text form of a graph: `print_graph` writes it, `parse` reads it back exactly."""

from partita.graph.text.parser import parse
from partita.graph.text.printer import print_graph

__all__ = ["parse", "print_graph"]
