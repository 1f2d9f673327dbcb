"""The end of a product on a GPU: the partial sums of the depth's slices are added up, and each sum is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

import attrs

from partita.accelerators.tvm.kernels.language import Element, Kernel, Value, float32

Sum = Callable[[int], Value]
"""Returns a thread's sum by its number."""

Store = Callable[[Value, Value, Value], None]
"""Stores a sum at a row and a column of the tile."""


class Tile(Protocol):
    """The interface of all kinds of tiles."""

    @property
    def slices(self) -> int:
        """Number of slices of the depth, and so of threads that share each sum."""

    @property
    def slice_threads(self) -> int:
        """Number of threads of a slice."""

    @property
    def depth(self) -> int:
        """Depth of one step."""


@attrs.frozen(slots=True, eq=False)
class Line:
    """Sums of a thread in one row of the tile."""

    row: Value
    columns: Sequence[tuple[Value, int]]
    """The column and the number of each sum."""


@attrs.frozen(slots=True, eq=False)
class Sums:
    """The sums of each thread of a block."""

    kernel: Kernel
    tile: Tile
    slice: Value
    """The thread's slice."""
    own: Value
    """The thread's number in its slice."""
    get: Sum
    put: Callable[[int, Value], None]
    """Sets a sum."""
    count: int
    """Number of sums of a thread."""
    element: Element = float32
    """The element type of the sums."""

    def store(self, lines: Sequence[Line], store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        """Adds up the slices, and stores each sum whose row and column in the tile are below the bounds. A bound of None is never
        reached."""
        if self.tile.slices == 1:
            self._store(lines, store, bounds)
            return
        kernel = self.kernel
        size = self.tile.slice_threads * self.count
        parts = kernel.shared("parts", self.element, ((self.tile.slices - 1) * size,))
        with kernel.when(self.slice > 0):
            for number in range(self.count):
                parts[(self.slice - 1) * size + self._position(number)] = self.get(number)
        kernel.barrier()
        with kernel.when(self.slice.equals(0)):
            for number in range(self.count):
                with kernel.loop(self.tile.slices - 1, "part") as part:
                    self.put(number, self.get(number) + parts[part * size + self._position(number)])
            self._store(lines, store, bounds)

    def _position(self, number: int) -> Value:
        """Position of the thread's sum among those of its slice."""
        return number * self.tile.slice_threads + self.own

    def _store(self, lines: Sequence[Line], store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        for line in lines:
            with self._below(line.row, bounds[0]):
                for column, number in line.columns:
                    with self._below(column, bounds[1]):
                        store(self.get(number), line.row, column)

    def _below(self, at: Value, bound: Value | None) -> ExitStack:
        stack = ExitStack()
        if bound is not None:
            stack.enter_context(self.kernel.when(at < bound))
        return stack
