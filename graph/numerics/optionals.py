"""Optional values: a value, or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import numerics


@numerics("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    """The value itself; without an input, an empty optional of a type."""
    return x


@numerics("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    """The value inside the optional."""
    if x is None:
        raise ValueError("OptionalGetElement: the optional is empty; ask OptionalHasElement first")
    return x


@numerics("OptionalHasElement")
def optional_has_element(x: Any = None) -> np.ndarray:
    """Whether the optional holds a value."""
    return np.array(x is not None)
