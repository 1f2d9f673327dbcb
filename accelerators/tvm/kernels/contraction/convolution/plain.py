"""Convolutions of plain values with constant weights: the kernel, the padded copy of its input, how its work is cut into tasks,
and the orders in which its tiles cover the output pixels.

Each dimension of the copy is split into phases: position i of phase q is pixel i·stride + q of the padded image. For the output
at position i, a tap of the filter then reads position i + a constant of one phase."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.convolution.layer import draft_layer
from partita.accelerators.tvm.kernels.contraction.panels import Tile, tiles
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, all_of, float32
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import start, starts
from partita.accelerators.tvm.kernels.shared.window import Convolved, Sizes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import CONVOLUTION_PRODUCTS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.types import Array

CACHED = 48 * 1024
"""Number of elements of the image that stay cached while one block after another reads them."""


@attrs.frozen(slots=True)
class Image(Convolved):
    """A convolution of images of any rank, and the padded copy that it reads."""

    @property
    def phases(self) -> Sizes:
        """Number of phases that the taps read, in each dimension."""
        window = self.window
        return tuple(max(t * d % s for t in range(k)) + 1 for k, d, s in zip(window.taps, window.dilations, window.strides))

    @property
    def copied(self) -> Sizes:
        """Number of positions of a phase, in each dimension."""
        window = self.window
        sizes = zip(window.out, window.taps, window.dilations, window.strides)
        return tuple(o + (k - 1) * d // s for o, k, d, s in sizes)

    @property
    def steps(self) -> Sizes:
        """The distance in the copy between neighbouring positions, in each dimension."""
        return tuple(math.prod(self.copied[i + 1 :]) for i in range(len(self.copied)))

    @property
    def plane(self) -> int:
        """Number of elements of one channel of the copy."""
        return math.prod(self.phases) * math.prod(self.copied)

    def tap(self, indices: Sequence[Operand]) -> Operand:
        """The offset in the copy of a tap from the output's own position."""
        phase: Operand = 0
        offset: Operand = 0
        window = self.window
        for t, d, s, count, step in zip(indices, window.dilations, window.strides, self.phases, self.steps, strict=True):
            phase = phase * count + t * d % s
            offset = offset + t * d // s * step
        return phase * math.prod(self.copied) + offset

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        """Fills the copy from the source [batch, channels, pixels]."""
        first = self.copied[0] if len(self.window.sizes) > 1 else 1
        is_large = machine.threads_for(self.batch * self.channels * self.plane) > 1
        with kernel.tasks(self.batch * self.channels * first, "part", is_large) as part:
            channel = kernel.name_value("channel", part // first)
            outermost = [kernel.name_value("p0", part % first)] if len(self.window.sizes) > 1 else []
            for phases in itertools.product(*map(range, self.phases)):
                with ExitStack() as loops:
                    inner = range(1, len(self.window.sizes) - 1)
                    positions = outermost + [loops.enter_context(kernel.loop(self.copied[i], f"p{i}")) for i in inner]
                    self._row(kernel, source, into, channel, positions, phases)

    def _row(
        self, kernel: Kernel, source: Buffer, into: Buffer, channel: Value, positions: Sequence[Value], phases: Sizes
    ) -> None:
        """Writes one row of one phase: zeros, pixels, zeros."""
        window = self.window
        start = (channel * math.prod(self.phases) + _flat(phases, self.phases)) * math.prod(self.copied)
        for position, step in zip(positions, self.steps):
            start = start + position * step
        pixels = [
            position * stride + (phase - before)
            for position, stride, phase, before in zip(positions, window.strides, phases, window.before)
        ]
        size, stride, width, shift = window.sizes[-1], window.strides[-1], self.copied[-1], phases[-1] - window.before[-1]
        low = min(max(math.ceil(-shift / stride), 0), width)
        high = max(min(math.ceil((size - shift) / stride), width), low)
        row: Operand = 0
        for index, extent in zip(pixels, window.sizes):
            row = row * extent + index

        def inside() -> None:
            _fill(kernel, into, start, low)
            with kernel.loop(high - low, "e") as e:
                position = row * size + e * stride + (low * stride + shift)
                into[start + low + e] = read(source, (channel // self.channels, channel % self.channels, position))
            _fill(kernel, into, start + high, width - high)

        tests = [test for index, extent in zip(pixels, window.sizes) for test in (index >= 0, index < extent)]
        if not tests:
            inside()
            return
        with kernel.when(all_of(tests)):
            inside()
        with kernel.otherwise():
            _fill(kernel, into, start, width)


def _fill(kernel: Kernel, into: Buffer, start: Operand, count: int) -> None:
    with kernel.loop(count, "z") as z:
        into[start + z] = 0.0


def _flat(indices: Sizes, sizes: Sizes) -> int:
    number = 0
    for index, size in zip(indices, sizes):
        number = number * size + index
    return number


@attrs.frozen(slots=True)
class WorkCut:
    """A division of the blocks and tiles into ranges: one task for each pair of ranges in each part."""

    blocks: int
    """Number of blocks."""
    tiles: int
    """Number of tiles."""
    across: int
    """Number of ranges of blocks."""
    down: int
    """Number of ranges of tiles."""
    parallel: bool
    """True if several threads share the work."""

    def tasks(self, kernel: Kernel, parts: int, work: Callable[[Value, Value, Value], None]) -> None:
        """Writes the loops over parts, blocks and tiles around `work`, which takes one of each."""
        count = self.across * self.down
        with kernel.tasks(parts * count, "task", self.parallel) as task:
            across = kernel.name_value("across", task % self.across)
            down = kernel.name_value("down", task // self.across % self.down)
            part = kernel.name_value("part", task // count)

            def tiles(block: Value) -> None:
                _ranged(kernel, "t", down, self.down, self.tiles, lambda tile: work(part, block, tile))

            _ranged(kernel, "b", across, self.across, self.blocks, tiles)


def cut_work(
    blocks: int, tiles: int, weights: int, image: int, products: int, machine: Machine, parts: int = 1
) -> WorkCut:
    """The division, for the elements of weights and image in one part, and the products in all parts."""
    parallel = machine.threads_for(products, CONVOLUTION_PRODUCTS) > 1
    tasks = math.ceil(machine.tasks_for(products, CONVOLUTION_PRODUCTS) / parts)
    down = min(tiles, max(1, round(image / CACHED)))
    if image >= weights:
        down = min(tiles, max(down, tasks))
    across = min(blocks, math.ceil(tasks / down))
    return WorkCut(blocks, tiles, across, min(tiles, max(down, math.ceil(tasks / across))), parallel)


def _ranged(kernel: Kernel, name: str, piece: Value, pieces: int, count: int, work: Callable[[Value], None]) -> None:
    """Writes a loop over one of several almost equal ranges of `count` indices."""
    if pieces == 1:
        with kernel.loop(count, name) as index:
            work(index)
        return
    first, end = piece * count // pieces, (piece + 1) * count // pieces
    with kernel.loop(end - first, f"{name}_") as step:
        work(kernel.name_value(name, first + step))


ORIGIN: Operand = 0
"""The first pixel."""

Store = Callable[[Value, Value, Operand], None]
"""Writes an output. Takes the sum, its row in the tile, and its pixel."""


@attrs.frozen(slots=True)
class Walk:
    """Tiles along rows of pixels that are contiguous in the output."""

    image: Image
    """The convolution."""
    tile: int
    """Number of columns of a tile."""
    rows: int
    """Number of rows."""
    width: int
    """Number of pixels of a row."""

    writing = 2
    """Estimated cycles to write a vector of sums."""

    @property
    def along(self) -> int:
        """Number of tiles of a row."""
        return math.ceil(self.width / self.tile)

    @property
    def count(self) -> int:
        """Number of tiles of all pixels."""
        return self.rows * self.along

    @property
    def numbers(self) -> int:
        """Number of elements of the image's copy."""
        return self.image.batch * self.image.channels * self.image.plane

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        """Writes the code that copies the image."""
        self.image.copy(kernel, source, into, machine)

    def read(self, batch: Operand, channel: Operand, tile: Value, taps: Sequence[Operand]) -> Operand:
        """The position of the tile's first column in the copy, for a tap of a channel."""
        image = self.image
        return (batch * image.channels + channel) * image.plane + self._position(tile) + image.tap(taps)

    def write(self, kernel: Kernel, tile: Tile, acc: Registers, index: Value, store: Store) -> None:
        """Writes all sums of a tile."""
        with tile.each(kernel) as (r, v), kernel.lanes(tile.lanes) as lane:
            store(acc.lane((r, v), lane), r, self._row(index) * self.width + self._column(index) + v * tile.lanes + lane)

    def _row(self, tile: Value) -> Operand:
        return tile // self.along if self.rows > 1 else 0

    def _column(self, tile: Value) -> Operand:
        return start(tile % self.along, self.tile, self.width)

    def _position(self, tile: Value) -> Operand:
        """The position of the tile's first pixel in the copy."""
        position = self._column(tile)
        if self.rows == 1:
            return position
        rest = self._row(tile)
        for size, step in list(zip(self.image.window.out, self.image.steps, strict=True))[-2::-1]:
            position = position + rest % size * step
            rest = rest // size
        return position


@attrs.frozen(slots=True)
class Together(Walk):
    """Tiles along all pixels as one row, for filters of one tap: the copy is [batch, tile, channel, column of the tile]."""

    @property
    def numbers(self) -> int:
        return self.image.batch * self.count * self.image.channels * self.tile

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        image = self.image
        with kernel.tasks(image.batch * self.count, "part", machine.threads_for(self.numbers) > 1) as part:
            tile = kernel.name_value("tile", part % self.count)
            with kernel.loop(image.channels, "c") as c, kernel.loop(self.tile, "e") as e:
                target = (part * image.channels + c) * self.tile + e
                into[target] = read(source, (part // self.count, c, self._pixel(self._column(tile) + e)))

    def _pixel(self, output: Operand) -> Operand:
        """The pixel of the image that an output pixel reads."""
        image = self.image
        if image.window.out == image.window.sizes:
            return output
        rest, position, before = output, ORIGIN, 1
        for i in reversed(range(len(image.window.out))):
            index = rest % image.window.out[i] if i else rest
            position = position + index * (image.window.strides[i] * before)
            rest, before = rest // image.window.out[i], before * image.window.sizes[i]
        return position

    def read(self, batch: Operand, channel: Operand, tile: Value, taps: Sequence[Operand]) -> Operand:
        return ((batch * self.count + tile) * self.image.channels + channel) * self.tile


@attrs.frozen(slots=True)
class Throughout(Walk):
    """Tiles along the whole padded copy; columns that are not outputs are computed and dropped."""

    writing = 24

    @property
    def numbers(self) -> int:
        return Walk.numbers.fget(self) + self.tile  # type: ignore[attr-defined]

    def write(self, kernel: Kernel, tile: Tile, acc: Registers, index: Value, store: Store) -> None:
        image, sums = self.image, tile.spilled(kernel, acc)
        with kernel.loop(tile.width, "e") as e:
            rest = kernel.name_value("at", self._position(index) + e)
            tests: list[Value] = []
            output, before = ORIGIN, 1
            for i in reversed(range(len(image.window.out))):
                position = rest % image.copied[i] if i else rest
                tests.append(position < image.window.out[i])
                output = output + position * before
                rest, before = rest // image.copied[i], before * image.window.out[i]
            with kernel.when(all_of(tests)), kernel.loop(tile.rows, "r") as r:
                store(sums.buffer[r * tile.width + e], r, output)


def walks(image: Image, tile: int) -> list[Walk]:
    """The walks for tiles of `tile` columns."""
    listed: list[Walk] = []
    if image.copied[1:] == image.window.out[1:]:
        if tile <= image.window.pixels:
            listed.append((Together if image.window.is_single else Walk)(image, tile, 1, image.window.pixels))
    elif tile <= image.window.out[-1]:
        listed.append(Walk(image, tile, image.window.pixels // image.window.out[-1], image.window.out[-1]))
    if not listed or image.window.count > 1:
        last = sum((o - 1) * step for o, step in zip(image.window.out, image.steps, strict=True)) + 1
        listed.append(Throughout(image, tile, 1, math.ceil(last / tile) * tile))
    return listed


UNROLLED = 32
"""Maximum number of unrolled taps. A larger filter has loops, of which at most the last one is unrolled."""


def convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with constant weights; None for any other body."""

    def cut(shape: Convolved) -> _WalkedConvolution | None:
        image = Image(shape.batch, shape.window, shape.channels, shape.outs, shape.groups)
        return None if image.window.pixels < machine.lanes else _WalkedConvolution(image, *_best(image, machine), machine)

    return draft_layer(body, "convolution", cut)


def _best(image: Image, machine: Machine) -> tuple[Tile, Walk]:
    """The tile and the walk with the fewest estimated cycles."""
    choices = [(t, walk) for t in tiles(machine) if t.rows <= image.own for walk in walks(image, t.width)]

    def cost(choice: tuple[Tile, Walk]) -> float:
        tile, walk = choice
        return (
            math.ceil(image.own / tile.rows)
            * walk.count
            * (image.depth * tile.cycles + tile.rows * tile.vectors * walk.writing)
        )

    return choose("tile", choices, cost)


class _WalkedConvolution:
    """A convolution, cut into tiles and tasks."""

    def __init__(self, image: Image, tile: Tile, walk: Walk, machine: Machine) -> None:
        self.image = image
        self.machine = machine
        self.tile = tile
        self.walk = walk
        self.blocks = starts(image.own, tile.rows)
        products = image.batch * image.groups * image.own * image.window.pixels * image.depth
        parts = image.groups if isinstance(image.batch, Extent) else image.batch * image.groups
        sizes = image.own * image.depth, image.inner * walk.count * tile.width
        self.cut = cut_work(len(self.blocks), walk.count, *sizes, products, machine, parts)

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""
        return self.image.groups * len(self.blocks) * self.image.depth * self.tile.rows

    def pack(self, array: Array) -> Array:
        """The weights [group, block, input channel, tap, output channel]."""
        grouped = array.reshape(self.image.groups, self.image.own, self.image.depth)
        blocks = [grouped[:, at : at + self.tile.rows].transpose(0, 2, 1) for at in self.blocks]
        result = new_weight((len(grouped), len(blocks), *blocks[0].shape[1:]), array.dtype)
        return np.stack(blocks, 1, out=result).reshape(-1)

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Writes the copy, then the tasks: blocks of channels, tiles of pixels."""
        image, tile, walk = self.image, self.tile, self.walk
        copy = kernel.memory("image", float32, (walk.numbers,))
        walk.copy(kernel, source, copy, self.machine)

        def work(part: Value, block: Value, index: Value) -> None:
            acc, group = tile.sums(kernel), part % image.groups
            with kernel.loop(image.inner, "c") as c, ExitStack() as loops:
                taps = [
                    loops.enter_context(kernel.loop(size, f"k{i}", "unroll" if self._is_unrolled(i) else "serial"))
                    for i, size in enumerate(image.window.taps)
                ]
                first = (group * len(self.blocks) + block) * image.depth + c * image.window.count + self._tap(taps)
                at = walk.read(part // image.groups, group * image.inner + c, index, taps)
                rows = first * tile.rows
                tile.step(kernel, acc, lambda r: read(weight, (rows + r,)), lambda v: copy.vector(tile.lanes, at + v))

            def store(total: Value, r: Value, pixel: Operand) -> None:
                out = group * image.own + start(block, tile.rows, image.own) + r
                writer.store(total, (part // image.groups, out, pixel))

            walk.write(kernel, tile, acc, index, store)

        self.cut.tasks(kernel, image.batch * image.groups, work)

    def _tap(self, taps: list[Value]) -> Operand:
        """The index of the tap."""
        number: Operand = 0
        for tap, size in zip(taps, self.image.window.taps, strict=True):
            number = number * size + tap
        return number

    def _is_unrolled(self, dimension: int) -> bool:
        """True if the taps along this dimension are unrolled, which they are if there are few."""
        sizes = self.image.window.taps
        return self.image.window.count <= UNROLLED or (dimension == len(sizes) - 1 and sizes[-1] <= UNROLLED)
