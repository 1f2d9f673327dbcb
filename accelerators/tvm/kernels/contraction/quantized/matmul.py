"""Products of two quantized matrices, or many such products at once, with their epilogues.

The sum of (a - p)(b - q) is that of a b, minus p times each column's sum of b, minus q times each row's sum of a, plus depth p q:
so the bytes are multiplied as stored. A task packs each panel of the right matrix for the instruction, and sums up its columns
while it is in cache. Reshapes and transposes before and after are folded into reads and writes (`strides.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import is_dequantize, is_pair_product
from partita.accelerators.tvm.kernels.contraction.gpu_product import Points
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads, View
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import instruction_for_bytes
from partita.accelerators.tvm.kernels.contraction.matmul.gpu_gemm import draft_values
from partita.accelerators.tvm.kernels.contraction.operands import (
    Readers,
    TwoSided,
    chain_after,
    found_in,
    operands_of,
    written_after,
)
from partita.accelerators.tvm.kernels.contraction.panels import share_out
from partita.accelerators.tvm.kernels.contraction.quantized.bands import CHUNK
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteCut, ByteShape, ByteTile
from partita.accelerators.tvm.kernels.contraction.tile_table import RegisterTiles
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    float32,
    int8,
    int32,
    uint8,
    uint16,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import any_shape, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_vector, start
from partita.accelerators.tvm.kernels.shared.window import Window
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_PRODUCTS
from partita.graph.node import Node, NodeEntry

SIGN = 128
"""The highest bit of a byte, and the difference between a signed byte and its unsigned form."""


@attrs.frozen(slots=True, eq=False)
class PairProduct(TwoSided):
    """A product of two quantized values."""

    @property
    def scale(self) -> NodeEntry | None:
        """The scale of the sums; None if the sums are the result."""
        return self.root.inputs[2] if len(self.root.inputs) > 2 else None

    @property
    def points(self) -> NodeEntry | None:
        """The zero points of both matrices; None if both are zero."""
        return self.root.inputs[3] if len(self.root.inputs) > 3 else None


def find_pair_product(root: Node, readers: Readers, version: int) -> PairProduct | None:
    """The product around a MatMul of quantized values, with all ops that are fused into it."""
    if not is_pair_product(root) or any_shape(root[0]) is None:
        return None
    chain = chain_after(root, any_shape, readers, version)
    while chain and is_dequantize(chain[-1]):
        chain.pop()
    operands = operands_of([root.inputs[0], root.inputs[1]], {root, *chain}, readers)
    if operands is None:
        return None
    left, right = operands
    return PairProduct(left, right, root, tuple(chain), written_after((chain or [root])[-1][0], readers))


def pair_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of one product; None for any other body."""
    match = found_in(body, find_pair_product)
    if match is None:
        return None
    shape = shape_of(match.root[0])
    heads = Heads.of(body, "quantized_pair", shape[:-2])
    cut = _cut_of(shape[-2], shape[-1], shape_of(match.left.value)[-1], machine)
    _PairLoops.of(match, heads, cut).write(machine)
    return heads.problem.draft(heads.kernel, "quantized pair")


def _cut_of(rows: int, columns: int, depth: int, machine: Machine) -> ByteCut:
    """The cut of least cost: panels of vectors of columns, tiles of rows; the last of each overlaps the one before."""
    dot, one = instruction_for_bytes(machine), (1, 1)
    window = Window((rows, 1), (rows, 1), one, one, one, (0, 0))
    shape = ByteShape(1, window, depth, columns, 1, is_plain=False).taken_by(dot, machine)

    def with_tile(tile: ByteTile) -> ByteCut:
        return ByteCut(shape, dot, tile, rows, 1, False)

    def cost(tile: ByteTile) -> float:
        cut = with_tile(tile)
        return cut.panels * (cut.tiles * tile.cycles + 2 * tile.vectors)

    listed = [ByteTile(*size, dot.lanes) for size in RegisterTiles(*dot.row.beside).sizes(machine)]
    blocks = with_tile(listed[0]).blocks
    return with_tile(choose("tile", [tile for tile in listed if tile.rows <= rows and tile.vectors <= blocks], cost))


