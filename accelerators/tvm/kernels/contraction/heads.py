"""Matrices of several heads, read and written in place as strided views, and element-wise ops on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.contraction.operands import Matrix
from partita.accelerators.tvm.kernels.contraction.panels import PanelTile
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, uint16, uint32
from partita.accelerators.tvm.kernels.shared.element_access import constants_of, read
from partita.accelerators.tvm.kernels.shared.elementwise import formula, number_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.accelerators.tvm.kernels.shared.strides import Strides, broadcast_to, followed, ghost, strides_in, undone
from partita.graph.node import Node, NodeEntry

TOGETHER = 8
"""Steps of the depth that are read together if they are contiguous in memory. LLVM fully unrolls loops of static length, which
takes it a second for a panel of a thousand elements. Columns and groups of steps share one loop: of two loops LLVM unrolled the
inner one for each group, as vectors gathered element by element, and once more for overlapping memory."""

Head = tuple[Operand, ...]
"""Index of a matrix in each batch dimension."""


@attrs.frozen(slots=True, eq=False)
class View:
    """A flat buffer seen as matrices."""

    buffer: Buffer
    strides: Strides

    def at(self, head: Head, row: Operand, column: Operand) -> Operand:
        """Position in the buffer of an element of a head's matrix."""
        position: Operand = self.strides.offset
        terms: list[Operand] = [position] if self.strides.offset else []
        for index, step in zip((*head, row, column), self.strides.steps, strict=True):
            if step:
                terms.append(index if step == 1 else index * step)
        total = terms[0] if terms else 0
        for term in terms[1:]:
            total = total + term
        return total

    def number(self, head: Head, row: Operand, column: Operand) -> Value:
        """An element of a head's matrix."""
        return read(self.buffer, (self.at(head, row, column),))


