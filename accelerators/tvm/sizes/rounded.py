"""A size that another one is multiplied by a fraction for, and rounded down: no polynomial says it, and so it has a symbol of its
own, whose value the host computes in each call."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.numerics.resize import scaled_size


@attrs.frozen(slots=True)
class Rounded:
    """What stands behind such a symbol."""

    size: Extent
    """The size that is multiplied."""
    factor: float
    """What it is multiplied by, a number of 32 bits."""

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value, given those of the symbols before it, in the digits that ONNX's Resize has."""
        return scaled_size(self.size.at(sizes), self.factor)