@attrs.frozen(slots=True, eq=False)
class _PairLoops:
    """Writes the kernel of one product."""

    match: PairProduct
    cut: ByteCut
    heads: Heads
    left: View
    right: View
    result: View
    points: tuple[Value | None, Value | None]
    """The zero points of the left matrix as unsigned bytes, and of the right one as signed bytes; None: zero."""
    scale: Value | None
    """The scale of the sums."""
    number: Callable[[Value, Head, Operand, Operand], Value]

    @classmethod
    def of(cls, match: PairProduct, heads: Heads, cut: ByteCut) -> _PairLoops:
        """With the views through which the buffers are read and written."""
        wanted = (match.chain or (match.root,))[-1][0]
        left, right, result = heads.read(match.left), heads.read(match.right), heads.written(match.result, match.after)
        number = heads.chain(match.chain, match.root[0], wanted, 1.0, cut.rows, cut.shape.outs)
        is_left, is_right = (bool(match.root.attrs[name]) for name in ("left", "right"))
        points = beside(heads, match.points, 0) if is_left else None, beside(heads, match.points, 1) if is_right else None
        return cls(match, cut, heads, left, right, result, points, beside(heads, match.scale, 0), number)

    @property
    def kernel(self) -> Kernel:
        return self.heads.kernel

    def write(self, machine: Machine) -> None:
        """Writes the loops: tasks, then pairs of a head and a panel, then tiles."""
        cut, count = self.cut, self.heads.count
        wanted = machine.tasks_for(count * cut.rows * cut.shape.outs * cut.shape.inner, BYTE_PRODUCTS)
        tasks = min(wanted, count * cut.panels * cut.tiles)
        share_out(self.kernel, count * cut.panels, cut.tiles, tasks, self._pair)

    def _pair(self, pair: Value) -> Callable[[Value], None]:
        """Writes the work done once per head and panel; returns the function for one of its tiles."""
        cut, kernel = self.cut, self.kernel
        panel = kernel.name_value("panel", pair % cut.panels)
        head = self.heads.head(kernel.name_value("head", pair // cut.panels))
        first = start(panel, cut.tile.vectors, cut.blocks)
        columns = [kernel.name_value(f"column{v}", cut.column(first + v)) for v in range(cut.tile.vectors)]
        packed = self._pack(head, columns)
        beginning = self._beginning(packed)
        sums = self._row_sums(head)
        rows = self._rows(head)

        def each(tile: Value) -> None:
            row = kernel.name_value("row", start(tile, cut.tile.rows, cut.rows))
            acc = kernel.registers("acc", int32, (cut.tile.rows, cut.tile.vectors), cut.dot.lanes)
            for r in range(cut.tile.rows):
                for v in range(cut.tile.vectors):
                    acc[r, v] = beginning.vector(cut.dot.lanes, v * cut.dot.lanes) if beginning is not None else 0
            self._steps(acc, lambda r, k, count: self._numbers(head, rows, row + r, k, count), packed, cut.tile.rows)
            self._store(head, row, columns, acc, sums)

        return each

    # -- the left matrix -------------------------------------------------------------------------------------

    def _rows(self, head: Head) -> Buffer | None:
        """A copy of the left matrix in unsigned elements, if neighbours along the depth are not adjacent, or not of the
        instruction's type."""
        cut, kernel, element = self.cut, self.kernel, self.cut.dot.left_element
        is_straight = self.left.strides.steps[-1] == 1 or cut.shape.inner == 1
        if is_straight and element is uint8:
            return None
        rows = kernel.memory("rows", element, (cut.rows * cut.shape.inner,))
        with kernel.loop(cut.rows, "i") as i:
            if is_straight:
                each_vector(kernel, cut.shape.inner, CHUNK, lambda first, count: self._copy(rows, head, i, first, count), "b")
            else:
                with kernel.loop(cut.shape.inner, "k") as k:
                    self._copy(rows, head, i, k, 1)
        return rows

    def _copy(self, rows: Buffer, head: Head, row: Value, first: Operand, count: int) -> None:
        """Copies neighbours of a row of the left matrix."""
        numbers = _unsigned(self.left.buffer.vector(count, self.left.at(head, row, first)))
        rows[row * self.cut.shape.inner + first] = numbers.cast(rows.element)

    def _numbers(self, head: Head, rows: Buffer | None, row: Operand, step: Operand, count: int) -> Value:
        """Neighbours of a row as 32 bits, unsigned; an incomplete step is padded with anything."""
        group, bits = self.cut.dot.group, self.cut.dot.left_element.bits
        buffer = self.left.buffer if rows is None else rows
        at = self.left.at(head, row, step * group) if rows is None else row * self.cut.shape.inner + step * group
        if count == group:
            return (_unsigned(buffer.vector(group, at)) if rows is None else buffer.vector(group, at)).regrouped(int32)
        numbers = [buffer[at + i] if rows is not None else _unsigned(buffer[at + i]) for i in range(count)]
        word = numbers[0].cast(int32)
        for i, number in enumerate(numbers[1:], 1):
            word = word | (number.cast(int32) << (bits * i))
        return word

    def _row_sums(self, head: Head) -> Buffer | None:
        """The sums of the left matrix's rows, if the right one has a zero point."""
        cut, kernel = self.cut, self.kernel
        if self.points[1] is None:
            return None
        sums = kernel.memory("row_sums", int32, (cut.rows,))
        signed = SIGN * cut.shape.inner if self.left.buffer.element is int8 else 0
        total = kernel.stack("total", int32, (1,))
        with kernel.loop(cut.rows, "i") as i:
            total[0] = signed
            with kernel.loop(cut.shape.inner, "k") as k:
                total[0] = total[0] + self.left.buffer[self.left.at(head, i, k)].cast(int32)
            sums[i] = total[0]
        return sums

    # -- the right matrix ------------------------------------------------------------------------------------

    def _pack(self, head: Head, columns: list[Value]) -> Buffer:
        """A panel as signed elements in the instruction's layout: [step][vector][the bytes of a step]."""
        cut, kernel = self.cut, self.kernel
        packed = kernel.memory("packed", cut.dot.right_element, (cut.shape.steps * cut.tile.vectors * cut.dot.right_size,))
        whole = cut.shape.steps - bool(cut.shape.rest)
        with kernel.loop(whole, "k") as k:
            self._pack_step(packed, head, columns, k, cut.dot.group)
        if cut.shape.rest:
            self._pack_step(packed, head, columns, whole, cut.shape.rest)
        return packed

    def _pack_step(self, packed: Buffer, head: Head, columns: list[Value], step: Operand, count: int) -> None:
        cut, kernel, group = self.cut, self.kernel, self.cut.dot.group
        for v, column in enumerate(columns):
            to = kernel.name_value("to", (step * cut.tile.vectors + v) * cut.dot.right_size)
            if count < group or cut.stored < cut.dot.lanes:
                packed[to] = constant(0, packed.element, cut.dot.right_size)
            if not cut.dot.is_by_columns:
                for byte in range(count):
                    with kernel.loop(cut.stored, "c") as c:
                        at = self.right.at(head, step * group + byte, column + c)
                        packed[to + cut.dot.position(c, byte)] = _signed(self.right.buffer[at]).cast(packed.element)
            elif self.right.strides.steps[-1] == 1 and cut.stored == cut.dot.lanes:
                rows = [self.right.buffer.vector(cut.stored, self.right.at(head, step * group + i, column)) for i in range(count)]
                packed[to] = self._interleaved(rows)
            else:
                with kernel.loop(cut.stored, "c") as c:
                    packed[to + c * group] = self._word(head, step, column + c, count)

    def _word(self, head: Head, step: Operand, column: Operand, count: int) -> Value:
        """Neighbours of a column, signed."""
        group = self.cut.dot.group
        at = [self.right.at(head, step * group + i, column) for i in range(count)]
        if count == group and self.right.strides.steps[-2] == 1:
            return _signed(self.right.buffer.vector(group, at[0])).cast(self.cut.dot.right_element)
        return self._interleaved([self.right.buffer[position] for position in at])

    def _interleaved(self, rows: list[Value]) -> Value:
        """Vectors of bytes as one signed vector with the elements of each lane adjacent, padded with zeros."""
        wide = self.cut.dot.right_element
        bits: Element = uint8 if wide is int8 else uint16
        word, *others = [_signed(row).cast(wide).bits_as(bits).cast(int32) for row in rows]
        for i, row in enumerate(others, 1):
            word = word | (row << (wide.bits * i))
        return word.regrouped(wide)

    def _beginning(self, packed: Buffer) -> Buffer | None:
        """The initial sums: depth p q minus p times the columns' sums, for zero points p (left) and q (right)."""
        cut, kernel, (left, right) = self.cut, self.kernel, self.points
        if left is None:
            return None
        lanes, vectors = cut.dot.lanes, cut.tile.vectors
        beginning = kernel.memory("beginning", int32, (vectors * lanes,))
        acc = kernel.registers("column_sums", int32, (1, vectors), lanes)
        for v in range(vectors):
            acc[0, v] = 0
        ones = constant(sum(1 << (cut.dot.left_element.bits * i) for i in range(cut.dot.group)), int32)
        with kernel.loop(cut.shape.steps, "k") as k:
            for v in range(vectors):
                cut.dot.step(kernel, acc, (0, v), ones, packed, (k * vectors + v) * cut.dot.right_size)
        for v in range(vectors):
            both: Operand = 0 if right is None else (left * right * cut.shape.inner).spread(lanes)
            beginning[v * lanes] = acc[0, v] * -left.spread(lanes) + both
        return beginning

    # -- the sums --------------------------------------------------------------------------------------------

    def _steps(self, acc: Registers, word: Callable[[int, Operand, int], Value], packed: Buffer, rows: int) -> None:
        cut, kernel = self.cut, self.kernel
        each = cut.tile.vectors * cut.dot.right_size

        def step(k: Operand, count: int) -> None:
            for r in range(rows):
                left = kernel.name_value(f"left{r}", word(r, k, count))
                for v in range(cut.tile.vectors):
                    cut.dot.step(kernel, acc, (r, v), left, packed, as_index(k) * each + v * cut.dot.right_size)

        whole = cut.shape.steps - bool(cut.shape.rest)
        with kernel.loop(whole, "k") as k:
            step(k, cut.dot.group)
        if cut.shape.rest:
            step(kernel.name_value("last", whole), cut.shape.rest)

    def _store(self, head: Head, row: Value, columns: list[Value], acc: Registers, row_sums: Buffer | None) -> None:
        """Writes the results; the sums are stored from their registers, and read again in a loop."""
        cut, kernel, scale, point = self.cut, self.kernel, self.scale, self.points[1]
        sums = kernel.registers("sums", int32, (cut.tile.rows, cut.tile.vectors), cut.dot.lanes)
        for i in range(cut.tile.rows):
            for v in range(cut.tile.vectors):
                sums[i, v] = acc[i, v]
        with kernel.loop(cut.tile.rows, "r") as r:
            for v, first in enumerate(columns):
                with kernel.lanes(cut.stored) as lane:
                    total = sums.lane((r, v), lane)
                    total = total if row_sums is None or point is None else total - row_sums[row + r] * point
                    number = total if scale is None else total.cast(float32) * scale
                    at = (self.result.at(head, row + r, first + lane),)
                    write(self.result.buffer, at, self.number(number, head, row + r, first + lane))


def beside(heads: Heads, entry: NodeEntry | None, index: int) -> Value | None:
    """An element of a constant that the product reads besides its matrices; None if there is no such constant."""
    return None if entry is None else heads.inputs[heads.problem.positions[entry]][index]


def _signed(numbers: Value) -> Value:
    """Bytes as signed ones: 128 less if they are unsigned."""
    return numbers if numbers.type.element is int8 else (numbers ^ SIGN).bits_as(int8)


def _unsigned(numbers: Value) -> Value:
    """Bytes as unsigned ones: 128 more if they are signed."""
    return numbers if numbers.type.element is uint8 else numbers.bits_as(uint8) ^ SIGN


def gpu_pair_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of one product; None for any other body."""
    match = found_in(body, find_pair_product)
    if match is None:
        return None
    heads = Heads.of(body, "quantized_pair", shape_of(match.root[0])[:-2])
    scale, points = beside(heads, match.scale, 0), partial(_points, match, heads)
    return draft_values(match, heads, machine, "gpu_quantized_pair", scale, points)


def _points(match: PairProduct, heads: Heads) -> Points:
    """The zero points of both matrices."""
    return _point(match, heads, is_left=True), _point(match, heads, is_left=False)


def _point(match: PairProduct, heads: Heads, is_left: bool) -> Value | None:
    """The zero point of a matrix as its bytes are stored; None: zero. The op's is for unsigned bytes of the left matrix, and
    signed ones of the right."""
    matrix, name, shift = (match.left, "left", -SIGN) if is_left else (match.right, "right", SIGN)
    is_signed = heads.read(matrix).buffer.element is int8
    known = beside(heads, match.points, 0 if is_left else 1) if match.root.attrs[name] else None
    if is_signed == is_left:
        known = constant(shift, int32) if known is None else known + shift
    return None if known is None else heads.kernel.name_value(f"{name}_point", known)
