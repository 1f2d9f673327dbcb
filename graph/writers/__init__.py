"""Writers: from graphs to files and other programs' models."""

from partita.graph.writers.onnx import save

__all__ = ["save"]
