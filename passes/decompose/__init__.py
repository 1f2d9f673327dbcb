"""Decompositions of ops into simpler ones, as a table by (domain, op, opset)."""

from partita.passes.decompose.onnx_functions import has_function_of_onnx, onnx_function
from partita.passes.decompose.table import Row, decomposed, has_decomposition

__all__ = ["Row", "decomposed", "has_decomposition", "has_function_of_onnx", "onnx_function"]
