"""Writers: from graphs to files and other programs' models."""

from graph.writers.onnx import save

__all__ = ["save"]
