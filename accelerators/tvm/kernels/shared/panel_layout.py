"""The layout of a constant matrix for a product: panels of a few vectors' width, each contiguous.

Kernels that read a constant in the same layout share its memory."""

from __future__ import annotations

import math

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.stored import as_stored
from partita.accelerators.tvm.kernels.language import Operand, Value, minimum
from partita.accelerators.tvm.kernels.shared.tile import starts
from partita.graph.types import Array, numpy_dtype


@attrs.frozen(slots=True)
class PanelLayout:
    """The layout of one matrix, as a function of the constant in the model."""

    depth: int
    columns: int
    width: int
    """Columns of a panel; the last overlaps the one before if they do not divide the columns."""
    group: int
    """Number of neighbours along the depth that are adjacent in memory."""
    turned: bool
    """True if the constant is transposed, [columns, depth]."""
    dtype: str
    """The element type that it is stored in."""
    factor: float = 1.0
    """Factor by which all elements are multiplied."""

    @property
    def steps(self) -> int:
        """Groups of a column; the last is padded with zeros."""
        return math.ceil(self.depth / self.group)

    @property
    def panel_size(self) -> int:
        """Elements of a panel."""
        return self.steps * self.group * self.width

    @property
    def size(self) -> int:
        """Elements of the whole matrix."""
        return math.ceil(self.columns / self.width) * self.panel_size

    def __call__(self, array: Array) -> Array:
        """The constant in panels [panel, step, column, neighbour], flat."""
        matrix = array.T if self.turned else array
        firsts = starts(self.columns, self.width)
        panels = new_weight((len(firsts), self.steps * self.group, self.width), numpy_dtype(self.dtype))
        for panel, first in zip(panels, firsts, strict=True):
            group_into(panel, as_stored(matrix[:, first : first + self.width], self.dtype), self.group)
        return (panels if self.factor == 1.0 else panels * np.float32(self.factor)).reshape(-1)

    def column(self, number: Value) -> Operand:
        """Start of a column; its next group is `width * group` elements further."""
        panel = number // self.width
        first = minimum(panel * self.width, self.columns - self.width) if self.columns % self.width else panel * self.width
        return panel * self.panel_size + (number - first) * self.group


def group_into(panel: Array, columns: Array, group: int) -> None:
    """Fill a flat panel with columns [depth, column]: the neighbours of a group are adjacent, and the last group is padded with
    zeros."""
    grouped = panel.reshape(-1, columns.shape[1], group)
    for i in range(group):
        neighbours = columns[i::group]
        grouped[: len(neighbours), :, i] = neighbours
        grouped[len(neighbours) :, :, i] = 0
