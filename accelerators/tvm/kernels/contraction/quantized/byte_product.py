"""Products of quantized values and constant weights, with their epilogues: convolutions and matrix products.

Sums are integers: unsigned bytes of the image times signed ones of the weights. The initial sum of each column holds the bias and
the contribution of the image's zero point. A tile keeps pixels x vectors of columns in registers; each step takes four
neighbouring channels of every pixel. Each tap of a window is another address, so that nothing is rearranged except at the image's
border, where a task copies its band with the zero point around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.amx import WIDEST, Left, Right
from partita.accelerators.tvm.kernels.contraction.panels import chosen_size, for_each_size
from partita.accelerators.tvm.kernels.contraction.quantized.bands import CHUNK, ByteBands, Frame, bands_of
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteCut, ByteShape, make_cut
from partita.accelerators.tvm.kernels.contraction.quantized.draft import ByteLayer
from partita.accelerators.tvm.kernels.contraction.quantized.fast_inner_product import STEP, Crossed, Own
from partita.accelerators.tvm.kernels.contraction.quantized.winograd import Squares
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    both_rows,
    high_halves,
    int32,
    low_halves,
    minimum,
    select,
    uint8,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import counted, each_vector, kept, pieces, start
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent


def product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a product and its epilogue; None for any other body."""
    layer = ByteLayer.of(body, "Product")
    if layer is None:
        return None
    shape, (down, across) = layer.shape, layer.shape.window.sizes
    cut, plain = make_cut(shape, machine), (shape.batch, shape.channels, down, across)
    image = plain if shape.is_plain else (shape.batch, shape.channels * (down * across))
    kernel, buffers, writer = layer.kernel("quantized_product", image, cut.weight_bytes, cut.beginnings)
    _ByteProducts(cut, bands_of(kernel, cut, machine), kernel, *buffers, writer, layer.zero).write()
    return layer.problem.draft(
        kernel, "quantized product", {layer.weight: cut.pack, layer.beginning: cut.pack_beginning}
    )


@attrs.frozen(slots=True, eq=False)
class _Band:
    """The values of a task."""

    n: Value
    """The image."""
    top: Value
    """The first row of the result in the band."""
    rows: Operand
    """Number of rows of the result in the band."""
    image: Buffer | None
    """The copy of the band's input, if there is one."""
    wide: Buffer | None
    """The buffer into which the task rewrites the weights of each panel, if it does."""
    own: Buffer | None
    """The correction terms of rows for products with half of the multiplications: [row, group]."""


@attrs.frozen(slots=True, eq=False)
class _BytePanel:
    """The values of a panel."""

    group: Value
    first: Operand
    """Its first block in the group."""
    vectors: int


@attrs.frozen(slots=True, eq=False)
class _PanelWeights:
    """The place of a panel's weights."""

    buffer: Buffer
    first: Value
    own: Own | None = None
    """The correction terms of rows and columns for products with half of the multiplications."""


