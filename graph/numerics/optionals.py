"""Optional values: a value, or None."""

from __future__ import annotations

from typing import Any

from .registry import differs, numerics


@numerics("Optional", why=differs("because it wraps the value in a list"))
def optional(x: Any = None, *, type: Any = None) -> Any:
    """The value itself; without an input, an empty optional."""
    return x
