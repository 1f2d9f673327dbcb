"""The table from MXNet's ops to ONNX's, and its rows: one file per family of ops."""

from partita.graph.readers.mxnet.ops import create, elementwise, linear, norm, reduce, reshape, slicing, windows
from partita.graph.readers.mxnet.ops.table import converter, converter_of, meant_by, onnx_ops

__all__ = [
    "converter", "converter_of", "create", "elementwise", "linear", "meant_by", "norm", "onnx_ops", "reduce", "reshape",
    "slicing", "windows",
]
