"""Products with a constant matrix that stays packed as 8-bit or 4-bit integers, and their epilogue.

For few rows the elements are decoded in registers: the kernel is bound by reading each byte of the matrix once. The products of a
block of scales are summed separately and scaled at the end of the block. For many rows a panel is decoded to float32 once, then
multiplied like any other. Both sum in float32."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.packed import DOMAIN, PRODUCT
from partita.accelerators.tvm.kernels.contraction.packing import PANEL, STEP, Half, Packing, half_of
from partita.accelerators.tvm.kernels.contraction.panels import (
    Panel,
    PanelTile,
    at_most,
    by_height,
    by_size,
    panel_tiles,
    share_out,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, float32, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, Writer, alone, make_matrix_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces, start
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MATRIX_PRODUCTS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node

FEW = 8
"""Maximum number of rows for which the matrix is decoded in registers."""

LOW = (1, 2, 3, 4)
"""Heights of lower tiles for few rows if their number is dynamic."""

MAKING = 4
"""Cost of decoding a panel in a tile, in units of a row's cost."""

CHAINS = 8
"""Minimum number of independent sums at a time, so that no addition waits for the one before."""


def packed_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a product by a packed matrix; None for any other body."""
    match = packed_root(body)
    if match is None:
        return None
    root, after = match
    problem, packing = Problem.of(body), Packing.of(root.attrs)
    left, matrix, scales, *points = (problem.positions[entry] for entry in root.reads)
    whole = after.results
    shapes: dict[int, tuple[int, ...]] = dict.fromkeys(range(len(problem.inputs)), (1,))
    shapes |= {**after.operands, left: (whole[0], packing.depth), matrix: (packing.size,)}
    shapes |= {i: shape_of(problem.inputs[i]) for i in (scales, *points)}
    kernel, inputs, outputs = problem.kernel("packed_product", shapes, [whole] * len(problem.outputs))
    operands = PackedOperands(inputs[left], inputs[matrix], inputs[scales], inputs[points[0]] if points else None)
    PackedLoops(packing, int(root.attrs["block"]), whole[0], kernel, operands, Writer(after, inputs, outputs)).write(machine)
    return problem.draft(kernel, "packed product")


def packed_root(body: Body) -> tuple[Node, Epilogue] | None:
    """The body's product by a packed matrix, and its epilogue; None unless it has just one, and all else is epilogue."""
    roots = [node for node in body.ops if node.domain == DOMAIN and node.op == PRODUCT]
    after = make_matrix_epilogue(body, roots[0], alone) if len(roots) == 1 else None
    if after is None:
        return None
    problem, depth = Problem.of(body), int(roots[0].attrs["depth"])
    given = [problem.position(entry) for entry in roots[0].reads]
    alike = given[0] is not None and after.operands.get(given[0], (after.results[0], depth)) == (after.results[0], depth)
    return (roots[0], after) if alike and None not in given else None


@attrs.frozen(slots=True, eq=False)
class PackedOperands:
    """The buffers that a product reads."""

    left: Buffer
    matrix: Buffer
    scales: Buffer
    """One row per block of the depth."""
    points: Buffer | None
    """The zero points; None if all are 0."""


