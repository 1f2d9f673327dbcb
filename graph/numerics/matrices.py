"""Matrix products."""

from __future__ import annotations

import numpy as np

from partita.graph.numerics.convolution import centred, wrapped
from partita.graph.numerics.registry import EVERYWHERE, fails, numerics, slow


@numerics("MatMul", widen=True, why=slow(EVERYWHERE))
def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """numpy's matrix product, in the wider of both types."""
    return np.matmul(a, b)


@numerics("Gemm", widen=True, why=slow(EVERYWHERE))
def gemm(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, *, alpha: float, beta: float, transA: int, transB: int,
    broadcast: int = 0,
) -> np.ndarray:
    """alpha A B + beta C; ``broadcast`` of opsets below 7 is ignored, since numpy broadcasts anyway."""
    y = np.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = (y * alpha).astype(a.dtype)
    if c is None or beta == 0:
        return y
    return (y + (c if beta == 1 else beta * c)).astype(a.dtype)


@numerics("Det", widen=True, why=fails("in float16"))
def determinant(x: np.ndarray) -> np.ndarray:
    """The determinant of each matrix in the last two axes."""
    return np.linalg.det(x)


@numerics("MatMulInteger", why=fails("where each row of the first factor has a zero point of its own"))
def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None, b_zero_point: np.ndarray | None = None,
) -> np.ndarray:
    """Product of 8-bit integers in int32 with wrap-around; zero points are per row of A and per column of B."""
    rows = max(a.ndim - 2, 0)
    sums = np.matmul(_centred(a, a_zero_point, rows), _centred(b, b_zero_point, b.ndim - 1))
    return wrapped(sums)


def _centred(x: np.ndarray, zero_point: np.ndarray | None, axis: int) -> np.ndarray:
    """x less the zero point, which may also have the rank of ``x``."""
    if zero_point is not None and zero_point.ndim > 1:
        return x.astype(np.float64) - zero_point
    return centred(x, zero_point, axis)


@numerics("QLinearMatMul", why=fails("where the first factor has a zero point for each row, which it takes by column"))
def qlinear_matmul(
    a: np.ndarray, a_scale: np.ndarray, a_zero_point: np.ndarray, b: np.ndarray, b_scale: np.ndarray,
    b_zero_point: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray,
) -> np.ndarray:
    """Product of quantized matrices, requantized; scales and zero points of A and the result are by row, of B by column."""
    product = matmul_integer(a, b, a_zero_point, b_zero_point)
    scaled = product * (_by_row(a_scale) * b_scale / _by_row(y_scale))
    bounds = np.iinfo(y_zero_point.dtype)
    return np.clip(np.rint(scaled) + _by_row(y_zero_point), bounds.min, bounds.max).astype(y_zero_point.dtype)


def _by_row(values: np.ndarray) -> np.ndarray:
    return values[:, None] if values.ndim == 1 and values.size > 1 else values
