"""The state weights of a recurrent layer, packed into panels that hold all gates of neighbouring state elements."""

from __future__ import annotations

import math
from functools import partial

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.body import shape_of
from partita.accelerators.tvm.bodies.recurrent import Layer
from partita.accelerators.tvm.kernels.contraction.panels import PanelTile, panel_tiles
from partita.accelerators.tvm.kernels.contraction.recurrent.cells import Part, parts_of
from partita.accelerators.tvm.kernels.language import Operand
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.loops import starts
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array

BYTES = 4
"""Bytes of an element."""

LINE = 64
"""Bytes of a cache line."""

L1, L2 = 24 << 10, 1 << 20
"""Bytes of weights that the L1 and L2 caches hold beside other data."""

L2_CYCLES, L3_CYCLES = 2.0, 5.0
"""Cycles per line of the L2 and L3 caches in a sequential read."""


@attrs.frozen(slots=True)
class LayerSizes:
    """The sizes of a layer."""

    steps: int
    batch: int
    directions: int
    hidden: int
    gates: int

    @classmethod
    def of(cls, layer: Layer) -> LayerSizes:
        """The sizes of a layer, from its shapes."""
        first, second, _ = shape_of(layer.projected)
        steps, batch = (second, first) if layer.batch_first else (first, second)
        directions, _, hidden = shape_of(layer.state_weights)
        return cls(steps, batch, directions, hidden, layer.gates)

    @property
    def products(self) -> int:
        """Number of multiplications of one step of one sequence in one direction."""
        return self.gates * self.hidden * self.hidden


@attrs.frozen(slots=True)
class PartPanels:
    """The layout of the weights of a part's gates, and the tile that multiplies them."""

    part: Part
    tile: PanelTile
    """Rows of the batch times a panel, in which the vectors of each gate follow one another."""
    first: int
    """The offset of its panels in the packed weights."""
    hidden: int

    @property
    def vectors(self) -> int:
        """Number of vectors of each gate in a panel."""
        return self.tile.vectors // len(self.part.gates)

    @property
    def width(self) -> int:
        """Number of state elements in a panel."""
        return self.vectors * self.tile.lanes

    @property
    def count(self) -> int:
        """Number of panels of one direction."""
        return math.ceil(self.hidden / self.width)

    @property
    def size(self) -> int:
        """Number of elements of one direction's panels."""
        return self.count * self.hidden * self.tile.width

    def start(self, direction: Operand, panel: Operand) -> Operand:
        """The offset of a panel in the packed weights."""
        return self.first + direction * self.size + panel * (self.hidden * self.tile.width)

    def pack(self, weights: Array) -> Array:
        """Packs [directions, gates * hidden, hidden] to [direction, panel, hidden, gate, state element]."""
        directions, _, hidden = weights.shape
        by_gate = weights.reshape(directions, -1, hidden, hidden)[:, list(self.part.gates)]
        columns = [by_gate[:, :, at : at + self.width] for at in starts(hidden, self.width)]
        return np.stack(columns, 1).transpose(0, 1, 4, 2, 3)


def panels_of(layer: Layer, sizes: LayerSizes, rows: int, machine: Machine) -> list[PartPanels]:
    """The panels of each part, for tiles of at most `rows` rows."""
    lanes = min(machine.lanes, 1 << (sizes.hidden.bit_length() - 1))
    panels: list[PartPanels] = []
    for number, part in enumerate(parts_of(layer)):
        gates = len(part.gates)
        fitting = [
            tile for tile in panel_tiles(attrs.evolve(machine, lanes=lanes))
            if tile.vectors % gates == 0 and tile.rows <= rows and tile.width // gates <= sizes.hidden
        ]

        cost = partial(_cost, sizes.hidden, gates, rows)
        first = panels[-1].first + sizes.directions * panels[-1].size if panels else 0
        panels.append(PartPanels(part, choose(f"tile{number or ''}", fitting, cost), first, sizes.hidden))
    return panels


def _cost(hidden: int, gates: int, rows: int, tile: PanelTile) -> tuple[float, int]:
    """Estimated cycles of a step's products with this tile.

    The first tile of rows loads a panel from the outer caches, later ones from an inner one if it fits there."""
    panels, panel = math.ceil(hidden / (tile.width // gates)), hidden * tile.width * BYTES
    line = tile.lanes * BYTES / LINE
    far = tile.vectors * line * (L3_CYCLES if panels * panel > L2 else L2_CYCLES)
    near = tile.vectors * line * (L2_CYCLES if panel > L1 else 0.0)
    return panels * (max(tile.cycles, far) + (tile.down(rows) - 1) * max(tile.cycles, near)), -tile.vectors


def packed_weights(weights: Array, panels: list[PartPanels]) -> Array:
    """The packed weights of all parts, flat."""
    pieces = [part.pack(weights) for part in panels]
    packed = new_weight((sum(piece.size for piece in pieces),), weights.dtype)
    for part, piece in zip(panels, pieces, strict=True):
        packed[part.first : part.first + piece.size].reshape(piece.shape)[...] = piece
    return packed