@attrs.frozen(slots=True, eq=False)
class _ByteProducts:
    """Writes the kernel of a product. If the height of tiles is chosen at run time, each height has a copy of this object."""

    cut: ByteCut
    bands: ByteBands
    kernel: Kernel
    source: Buffer
    weight: Buffer
    beginning: Buffer
    writer: Writer
    zero: int
    is_highest: bool = True
    """True if tiles are as high as any. Lower ones serve so few rows that they read the weights as stored, without a copy."""

    def write(self) -> None:
        """Writes the tasks: images, bands of rows, ranges of panels. For a dynamic number of pixels a band has code for tiles of
        several heights."""
        cut, bands, kernel, window = self.cut, self.bands, self.kernel, self.cut.shape.window
        rows, count = bands.rows, bands.count * bands.parts
        name = partial(kept, kernel, is_kept=window.is_any)
        heights = {tile.rows: tile for tile in cut.heights()} if window.is_any else {}
        cycles_of = {height: tile.half_cycles for height, tile in heights.items()}
        chosen = chosen_size(kernel, counted(rows * window.out[1]), cycles_of) if heights else None
        with kernel.tasks(cut.shape.batch * count, "task", bands.parallel) as task:
            n = name("n", task // count)
            top = name("top", minimum(task % count // bands.parts * rows, window.out[0] - rows))
            part = name("part", task % bands.parts)
            image = None
            if cut.shape.copies:
                image = self.frame.memory(kernel)
                self.frame.write(kernel, self.source, image, n, top, rows if rows is not bands.room else None)
            if chosen is None:
                self._band(cut.tile.rows, n, top, part, image)
            else:
                for_each_size(kernel, chosen, heights, lambda height: self._band(height, n, top, part, image))

    def _band(self, height: int, n: Value, top: Value, part: Value, image: Buffer | None) -> None:
        """Writes a band with tiles of this height."""
        tile, is_highest = self.cut.tile, height == self.cut.tile.rows
        cut = attrs.evolve(self.cut, tile=attrs.evolve(tile, rows=height, crosses=tile.crosses and is_highest))
        attrs.evolve(self, cut=cut, is_highest=is_highest).write_band(n, top, part, image)

    def write_band(self, n: Value, top: Value, part: Value, image: Buffer | None) -> None:
        """Writes a range of panels, given the copy of the band's input, if there is one."""
        cut, kernel, rows = self.cut, self.kernel, self.bands.rows
        if image is not None and cut.shape.is_winograd:
            image = self.squares.write_image(image)
        with nullcontext() if cut.unit is None else cut.unit.configured(kernel):
            own = self._own_of_rows(image, rows) if cut.tile.crosses and image is not None else None
            self._panels(_Band(n, top, rows, image, self._wide(), own), part)

    @property
    def frame(self) -> Frame:
        """The copy of a band's input."""
        return Frame(self.cut.shape, self.bands.room, self.zero)

    def _panels(self, band: _Band, part: Value) -> None:
        cut, kernel, parts, is_cut = self.cut, self.kernel, self.bands.parts, self.bands.cuts_panels
        full, rest = divmod(cut.blocks, cut.tile.vectors)
        first: Operand = part * full // parts if is_cut else 0
        end: Operand = (part + 1) * full // parts if is_cut else full
        first = kernel.name_value("first", first)
        with kernel.loop(cut.shape.groups, "group") as group:
            if full:
                with kernel.loop(end - first, "p") as p:
                    block = kernel.name_value("block", (first + p) * cut.tile.vectors)
                    self._tiles(band, _BytePanel(group, block, cut.tile.vectors))
            if rest and is_cut:
                with kernel.when(part.equals(parts - 1)):
                    self._tiles(band, _BytePanel(group, full * cut.tile.vectors, rest))
            elif rest:
                self._tiles(band, _BytePanel(group, full * cut.tile.vectors, rest))

    @property
    def squares(self) -> Squares:
        """The writer of Winograd products, by squares of results."""
        return Squares(self.cut, self.kernel, self.frame.wide)

    def _tiles(self, band: _Band, panel: _BytePanel) -> None:
        """Writes all tiles of the band for one panel."""
        cut, kernel, window = self.cut, self.kernel, self.cut.shape.window
        columns = [kernel.name_value(f"column{v}", self._column(panel, v)) for v in range(panel.vectors)]
        weights = self._weights(panel, band)
        length = cut.length if isinstance(band.rows, int) else counted(band.rows * window.out[1])
        with kernel.loop(pieces(length, cut.tile.rows), "tile") as tile:
            base = kept(kernel, "base", start(tile, cut.tile.rows, length), is_kept=isinstance(length, Value))
            if cut.shape.is_winograd and band.image is not None:
                products = self.squares.multiply(band.image, weights.buffer, panel.group, base, panel.vectors)
                first = kernel.name_value("to", (band.n * window.out[0] + band.top) * window.out[1])
                self.squares.store(products, self.beginning, columns, base, first, self.writer)
            else:
                addresses = self._addresses(panel.group, band.top, base, band.image, cut.tile.rows)
                if weights.own is not None and band.image is not None:
                    rows = [(base + r) * cut.shape.groups + panel.group for r in range(cut.tile.rows)]
                    sums = self._crossed(rows, columns, addresses, weights, weights.own, band.image)
                else:
                    make = self._in_vectors if cut.unit is None else self._in_tiles
                    sums = make(band.n, columns, addresses, weights, band.image)
                self._store(band.n, band.top, base, columns, sums)

    def _wide(self) -> Buffer | None:
        """A buffer for a panel's rewritten weights; None if its tiles read them as stored."""
        cut = self.cut
        if cut.shape.is_winograd:
            return self.squares.memory_of_weights()
        widens = cut.widens and self.is_highest
        return self.kernel.memory("wide", cut.dot.right_element, (cut.tile.vectors * cut.block_bytes,)) if widens else None

    def _weights(self, panel: _BytePanel, band: _Band) -> _PanelWeights:
        """The panel's weights as its tiles read them: widened, or as Winograd sums, if there is a buffer for those."""
        cut, kernel, source, wide = self.cut, self.kernel, self.weight, band.wide
        first = kernel.name_value("weights", (panel.group * cut.blocks + panel.first) * cut.block_bytes)
        if wide is None:
            return _PanelWeights(source, first)
        if cut.shape.is_winograd:
            self.squares.write_weights(source, first, panel.vectors, wide)
            return _PanelWeights(wide, kernel.name_value("rewritten", 0))

        def copy(start: Operand, size: int) -> None:
            wide[start] = source.vector(size, first + start).cast(wide.element)

        each_vector(kernel, panel.vectors * cut.block_bytes, CHUNK, copy, "b")
        rewritten = kernel.name_value("rewritten", 0)
        if band.own is None:
            return _PanelWeights(wide, rewritten)
        columns = kernel.registers("own_of_columns", int32, (panel.vectors,), cut.dot.lanes)
        self._products.own_of_columns(wide, rewritten, cut.shape.depth, columns)
        return _PanelWeights(wide, rewritten, Own(band.own, columns))

    def _column(self, panel: _BytePanel, v: int) -> Value:
        """The first column of a vector of the panel."""
        return panel.group * self.cut.shape.own + self.cut.column(as_index(panel.first) + v)

    def _addresses(self, group: Value, top: Value, base: Value, image: Buffer | None, count: int) -> list[Value]:
        """For each of `count` pixels, the address of the first tap of the group's first channel, in the copy or in the image."""
        shape = self.cut.shape
        if image is None:
            return _byte_addresses(self.kernel, shape, group, top, base, shape.window.sizes[1], count)
        return _byte_addresses(self.kernel, shape, group, None, base, self.frame.wide, count)

    def _in_vectors(
        self, n: Value, columns: list[Value], addresses: list[Value], weights: _PanelWeights, image: Buffer | None
    ) -> Registers:
        """The sums of a tile, accumulated in vector registers, then stored, so that a loop can read them."""
        cut, kernel, vectors, dot = self.cut, self.kernel, len(columns), self.cut.dot
        acc = kernel.registers("acc", int32, (cut.tile.rows, vectors), dot.lanes)
        for r in range(cut.tile.rows):
            for v, column in enumerate(columns):
                acc[r, v] = self.beginning.vector(dot.lanes, column)
        self._exchange(acc, acc)
        less, alone = acc, attrs.evolve(dot, less=None)
        if dot.less is not None:
            less = kernel.registers("less", int32, (vectors,), dot.lanes)
            for v in range(vectors):
                less[v] = 0
        with self._taps(vectors, weights.first, image) as (tap, packed), kernel.loop(cut.shape.run // dot.group, "k") as k:

            def word(r: int) -> Value:
                position = addresses[r] + tap + k * dot.group
                numbers = self.source.vector(dot.group, n, position) if image is None else image.vector(dot.group, position)
                return kernel.name_value(f"left{r}", numbers.regrouped(dot.word))

            if dot.less is not None:
                for v in range(vectors):
                    columns_now = dot.right(weights.buffer, packed + k * (vectors * dot.right_size) + v * dot.right_size)
                    less[v] = dot.less(less[v], columns_now)
            for r in range(0, cut.tile.rows, self._rows):
                left = word(r) if self._rows == 1 else kernel.name_value(f"lefts{r}", both_rows(word(r), word(r + 1)))
                for v in range(vectors):
                    first = packed + k * (vectors * dot.right_size) + v * dot.right_size
                    for i in range(self._rows):
                        start = first + i * (dot.right_size // self._rows) if i else first
                        alone.step(kernel, acc, (r + i, v), left, weights.buffer, start)
        sums = kernel.registers("sums", int32, (cut.tile.rows, vectors), dot.lanes)
        if self._rows > 1:
            self._exchange(acc, sums)
            return sums
        for r in range(cut.tile.rows):
            for v in range(vectors):
                sums[r, v] = acc[r, v] if dot.less is None else acc[r, v] - less[v]
        return sums

    @property
    def _rows(self) -> int:
        """Rows that the processor multiplies at once."""
        return self.cut.dot.rows if self.cut.dot.function is not None else 1

    def _exchange(self, acc: Registers, into: Registers) -> None:
        """Converts sums from rows to the layout of an instruction for two rows, which holds them by two columns, or back."""
        for r in range(0, self.cut.tile.rows if self._rows > 1 else 0, 2):
            for v in range(acc.shape[1]):
                rows = [self.kernel.name_value(f"row{i}", acc[r + i, v]) for i in range(2)]
                into[r, v], into[r + 1, v] = low_halves(*rows), high_halves(*rows)

    @property
    def _products(self) -> Crossed:
        """The writer of products with half of the multiplications."""
        return Crossed(self.kernel, self.cut.dot)

    def _crossed(
        self, rows: list[Value], columns: list[Value], addresses: list[Value], weights: _PanelWeights, own: Own, image: Buffer
    ) -> Registers:
        """The sums of a tile, with half of the multiplications. The initial sums are added last, so that sums stay small."""
        cut, kernel, vectors, lanes = self.cut, self.kernel, len(columns), self.cut.dot.lanes
        acc = kernel.registers("acc", int32, (cut.tile.rows, vectors), lanes)
        for r, row in enumerate(rows):
            for v in range(vectors):
                acc[r, v] = own.taken_off(row, v, lanes)
        with self._taps(vectors, weights.first, image) as (tap, packed), kernel.loop(cut.shape.run // STEP, "k") as k:
            firsts = [address + tap + k * STEP for address in addresses]
            first = kernel.name_value("first", packed + k * (2 * vectors * cut.dot.right_size))
            self._products.step(acc, image, firsts, weights.buffer, first)
        sums = kernel.registers("sums", int32, (cut.tile.rows, vectors), lanes)
        for r in range(cut.tile.rows):
            for v, column in enumerate(columns):
                sums[r, v] = acc[r, v] + self.beginning.vector(lanes, column)
        return sums

    def _own_of_rows(self, image: Buffer, rows: Operand) -> Buffer:
        """The correction terms of the sums of each row: [row, group]."""
        cut, kernel = self.cut, self.kernel
        groups, across = cut.shape.groups, cut.shape.window.out[1]
        into = kernel.memory("own_of_rows", int32, (counted(self.bands.room * across * groups),))
        length = counted(rows * across)
        with kernel.loop(length, "pixel") as pixel, kernel.loop(groups, "group") as group:
            (address,) = self._addresses(group, pixel * 0, pixel, image, 1)
            own = self._products.own_of_row()
            with self._taps(1, pixel * 0, image) as (tap, _):
                own.add(image, address + tap, cut.shape.run)
            into[pixel * groups + group] = own.below_zero
        return into

    def _in_tiles(
        self, n: Value, columns: list[Value], addresses: list[Value], weights: _PanelWeights, image: Buffer | None
    ) -> Registers:
        """The sums of a tile in the processor's tile registers. Rows of the image without a uniform distance are copied for each
        step."""
        cut, kernel, vectors = self.cut, self.kernel, len(columns)
        assert cut.unit is not None
        unit, size = attrs.evolve(cut.unit, wide=vectors), cut.unit.depth
        sums = unit.begin(
            kernel, kernel.registers("sums", int32, (cut.tile.rows, vectors), cut.dot.lanes), (self.beginning, columns)
        )
        apart = self._apart(image)
        rows = kernel.stack("rows", uint8, (cut.tile.rows * size,)) if apart is None else None
        with self._taps(vectors, weights.first, image) as (tap, packed), kernel.loop(cut.shape.run // size, "k") as k:
            firsts = [address + tap + k * size for address in addresses]
            buffer, before = (self.source, (n,)) if image is None else (image, ())
            if rows is not None:
                for r, first in enumerate(firsts):
                    rows[r * size] = buffer.vector(size, *before, first)
                buffer, before, apart = rows, (), size
            at = kernel.name_value("at", firsts[0] if rows is None else as_index(0))
            tops = [at + as_index(i * unit.rows) * (apart or 0) + 0 for i in range(unit.high)]
            lefts = [Left(buffer, (*before, top), apart or 0) for top in tops]
            start = packed + k * (vectors * cut.dot.lanes * size)
            unit.step(kernel, sums, lefts, [Right(weights.buffer, start + v * WIDEST, vectors * WIDEST) for v in range(vectors)])
        return unit.end(kernel, sums)

    def _apart(self, image: Buffer | None) -> int | None:
        """The distance in the image between neighbouring pixels of the result; None if it varies."""
        window, across = self.cut.shape.window, self.cut.shape.across
        wide = window.sizes[1] if image is None else self.frame.wide
        if window.out[1] == 1:
            return window.strides[0] * wide * across
        return window.strides[1] * across if self.cut.rows == 1 else None

    @contextmanager
    def _taps(self, vectors: int, weights: Value, image: Buffer | None) -> Iterator[tuple[Value, Value]]:
        """A block for each piece of the window: the offset of its bytes from the first, and the start of its weights."""
        cut, kernel, window = self.cut, self.kernel, self.cut.shape.window
        wide = window.sizes[1] if image is None else self.frame.wide
        with kernel.loop(window.taps[0], "ky") as ky, kernel.loop(cut.shape.runs, "kx") as kx:
            position = ky * (window.dilations[0] * wide) + kx * window.dilations[1]
            tap = kernel.name_value("tap", position * cut.shape.across)
            each = cut.shape.run * vectors * cut.dot.lanes
            yield tap, kernel.name_value("packed", weights + (ky * cut.shape.runs + kx) * each)

    def _store(self, n: Value, top: Value, base: Value, columns: list[Value], sums: Registers) -> None:
        """Writes the results of the sums."""
        cut, kernel, window = self.cut, self.kernel, self.cut.shape.window
        first = kernel.name_value("to", n * window.pixels + top * window.out[1] + base)
        with kernel.loop(cut.tile.rows, "r") as row:
            for v, column in enumerate(columns):
                with kernel.lanes(cut.stored) as lane:
                    self.writer.store(sums.lane((row, v), lane), (first + row, column + lane))


def _byte_addresses(
    kernel: Kernel, shape: ByteShape, group: Value, top: Value | None, base: Value, wide: Operand, count: int
) -> list[Value]:
    """For each of `count` pixels from `base` on, the address of the first tap of the group's first channel, in rows of `wide`
    pixels. The band begins at row `top`; None for a copy, which holds the band alone."""
    window, across = shape.window, shape.across
    if isinstance(window.out[1], Extent):
        pixel = base if top is None else top * window.out[1] + base
        return _of_any(kernel, shape, group, pixel, wide, count)
    addresses = []
    for r in range(count):
        row, column = (base + r) // window.out[1], (base + r) % window.out[1]
        if window.out[1] == 1:
            row, column = base + r, base * 0
        row = row if top is None else top + row
        position = row * (window.strides[0] * wide) + column * window.strides[1]
        addresses.append(kernel.name_value(f"at{r}", position * across + group * (across // shape.groups)))
    return addresses


def _of_any(kernel: Kernel, shape: ByteShape, group: Value, pixel: Value, wide: Operand, count: int) -> list[Value]:
    """The addresses for images of dynamic width, from a pixel of the result on. Only the first one needs a division: each other
    pixel follows the one before, or begins the next row."""
    window, across = shape.window, shape.across
    out = as_index(window.out[1])
    row, column = kept(kernel, "row", pixel // out), kept(kernel, "column", pixel % out)
    step, line = window.strides[1] * across, as_index(wide) * (window.strides[0] * across)
    back = kept(kernel, "back", line - out * step)
    at = kept(kernel, "at0", row * line + column * step + group * (across // shape.groups))
    addresses = [at]
    for r in range(1, count):
        column = kept(kernel, f"column{r}", column + 1)
        is_next = column >= out
        at = kept(kernel, f"at{r}", at + step + select(is_next, back, 0))
        column = kept(kernel, f"column{r}", select(is_next, 0, column))
        addresses.append(at)
    return addresses
