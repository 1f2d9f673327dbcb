"""Convolution on blocked values: [batch, blocks, pixels, lanes].

The kernel is a matrix product: rows are pixels, columns are output channels, each step is one tap of one input channel. A tile
keeps pixels x vectors of channels in registers; a step loads the vectors of weights, and broadcasts the image's element of each
pixel over the lanes. The pixels of a tile need not be neighbours: each has its own address, so rows, strides and short images are
one case.

Work is split into bands of rows and ranges of panels (a panel is the output channels of a tile). If the window reads padding, a
task copies its band with zeros around it, and the copy stays in the core's cache. If the weights of a panel exceed the L1 cache,
the input channels are processed in chunks, and the sums are kept in the task's memory in between. The image may be several values
concatenated along the channels, which are joined only in the copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial

import attrs

from partita.accelerators.tvm.bodies.blocked import DOMAIN, IMAGES
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.amx import Left, Right, TileUnit
from partita.accelerators.tvm.kernels.contraction.convolution.bands import TapRange, all_taps, band_while_running, seen_taps
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_layer import BlockedLayer, make_layer
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_values import (
    BandCopy,
    BandPanel,
    BandTask,
    Fetching,
    JoinedBlocks,
    Reads,
    pixel_addresses,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, float32, minimum, uint16
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, kept, pieces, start
from partita.accelerators.tvm.machine.machine import LINE_LANES, Machine


def blocked_convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with a blocked result; None for any other body."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    if len(roots) != 1:
        return None
    root, problem = roots[0], Problem.of(body)
    source, weight, *more = [problem.position(entry) for entry in (*root.inputs[:2], *root.inputs[IMAGES:])]
    joined = [position for position in more if position is not None]
    if source is None or weight is None or len(joined) < len(more):
        return None
    layer = make_layer(root, machine)
    blocks, lanes = layer.channels.blocks, machine.lanes
    beside = {2: (1, blocks, 1, lanes)} if len(root.inputs) > 2 and root.inputs[2] is not None else {}
    after = make_epilogue(body, root, plus_bias, [(i, i + 1) for i in range(4)], beside)
    if after is None or weight in after.operands or (source in after.operands and layer.plain):
        return None
    packs = {weight: layer.channels.pack}
    if beside and root.inputs[2] is not None:
        packs[problem.positions[root.inputs[2]]] = layer.channels.pack_bias
    shapes = {**after.operands, weight: (layer.channels.weights(layer.window.count),)}
    kernel, inputs, outputs = problem.kernel("blocked_convolution", shapes, [after.results] * len(problem.outputs))
    layer = layer.while_running(kernel, machine)
    images = [inputs[position] for position in (source, *joined)]
    _BlockedConvolution(layer, kernel, images, inputs[weight], Writer(after, inputs, outputs)).write()
    return problem.draft(kernel, "blocked convolution", packs)


class _BlockedConvolution:
    """Writes the kernel of a convolution."""

    def __init__(self, layer: BlockedLayer, kernel: Kernel, images: Sequence[Buffer], weight: Buffer, writer: Writer) -> None:
        source = images[0]
        self.layer = layer
        self.kernel = kernel
        self.source = source
        self.copied = source if len(images) == 1 else JoinedBlocks.of(kernel, images)
        """The source of the copy. Several joined values are always copied."""
        self.weight = weight
        self.writer = writer
        self.name = partial(kept, kernel, is_kept=layer.window.is_any)
        """Names a value that is computed once."""
        channels, lanes = layer.channels, 1 if layer.plain else layer.lanes
        blocks = channels.chunk // lanes if channels.chunks > 1 else channels.whole
        rounds = source.element is float32 and layer.group == 1
        stored_as = weight.element if rounds else source.element
        self.copy = BandCopy(layer.window, layer.bands.rows, blocks, lanes, layer.plain, channels.chunks > 1, stored_as)

    def write(self) -> None:
        """Writes the tasks: images, bands of rows, ranges of panels."""
        bands, layer, kernel = self.layer.bands, self.layer, self.kernel
        count = bands.down * bands.across
        with kernel.tasks(layer.batch * count, "task", bands.parallel) as number:
            n = self.name("n", number // count)
            across = self.name("across", number % bands.across)
            element = float32 if layer.group == 1 else uint16
            image = kernel.memory("image", element, (counted(self.copy.numbers),)) if bands.copies else None
            sums = None
            if layer.channels.chunks > 1:
                sums = kernel.memory("sums", float32, (counted(self._panels * bands.tiles * self._tile),))
            top = self._top(self.name("band", number % count // bands.across))
            with nullcontext() if layer.unit is None else layer.unit.configured(kernel):
                self._chunks(BandTask(n, top, across, image, sums))

    def _top(self, band: Value) -> Value:
        """The first row of a band. For dynamic images, also sets the layer and the copy to the rows and tiles of this band."""
        layer = self.layer
        if not layer.window.is_any:
            rows = layer.bands.rows
            return self.name("top", minimum(band * rows, layer.window.out[0] - rows))
        top, bands = band_while_running(self.kernel, layer.window, layer.bands, band)
        self.layer, self.copy = attrs.evolve(layer, bands=bands), attrs.evolve(self.copy, rows=bands.rows)
        return top

    @property
    def _tile(self) -> int:
        """Number of elements of a register tile."""
        return self.layer.bands.pixels * self.layer.bands.vectors * self.layer.lanes

    @property
    def _panels(self) -> int:
        """Maximum number of panels of a task, including the last, narrower one."""
        across = self.layer.bands.across
        return (math.ceil(self.layer.channels.panels / across) if isinstance(across, int) else self.layer.channels.panels) + 1

    # -- the product ---------------------------------------------------------------------------------------

    def _chunks(self, task: BandTask) -> None:
        bands, channels, kernel = self.layer.bands, self.layer.channels, self.kernel
        full, rest = divmod(channels.blocks, bands.vectors)
        is_cut = not isinstance(bands.across, int) or bands.across > 1
        first: Operand = task.across * full // bands.across if is_cut else 0
        end: Operand = (task.across + 1) * full // bands.across if is_cut else full
        first = self.name("first", first)

        def last(chunk: Operand) -> BandPanel:
            """The last, narrower panel."""
            return BandPanel(kernel.name_value("panel", full), bands.pixels, rest, chunk, end - first, bands.shares)

        def panels(chunk: Operand) -> None:
            if task.image is not None:
                self.copy.write(kernel, self.copied, task.image, task.n, task.top, chunk)
            if full:
                with kernel.loop(end - first, "p_") as step:
                    panel = kernel.name_value("panel", first + step)
                    self._tiles(task, BandPanel(panel, bands.pixels, bands.vectors, chunk, step, bands.shares))
            if rest and not is_cut:
                self._tiles(task, last(chunk))
            elif rest:
                with kernel.when(task.across.equals(bands.across - 1)):
                    self._tiles(task, last(chunk))

        if channels.chunks == 1:
            panels(0)
            return
        with kernel.loop(channels.chunks, "chunk") as chunk:
            panels(chunk)

    def _tiles(self, task: BandTask, panel: BandPanel) -> None:
        """Writes all tiles of the band for a panel. For dynamic images, tiles whose pixels share an address are used if they
        divide the width."""
        bands, kernel, wide = self.layer.bands, self.kernel, self.layer.window.out[1]
        if not bands.sharing:
            self._tiles_anywhere(task, panel)
            return
        whole = counted(bands.rows * wide)
        with kernel.when((as_index(wide) % bands.sharing).equals(0)):
            shared = attrs.evolve(panel, pixels=bands.sharing, shares=True)
            self._tiled(task, shared, pieces(whole, bands.sharing), whole)
        with kernel.otherwise():
            self._tiles_anywhere(task, panel)

    def _tiles_anywhere(self, task: BandTask, panel: BandPanel) -> None:
        """Writes all tiles of the band, at any position in its rows. A band of fewer pixels than a tile, which only dynamic
        images have, is processed pixel by pixel."""
        bands, kernel = self.layer.bands, self.kernel
        whole = counted(bands.rows * self.layer.window.out[1])
        if isinstance(whole, int) or bands.pixels == 1 or bands.shares:
            self._tiled(task, panel, bands.tiles, whole)
            return
        with kernel.when(whole >= bands.pixels):
            self._tiled(task, panel, bands.tiles, whole)
        with kernel.otherwise():
            self._tiled(task, attrs.evolve(panel, pixels=1), whole, whole)

    def _tiled(self, task: BandTask, panel: BandPanel, tiles: Operand, whole: int | Value) -> None:
        """Writes `tiles` tiles that cover the whole band."""
        kernel = self.kernel
        with kernel.loop(tiles, "tile") as tile:
            base = self.name("base", start(tile, panel.pixels, whole))
            addresses = pixel_addresses(kernel, self.layer, self.copy, task.top, base, panel.pixels, panel.shares)
            reads = Reads(addresses, self._seen(task, panel, base))
            acc = kernel.registers("acc", float32, (panel.pixels, panel.vectors), self.layer.lanes)

            def steps() -> None:
                if self.layer.unit is None:
                    self._steps(task, panel, tile, base, reads, acc)
                else:
                    self._tile_steps(self.layer.unit, task, panel, reads, acc)

            def write() -> None:
                self._write(task, panel, base, acc)

            if task.sums is None:
                self._clear(panel, acc)
                steps()
                write()
            else:
                aside = kernel.name_value("kept", (panel.local * tiles + tile) * self._size(panel))
                self._chunk(task, panel, acc, aside, steps, write)

    def _chunk(
        self, task: BandTask, panel: BandPanel, acc: Registers, aside: Value, steps: Callable[[], None], write: Callable[[], None]
    ) -> None:
        """Writes the steps of a chunk: sums continue those of the chunk before, and the last chunk writes the results."""
        kernel, sums, lanes, chunk = self.kernel, task.sums, self.layer.lanes, panel.chunk
        assert sums is not None and isinstance(chunk, Value)
        with kernel.when(chunk.equals(0)):
            self._clear(panel, acc)
        with kernel.otherwise():
            for p, v in self._each(panel):
                acc[p, v] = sums.vector(lanes, aside + (p * panel.vectors + v) * lanes)
        steps()
        with kernel.when(chunk.equals(self.layer.channels.chunks - 1)):
            write()
        with kernel.otherwise():
            for p, v in self._each(panel):
                sums[aside + (p * panel.vectors + v) * lanes] = acc[p, v]

    def _clear(self, panel: BandPanel, acc: Registers) -> None:
        for p, v in self._each(panel):
            acc[p, v] = 0.0

    def _size(self, panel: BandPanel) -> int:
        """Number of elements that are stored between chunks for a tile of the panel."""
        return panel.pixels * self.layer.bands.vectors * self.layer.lanes

    def _each(self, panel: BandPanel) -> list[tuple[int, int]]:
        return [(p, v) for p in range(panel.pixels) for v in range(panel.vectors)]

    def _seen(self, task: BandTask, panel: BandPanel, base: Value) -> tuple[TapRange, TapRange]:
        """The taps that a tile computes: all, or those that meet more than padding."""
        window = self.layer.window
        if not self.layer.shape.skips:
            return all_taps(window)
        return seen_taps(self.kernel, window, task.top * window.out[1] + base, panel.pixels)

    def _steps(self, task: BandTask, panel: BandPanel, tile: Value, base: Value, reads: Reads, acc: Registers) -> None:
        """Writes the loops over input channels and taps."""
        channels, window, kernel, lanes = self.layer.channels, self.layer.window, self.kernel, self.layer.lanes
        width, group, instruction = panel.vectors * lanes, self.layer.group, self.layer.instruction
        taken = channels.taken
        counted = channels.count(panel.number)
        count = channels.chunk // lanes if channels.by_block else counted if taken == 1 else counted // taken
        fetching = Fetching(self.layer, kernel, self.source, self.weight, self.writer)
        with kernel.loop(count, "c") as c, ExitStack() as loops:
            block, lane = self._channel(panel, c)
            blocks = channels.chunk // lanes
            is_by_tap = fetching.lines(blocks * window.count, width) > 0
            if not is_by_tap:
                fetching.weights(panel, tile, c, blocks, width)
            fetching.pixels(task, panel, reads, block)
            fetching.beside(task, panel, base, c, blocks)
            taps = self._taps(loops, panel, reads.taps)
            tap = c * window.count + taps[0] * window.taps[1] + taps[1]
            if is_by_tap:
                fetching.weights(panel, tile, tap, blocks * window.count, width)
            if channels.by_block:
                step = loops.enter_context(kernel.loop(lanes // taken, "l"))  # Unrolled it is no faster, and takes LLVM longer.
                lane = step if taken == 1 else step * taken
                tap = tap * lanes + lane
            elif taken > 1:
                tap = tap * taken
            first = channels.offset(window.count, panel.number, panel.chunk) + tap * width
            first = kernel.name_value("at_weight", first)
            weights = [
                kernel.name_value(f"weights{v}", instruction.right(self.weight, first + v * (lanes * group), lanes))
                for v in range(panel.vectors)
            ]
            for p in range(panel.pixels):
                number = self._number(task, reads.addresses[p], block, lane, taps)
                spread = kernel.name_value(f"number{p}", number.spread(lanes))
                for v, vector in enumerate(weights):
                    acc[p, v] = instruction.add(acc[p, v], spread, vector)

    def _tile_steps(
        self, unit: TileUnit, task: BandTask, panel: BandPanel, reads: Reads, acc: Registers
    ) -> None:
        """The same with the matrix unit (AMX): a step takes a block of channels of one tap. Pixels that are not contiguous are
        first copied side by side."""
        channels, window, kernel, lanes = self.layer.channels, self.layer.window, self.kernel, self.layer.lanes
        unit, width = attrs.evolve(unit, wide=panel.vectors), panel.vectors * lanes
        beside = window.out[1] == 1 and task.image is None
        rows = kernel.stack("rows", uint16, (unit.rows * lanes,))
        sums = unit.begin(kernel)
        with kernel.loop(channels.chunk // lanes, "c") as c, ExitStack() as loops:
            block, _ = self._channel(panel, c)
            taps = self._taps(loops, panel, reads.taps)
            tap = (c * window.count + taps[0] * window.taps[1] + taps[1]) * lanes
            first = kernel.name_value("at_weight", channels.offset(window.count, panel.number, panel.chunk) + tap * width)
            for p, address in enumerate([] if beside else reads.addresses):
                buffer, position = self._position(task, address, block, 0, taps)
                rows[p * lanes] = buffer.vector(lanes, *position).bits_as(uint16)
            left = Left(*self._position(task, reads.addresses[0], block, 0, taps), lanes) if beside else Left(rows, (0,), lanes)
            rights = [Right(self.weight, first + v * (2 * lanes), 2 * width) for v in range(panel.vectors)]
            unit.step(kernel, sums, [left], rights)
        products = unit.end(kernel, sums)
        for p, v in self._each(panel):
            acc[p, v] = acc[p, v] + products[p, v]

    def _taps(self, loops: ExitStack, panel: BandPanel, walked: tuple[TapRange, TapRange]) -> tuple[Operand, Operand]:
        """Opens the loops over rows and columns of the window; returns the tap."""
        window, kernel = self.layer.window, self.kernel
        if window.count == 1:
            return kernel.name_value("kh", 0), kernel.name_value("kw", 0)
        each = self.layer.group if self.layer.plain else 1
        row = loops.enter_context(kernel.loop(walked[0].count, "kh"))
        if self.layer.shape.skips:
            column = loops.enter_context(kernel.loop(walked[1].count, "kw"))
            return walked[0].first + row, walked[1].first + column
        is_small = window.taps[1] <= self._written_out(panel)
        column = loops.enter_context(kernel.loop(window.taps[1] // each, "kw", "unroll" if is_small else "serial"))
        return row, column if each == 1 else column * each

    def _written_out(self, panel: BandPanel) -> int:
        """Maximum number of taps of a row that are unrolled. In rows of dynamic width LLVM recomputes the addresses of a tile's
        pixels in each iteration of that loop; with AVX2 this is a thirtieth of the time."""
        layer = self.layer
        if not layer.channels.by_block:
            return 8
        return 3 if layer.window.is_any and layer.lanes < LINE_LANES and panel.pixels > 1 else 0

    def _channel(self, panel: BandPanel, c: Value) -> tuple[Value, Operand]:
        """The channel that a step reads: its block, and its lane unless that has a loop of its own."""
        channels, kernel, lanes = self.layer.channels, self.kernel, self.layer.lanes
        if channels.by_block:
            first = channels.first_block(panel.number)
            if channels.chunks > 1 and not self.layer.bands.copies:
                first = first + panel.chunk * (channels.chunk // lanes)
            return kernel.name_value("block", first + c), 0
        if self.layer.plain:
            return kernel.name_value("block", channels.first(panel.number) + c), 0
        taken = channels.taken
        logical = kernel.name_value("logical", channels.first(panel.number) + (c if taken == 1 else c * taken))
        channel = kernel.name_value("channel", channels.stands_at(logical))
        return kernel.name_value("block", channel // lanes), kernel.name_value("lane", channel % lanes)

    def _number(
        self, task: BandTask, address: Value, block: Value, lane: Operand, taps: tuple[Operand, Operand]
    ) -> Value:
        """The operand that a step reads of the image for a pixel of the tile, at a tap and a channel."""
        buffer, position = self._position(task, address, block, lane, taps)
        return self.layer.instruction.left(buffer, *position)

    def _position(
        self, task: BandTask, address: Value, block: Value, lane: Operand, taps: tuple[Operand, Operand]
    ) -> tuple[Buffer, tuple[Operand, ...]]:
        """The buffer and position of a channel of a tap, for a pixel of the tile: in the copy, or in the image."""
        window, copy = self.layer.window, self.copy
        wide = copy.wide if task.image is not None else window.sizes[1]
        at = address
        if window.count > 1:
            at = address + taps[0] * (window.dilations[0] * wide) + taps[1] * window.dilations[1]
        if task.image is not None:
            first = (block * (copy.down * copy.wide) + at) * copy.lanes
            return task.image, (first if self.layer.plain else first + lane,)
        if self.layer.plain:
            return self.source, (task.n, block, at // window.sizes[1], at % window.sizes[1])
        return self.source, (task.n, block, at, lane)

    def _write(self, task: BandTask, panel: BandPanel, base: Value, acc: Registers) -> None:
        """Writes the sums of the tile through the epilogue; a long one is emitted once, in a loop over sums in memory."""
        bands, kernel, lanes = self.layer.bands, self.kernel, self.layer.lanes
        first = task.top * self.layer.window.out[1] + base

        def stored(total: Value, pixel: Operand, vector: Operand, lane: Value) -> None:
            block = panel.number * bands.vectors + vector
            self.writer.store(total, (task.n, block, first + pixel, lane))

        if not self.writer.after.is_long:
            with kernel.lanes(lanes) as lane:
                for p, v in self._each(panel):
                    stored(acc.lane((p, v), lane), p, v, lane)
            return
        held = kernel.registers("held", float32, (panel.pixels, panel.vectors), lanes)
        for p, v in self._each(panel):
            held[p, v] = acc[p, v]
        with kernel.loop(panel.pixels, "p") as pixel, kernel.unroll(panel.vectors, "v") as vector, kernel.lanes(lanes) as lane:
            stored(held.lane((pixel, vector), lane), pixel, vector, lane)
