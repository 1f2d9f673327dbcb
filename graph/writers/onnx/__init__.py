"""The ONNX writer."""

from partita.graph.writers.onnx.files import save
from partita.graph.writers.onnx.model import to_model

__all__ = ["save", "to_model"]
