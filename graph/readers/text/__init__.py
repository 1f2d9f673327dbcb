"""Reader of the text form, exactly as `print_graph` writes it."""

from partita.graph.readers.text.parser import parse

__all__ = ["parse"]
