"""The table from MXNet's ops to ONNX's, and its rows: one file per family of ops."""

from partita.graph.readers.mxnet.ops import create, elementwise, linear, norm, reduce, reshape, slicing, windows
from partita.graph.readers.mxnet.ops.table import converter, converter_of, onnx_ops

__all__ = [
    "converter", "converter_of", "create", "elementwise", "linear", "norm", "onnx_ops", "reduce", "reshape", "slicing", "windows",
]
