"""Random arrays for random models: odd sizes, and now and then the values at which kernels go wrong."""

from __future__ import annotations

import random

import numpy as np

from partita.graph.types import Array, numpy_dtype

FLOATS = ("float32", "float16", "float64", "bfloat16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17)
"""Sizes of dimensions: small, and around the widths of vectors."""

SPECIALS = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, 65504.0, -3e38, 0.5, -0.5, 1.5, 2.5)
"""What a kernel may treat wrongly."""

LARGEST = 4096
"""Elements of a value, so that a model takes a moment."""


class Values:
    """Draws arrays. One seed gives the same arrays on every machine."""

    def __init__(self, rng: random.Random, specials: bool) -> None:
        self.rng = rng
        self._numpy = np.random.default_rng(rng.getrandbits(64))
        self._specials = specials

    def shape(self, rank: int | None = None, empty: bool = False) -> tuple[int, ...]:
        """Sizes of a small tensor."""
        wanted = self.rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        while True:
            sizes = tuple(self.rng.choice(SIZES) for _ in range(wanted))
            if int(np.prod(sizes)) <= LARGEST // 4:
                break
        if empty and sizes and self.rng.random() < 0.02:
            position = self.rng.randrange(len(sizes))
            sizes = (*sizes[:position], 0, *sizes[position + 1 :])
        return sizes

    def array(self, dtype: str, shape: tuple[int, ...]) -> Array:
        """An array of any values that a model may meet."""
        if dtype == "bool":
            return self._numpy.integers(0, 2, shape).astype(bool)
        if dtype not in FLOATS:
            return self._integers(dtype, shape)
        result = self._numpy.standard_normal(shape)
        kind = self.rng.random()
        if kind < 0.15:
            result = np.round(result * 2)  # ties and zeros
        elif kind < 0.25:
            result = result * 10
        elif kind < 0.3:
            result = np.abs(result)
        if self._specials and result.size and self.rng.random() < 0.5:
            flat = result.reshape(-1)
            for _ in range(self.rng.randint(1, 3)):
                flat[self.rng.randrange(flat.size)] = self.rng.choice(SPECIALS)
        with np.errstate(all="ignore"):
            return np.asarray(result).astype(numpy_dtype(dtype))

    def uniform(self, dtype: str, shape: tuple[int, ...], low: float, high: float) -> Array:
        """Numbers within bounds."""
        return np.asarray(self._numpy.uniform(low, high, shape)).astype(numpy_dtype(dtype))

    def within(self, dtype: str, shape: tuple[int, ...], low: int, high: int) -> Array:
        """Integers from `low` up to but not including `high`."""
        return np.asarray(self._numpy.integers(low, high, shape)).astype(numpy_dtype(dtype))

    def _integers(self, dtype: str, shape: tuple[int, ...]) -> Array:
        bounds = np.iinfo(numpy_dtype(dtype))
        if self.rng.random() < 0.15:
            return self._numpy.integers(bounds.min, bounds.max, shape, np.dtype(dtype), endpoint=True)
        return self._numpy.integers(max(-5, bounds.min), 9, shape).astype(dtype)
