"""The ONNX reader."""

from graph.readers.onnx.load import load_onnx

__all__ = ["load_onnx"]
