"""The ONNX writer."""

from graph.writers.onnx.files import save
from graph.writers.onnx.model import to_model

__all__ = ["save", "to_model"]
