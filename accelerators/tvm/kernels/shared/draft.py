"""A kernel as the rooms hand it over: a function, and how its arguments are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from partita.accelerators.tvm.kernels.language import Kernel
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.types import Array


@attrs.frozen(slots=True)
class GradualPack:
    """A layout that takes numbers in any type and converts them part by part: the whole is never converted before."""

    pack: Callable[[Array], Array]

    def __call__(self, array: Array) -> Array:
        """The array laid out."""
        return self.pack(array)


@attrs.frozen(slots=True, eq=False)
class Draft:
    """A kernel that was drafted."""

    function: Any
    """The scheduled TensorIR function: the body's inputs, then its outputs, under their own shapes."""
    schedule: str
    """The schedule's name."""
    packs: Mapping[int, Callable[[Array], Array]] = attrs.field(factory=dict)
    """The functions that lay out weights as the kernel reads them, by the number of the input."""
    weights: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """The shapes of weights that the kernel reads under another shape than the body's, by the number of the input."""
    symbols: tuple[str | Extent, ...] = ()
    """The sizes that the function is given between its inputs and its outputs, in order: names of symbols, and extents."""
    kernel: Kernel | None = None
    """The kernel as it was written; None for one that is scheduled."""
