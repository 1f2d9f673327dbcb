"""Writers of files and of other programs' models."""

from partita.graph.writers.onnx import save

__all__ = ["save"]