@attrs.frozen(slots=True, eq=False)
class Heads:
    """The flat buffers of a kernel, seen as matrices."""

    problem: Problem
    """The problem that the kernel solves."""
    kernel: Kernel
    inputs: Sequence[Buffer]
    output: Buffer
    batch: tuple[int, ...]
    """The dimensions before the matrices: sequences, heads."""

    @classmethod
    def of(cls, body: Body, name: str, batch: tuple[int, ...]) -> Heads:
        """A kernel for a body of one result, with flat arguments."""
        problem = Problem.of(body)
        flat = {i: (math.prod(shape_of(entry)),) for i, entry in enumerate(problem.inputs)}
        kernel, inputs, outputs = problem.kernel(name, flat, [(math.prod(shape_of(problem.outputs[0])),)])
        return cls(problem, kernel, inputs, outputs[0], batch)

    @property
    def count(self) -> int:
        """The number of matrices."""
        return math.prod(self.batch)

    def head(self, number: Value) -> Head:
        """Indices of head `number` in each batch dimension."""
        indices: list[Operand] = []
        for d, size in enumerate(self.batch):
            index = number // math.prod(self.batch[d + 1 :]) % size
            indices.append(self.kernel.name_value(f"h{d}", index) if size != 1 else 0)
        return tuple(indices)

    def read(self, matrix: Matrix) -> View:
        """The matrix's buffer, with its strides over heads, rows and columns."""
        whole = ghost(shape_of(matrix.source))
        view = followed(whole, matrix.path, matrix.value)
        assert view is not None
        strides = strides_in(broadcast_to(view, (*self.batch, *view.shape[-2:])), whole)
        return View(self.inputs[self.problem.positions[matrix.source]], strides)

    def written(self, result: NodeEntry, after: Sequence[Node]) -> View:
        """The result's buffer, with its strides before the ops `after` reorder it."""
        whole = ghost(shape_of(result))
        view = undone(whole, after)
        assert view is not None
        return View(self.output, strides_in(view, whole))

    def pack(
        self, into: Buffer, start: Operand, view: View, head: Head, tile: PanelTile, depth: int, column: Operand
    ) -> None:
        """Copy one panel, to `start` on."""

        def copy(k: Value, c: Value) -> None:
            into[start + k * tile.width + c] = view.number(head, k, column + c)

        self._each_number(view, depth, tile, copy)

    def pack_pairs(
        self, into: Buffer, start: Operand, view: View, head: Head, tile: PanelTile, depth: int, column: Operand
    ) -> None:
        """Copy the bits of one panel to `start`, with two neighbours of the depth adjacent; the last pair is padded with zero."""
        kernel, source = self.kernel, view.buffer
        steps, rest = divmod(depth, 2)
        if view.strides.steps[-1] != 1:

            def copy(k: Value, c: Value) -> None:
                for i in (0, 1):
                    into[start + (k * tile.width + c) * 2 + i] = source[view.at(head, k * 2 + i, column + c)].bits_as(uint16)

            self._by_column(steps, tile, copy)
        else:
            with kernel.loop(steps, "k") as k, kernel.loop(tile.vectors, "v") as v:
                self._interleave(into, start, view, head, tile, k, column + v * tile.lanes, v * tile.lanes)
        if rest:
            with kernel.loop(tile.width, "c") as c:
                into[start + (tile.width * steps + c) * 2] = source[view.at(head, depth - 1, column + c)].bits_as(uint16)
                into[start + (tile.width * steps + c) * 2 + 1] = 0

    def _interleave(
        self, into: Buffer, start: Operand, view: View, head: Head, tile: PanelTile, k: Value, column: Operand, at: Operand
    ) -> None:
        """A vector of the pairs of two rows of the matrix."""
        rows = [view.buffer.vector(tile.lanes, view.at(head, k * 2 + i, column)) for i in (0, 1)]
        low, high = (row.bits_as(uint16).cast(uint32) for row in rows)
        into[start + (k * tile.width + at) * 2] = (low | (high << 16)).regrouped(uint16)

    def _each_number(self, view: View, depth: int, tile: PanelTile, copy: Callable[[Value, Value], None]) -> None:
        """Runs `copy` for each step of the depth and column of a panel, in memory order."""
        kernel = self.kernel
        if view.strides.steps[-1] == 1:
            with kernel.loop(depth, "k") as k, kernel.lanes(tile.width, "c") as c:
                copy(k, c)
        else:
            self._by_column(depth, tile, copy)

    def _by_column(self, steps: int, tile: PanelTile, copy: Callable[[Value, Value], None]) -> None:
        """Runs `copy` for each step of the depth and column of a panel, in groups of consecutive steps of a column."""
        kernel = self.kernel
        whole, left = divmod(steps, TOGETHER) if isinstance(steps, int) else (0, steps)
        with kernel.loop(whole * tile.width, "m") as m, kernel.unroll(TOGETHER, "u") as u:
            copy(m // tile.width * TOGETHER + u, m % tile.width)
        with kernel.loop(tile.width, "c") as c, kernel.loop(left, "k") as k:
            copy(whole * TOGETHER + k, c)

    # -- element-wise ops --------------------------------------------------------------------------------

    def chain(
        self, nodes: Sequence[Node], root: NodeEntry, wanted: NodeEntry, factor: float, rows: int, columns: int
    ) -> Callable[[Value, Head, Operand, Operand], Value]:
        """A function that applies element-wise ops to the root's result, scaled by a factor, at a position of the matrix."""
        inputs = set(self.problem.inputs)
        beside = list(dict.fromkeys(entry for node in nodes for entry in node.reads if entry in inputs))
        views = []
        for entry in beside:
            whole = ghost(shape_of(entry))
            strides = strides_in(broadcast_to(whole, (*self.batch, rows, columns)), whole)
            views.append(View(self.inputs[self.problem.positions[entry]], strides))

        version = self.problem.body.graph.opset
        formulas = {node: compute for node in nodes if (compute := formula(node, version)) is not None}

        def number(total: Value, head: Head, row: Operand, column: Operand) -> Value:
            values = {**constants_of(self.problem.body)}
            values |= {entry: view.number(head, row, column) for entry, view in zip(beside, views, strict=True)}
            values[root] = total if factor == 1.0 else total * factor
            for node in self.problem.body.ops:
                if node in formulas:
                    values[node[0]] = number_of(node, formulas[node], values)
            return values[wanted]

        return number
