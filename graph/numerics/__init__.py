"""What each ONNX op means in numpy, one op at a time, at every opset version.

`evaluate` runs one op. Our own meanings live in one file per family and are found by op and opset; everything else
goes to ONNX's reference implementation.
"""

from . import control, convolution, matrices, normalization, pooling, softmax  # noqa: F401  each fills the table
from .evaluate import NoNumerics, evaluate, supports

__all__ = ["NoNumerics", "evaluate", "supports"]
