"""A kernel as the rooms hand it over: a function, and how its arguments are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accelerators.tvm.kernels.language import Kernel

Array = np.ndarray[Any, Any]


@attrs.frozen(slots=True, eq=False)
class Draft:
    """A kernel that was drafted."""

    function: Any
    """The scheduled TensorIR function: the body's inputs, then its outputs."""
    schedule: str
    """The schedule's name."""
    packs: Mapping[int, Callable[[Array], Array]] = attrs.field(factory=dict)
    """By input, how a weight is laid out for the kernel."""
    shapes: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """By input, the shape that the kernel takes, where it is not the body's."""
    results: Sequence[tuple[int, ...]] = ()
    """The shapes that the kernel makes, where they are not the body's."""
    kernel: Kernel | None = None
    """The kernel as it was written; None for one that is scheduled."""
