"""The meaning of each ONNX op in numpy, at every opset version.

`evaluate` runs one op. Our own implementations are in one file per family and are found by op and opset; all other ops
go to ONNX's reference implementation."""

from partita.graph.numerics import (  # noqa: F401  importing a family fills the table
    activations,
    ai_onnx_ml,
    arithmetic,
    attention,
    casts,
    control,
    convolution,
    indexing,
    layout,
    matrices,
    normalization,
    pooling,
    randomness,
    recurrent,
    reductions,
    resize,
    sampling,
    signals,
    softmax,
)
from partita.graph.numerics.evaluate import NoNumerics, evaluate, supports

__all__ = ["NoNumerics", "evaluate", "supports"]
