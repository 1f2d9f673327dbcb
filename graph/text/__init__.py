"""The text form of a graph: its printer, its literals, and the content hashes that it names arrays by."""

from partita.graph.text.printer import print_graph

__all__ = ["print_graph"]
