"""All templates, in the order in which they are asked."""

from accelerators.tvm.templates import chain, convolution, gemm, rows

__all__ = ["chain", "convolution", "gemm", "rows"]
