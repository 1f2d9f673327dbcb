"""A drafted kernel: a function, and the layout of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from partita.accelerators.tvm.kernels.language import Kernel
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.types import Array


@attrs.frozen(slots=True)
class GradualPack:
    """A layout for arrays of any element type, converted piece by piece: no converted copy of the full array is made."""

    pack: Callable[[Array], Array]

    def __call__(self, array: Array) -> Array:
        """The array laid out."""
        return self.pack(array)


@attrs.frozen(slots=True, eq=False)
class Draft:
    """A drafted kernel."""

    function: Any
    """The scheduled TensorIR function: the body's inputs, then its outputs, under their own shapes."""
    schedule: str
    """The schedule's name."""
    packs: Mapping[int, Callable[[Array], Array]] = attrs.field(factory=dict)
    """Functions that lay out weights as the kernel reads them, by input number."""
    weights: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """Shapes of weights that the kernel reads under another shape than the body's, by input number."""
    symbols: tuple[str | Extent, ...] = ()
    """The sizes passed to the function between its inputs and its outputs, in order: names of symbols, and extents."""
    kernel: Kernel | None = None
    """The kernel in the kernel language; None for one made by a schedule."""
