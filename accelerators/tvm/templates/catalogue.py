"""All templates, in the order in which they are asked."""

# isort: off
from accelerators.tvm.templates import attention, chain, convolution, gemm, product, row_program, rows, thin
from accelerators.tvm.templates import blocked_convolution, blocked_pool, depthwise, lrn, moves, spreading
from accelerators.tvm.templates import division, extremes, indices, maxpool, places, scatter
# isort: on

__all__ = [
    "attention", "chain", "convolution", "gemm", "product", "row_program", "rows", "thin", "blocked_convolution", "blocked_pool",
    "depthwise", "lrn", "moves", "spreading", "division", "extremes", "indices", "maxpool", "places",
    "scatter",
]  # fmt: skip
