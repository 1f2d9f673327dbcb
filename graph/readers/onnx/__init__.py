"""The ONNX reader."""

from partita.graph.readers.onnx.load import load_onnx

__all__ = ["load_onnx"]
