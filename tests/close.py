"""Comparisons of results whose tolerance grows with the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_close(result: Any, wanted: Any, atol: float = 1e-5, rtol: float = 1e-5) -> bool:
    """True if no number is further off than `atol` times the largest that is wanted, or times 1 if that is smaller; `rtol` is a
    share of the number itself."""
    return bool(np.allclose(result, wanted, rtol=rtol, atol=atol * _largest(wanted)))


def assert_close(result: Any, wanted: Any, atol: float = 1e-5, rtol: float = 1e-5, **options: Any) -> None:
    """The same as an assertion, with numpy's message and further options."""
    np.testing.assert_allclose(result, wanted, rtol=rtol, atol=atol * _largest(wanted), **options)


def _largest(array: Any) -> float:
    sizes = np.abs(np.asarray(array, dtype="float64"))
    return float(sizes.max(where=np.isfinite(sizes), initial=1.0))
