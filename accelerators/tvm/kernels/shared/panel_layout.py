"""How a constant matrix stands in memory for a product: in panels of a few vectors' width, one contiguous stream each.

Two kernels that read a constant in the same layout read the same memory."""

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
    """The layout of one matrix. It is a function of the constant as the model has it."""

    depth: int
    columns: int
    width: int
    """Columns of a panel; the last panel overlaps the one before where they do not divide."""
    group: int
    """So many neighbours along the depth stand side by side."""
    turned: bool
    """Is the constant given with its columns first?"""
    dtype: str
    """The element type that it is stored in."""
    factor: float = 1.0
    """What all its numbers are multiplied by."""

    @property
    def steps(self) -> int:
        """Groups of a column, the last perhaps with zeros."""
        return math.ceil(self.depth / self.group)

    @property
    def panel_size(self) -> int:
        """Numbers of a panel."""
        return self.steps * self.group * self.width

    @property
    def size(self) -> int:
        """Numbers of the whole matrix."""
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
        """Where a column begins; its next group is `width * group` numbers on."""
        panel = number // self.width
        first = minimum(panel * self.width, self.columns - self.width) if self.columns % self.width else panel * self.width
        return panel * self.panel_size + (number - first) * self.group


def group_into(panel: Array, columns: Array, group: int) -> None:
    """Fill a flat panel with columns [depth, column]: the neighbours of each group stand side by side, zeros fill up the last
    group.
    """
    grouped = panel.reshape(-1, columns.shape[1], group)
    for i in range(group):
        neighbours = columns[i::group]
        grouped[: len(neighbours), :, i] = neighbours
        grouped[len(neighbours) :, :, i] = 0
