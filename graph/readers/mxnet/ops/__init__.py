"""Converters of MXNet ops to ONNX's ops: one file per family of ops, and one table for all."""

from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops import (
    activation,
    binary,
    convolution,
    create,
    indexing,
    joining,
    linear,
    norm,
    outputs,
    pooling,
    reduce,
    reshape,
    resize,
    scalar,
    slicing,
    sorting,
    unary,
)
from partita.graph.readers.mxnet.ops.registry import converter, converter_of, onnx_ops

__all__ = [
    "Conversion",
    "activation",
    "binary",
    "converter",
    "converter_of",
    "convolution",
    "create",
    "indexing",
    "joining",
    "linear",
    "norm",
    "onnx_ops",
    "outputs",
    "pooling",
    "reduce",
    "reshape",
    "resize",
    "scalar",
    "slicing",
    "sorting",
    "unary",
]