@attrs.frozen(slots=True, eq=False)
class PackedLoops:
    """Writes the kernel of a product."""

    packing: Packing
    block: int
    """Number of elements along the depth that share a scale."""
    rows: int
    kernel: Kernel
    operands: PackedOperands
    writer: Writer

    def write(self, machine: Machine) -> None:
        """Writes code for few rows or for many; for a dynamic number of rows, code for both, and for tiles of several heights."""
        kernel, rows, most = self.kernel, self.rows, self._most_rows(machine)
        if not isinstance(rows, Extent):
            self._write(math.ceil(rows / math.ceil(rows / most)), rows <= FEW, machine)
            return
        low = {height: height + MAKING for height in (*(height for height in LOW if height < most), most)}
        with kernel.when(as_index(rows) <= FEW):
            by_size(kernel, rows, low, lambda height: self._write(height, True, machine))
        with kernel.otherwise():
            tall = PanelTile(most, PANEL, self.packing.lanes).heights()
            by_height(kernel, rows, tall[1:], lambda tile: self._write(tile.rows, False, machine))

    def _write(self, height: int, few: bool, machine: Machine) -> None:
        """Writes the loops over tasks, panels, and tiles of `height` rows."""
        packing, kernel, rows = self.packing, self.kernel, self.rows
        is_open = isinstance(rows, Extent)
        tiles = kept(kernel, "tiles", pieces(rows, height)) if is_open else math.ceil(rows / height)
        tall = PanelTile(height, PANEL, packing.lanes)

        def work(number: Value) -> Callable[[Value], None]:
            first = kernel.name_value("first", packing.panel(number))
            half = half_of(packing, kernel, machine)
            numbers = None if few else kernel.memory("numbers", float32, (packing.depth * PANEL * packing.lanes,))
            if numbers is not None:
                self._for_width(number, lambda across: self._make_numbers(number, first, across, numbers, half))

            def each(t: Value) -> None:
                row = kept(kernel, "row", start(t, height, rows)) if is_open else start(t, height, rows)
                if numbers is None:
                    self._for_width(number, lambda across: self._thin(number, first, across, row, height, half))
                else:
                    self._for_width(number, lambda across: self._tall(number, attrs.evolve(tall, vectors=across), row, numbers))

            return each

        tasks = at_most(machine.tasks_for(rows * packing.columns * packing.depth, MATRIX_PRODUCTS), packing.panels * tiles)
        share_out(kernel, packing.panels, tiles, tasks, work)

    def _most_rows(self, machine: Machine) -> int:
        """Maximum number of rows of a tile whose sums fit the registers beside a panel's vectors."""
        return max(tile.rows for tile in panel_tiles(machine) if tile.vectors == PANEL)

    def _for_width(self, panel: Value, write: Callable[[int], None]) -> None:
        """Calls `write` with the width of the panel: a full one, or the last, which may be narrower."""
        full, rest = divmod(self.packing.blocks, PANEL)
        if full and rest:
            with self.kernel.when(panel < full):
                write(PANEL)
            with self.kernel.otherwise():
                write(rest)
        else:
            write(rest or PANEL)

    def _columns(self, panel: Value, across: int) -> list[Value]:
        """The first column of each block of a panel."""
        first = [self.packing.start(panel * PANEL + v) for v in range(across)]
        return [self.kernel.name_value(f"column{v}", column) for v, column in enumerate(first)]

    # -- few rows ------------------------------------------------------------------------------------------

    def _thin(self, panel: Value, first: Value, across: int, row: Operand, height: int, half: Half) -> None:
        """Multiplies a few rows by a panel whose elements are decoded in registers."""
        kernel, lanes = self.kernel, self.packing.lanes
        columns = self._columns(panel, across)
        total = kernel.registers("total", float32, (height, across), lanes)
        for r in range(height):
            for v in range(across):
                total[r, v] = 0.0
        whole, rest = divmod(self.packing.depth, self.block)
        with kernel.loop(whole, "b") as b:
            self._block(b, self.block, first, columns, row, total, half)
        if rest:
            self._block(whole, rest, first, columns, row, total, half)
        self._store(total, height, row, columns)

    def _block(
        self, number: Operand, size: int, first: Value, columns: list[Value], row: Operand, total: Registers, half: Half
    ) -> None:
        """Adds the products of one block of scales, scaled, to `total`."""
        kernel, lanes = self.kernel, self.packing.lanes
        height, across = total.shape
        chains = 1 if height * across >= CHAINS else CHAINS // (height * across)
        sums = kernel.registers("sums", float32, (chains, height, across), lanes)
        for c in range(chains):
            for r in range(height):
                for v in range(across):
                    sums[c, r, v] = 0.0
        points = self._points(number, columns)

        def step(k: Value, count: int) -> None:
            vectors = self.packing.vectors(kernel, self.operands.matrix, first, k, across, count, half)
            for j, vector in enumerate(vectors):
                numbers = vector if points is None else [a - b for a, b in zip(vector, points, strict=True)]
                shared = [kernel.name_value(f"number{v}", number) for v, number in enumerate(numbers)] if height > 1 else numbers
                for r in range(height):
                    left = read(self.operands.left, (row + r, k + j)).spread(lanes)
                    for v, number_at in enumerate(shared):
                        sums[j % chains, r, v] = sums[j % chains, r, v] + left * number_at

        self._each_step(number, size, step)
        for r in range(height):
            for v, column in enumerate(columns):
                summed = sums[0, r, v]
                for c in range(1, chains):
                    summed = summed + sums[c, r, v]
                total[r, v] = total[r, v] + summed * read(self.operands.scales, (number, column), lanes)

    def _each_step(self, number: Operand, size: int, step: Callable[[Value, int], None]) -> None:
        """Calls `step` for each step of a block, with its first depth index and its number of elements."""
        if self.packing.bits == 4 and self.block % STEP and self.block < self.packing.depth:
            self._each_part(number, size, step)
            return
        with self.kernel.loop(size // STEP, "k") as k:
            step(self.kernel.name_value("depth", number * self.block + k * STEP), STEP)
        if size % STEP:
            step(self.kernel.name_value("depth", number * self.block + size // STEP * STEP), size % STEP)

    def _each_part(self, number: Operand, size: int, step: Callable[[Value, int], None]) -> None:
        """The same for a 4-bit block that begins or ends inside a word: up to the next word, then whole words, then the rest."""
        kernel, few = self.kernel, math.gcd(self.block, size, STEP)
        first = kernel.name_value("first_of_block", as_index(number * self.block))
        inner = kernel.name_value("inner", minimum((first + (STEP - 1)) // STEP * STEP, first + size))
        words = kernel.name_value("words", (first + size - inner) // STEP)
        last = kernel.name_value("last", inner + words * STEP)
        parts = (first, (inner - first) // few, few), (inner, words, STEP), (last, (first + size - last) // few, few)
        for beginning, steps, length in parts:
            with kernel.loop(steps, "k") as k:
                step(kernel.name_value("depth", beginning + k * length), length)

    def _points(self, number: Operand, columns: list[Value]) -> list[Value] | None:
        """The zero points of a block; None if all are 0."""
        points, lanes = self.operands.points, self.packing.lanes
        if points is None:
            return None
        vectors = [points.vector(lanes, number, column).cast(float32) for column in columns]
        return [self.kernel.name_value(f"point{v}", vector) for v, vector in enumerate(vectors)]

    # -- many rows -----------------------------------------------------------------------------------------

    def _make_numbers(self, panel: Value, first: Value, across: int, into: Buffer, half: Half) -> None:
        """Decodes a panel to float32."""
        kernel, packing = self.kernel, self.packing
        columns, lanes = self._columns(panel, across), packing.lanes
        whole, rest = divmod(packing.depth, self.block)

        def block(number: Operand, size: int) -> None:
            points = self._points(number, columns)
            scales = [
                kernel.name_value(f"scale{v}", read(self.operands.scales, (number, column), lanes))
                for v, column in enumerate(columns)
            ]

            def step(depth: Value, count: int) -> None:
                vectors = packing.vectors(kernel, self.operands.matrix, first, depth, across, count, half)
                for j, vector in enumerate(vectors):
                    for v in range(across):
                        number_at = vector[v] if points is None else vector[v] - points[v]
                        into[(depth + j) * (across * lanes) + v * lanes] = number_at * scales[v]

            self._each_step(number, size, step)

        with kernel.loop(whole, "b") as b:
            block(b, self.block)
        if rest:
            block(whole, rest)

    def _tall(self, panel: Value, tile: PanelTile, row: Operand, numbers: Buffer) -> None:
        """Multiplies some rows by a panel that was decoded to float32."""
        packing, kernel = self.packing, self.kernel
        columns = self._columns(panel, tile.vectors)
        left = self.operands.left
        acc = tile.product(kernel, packing.depth, lambda r, k: read(left, (row + r, k)), Panel(numbers, 0, tile.width))
        sums = tile.spilled(kernel, acc)
        self._store(sums, tile.rows, row, columns)

    def _store(self, sums: Registers, rows: int, row: Operand, columns: list[Value]) -> None:
        """Writes the sums through the epilogue."""
        with self.kernel.loop(rows, "r") as r:
            for v, column in enumerate(columns):
                with self.kernel.lanes(self.packing.stored) as lane:
                    self.writer.store(sums.lane((r, v), lane), (row + r, column + lane))
