"""Direct convolution on plain NCHW tensors, of any rank, stride, padding, dilation and group count.

A first stage copies the image (`image.py`), so that each tap of the filter reads neighbours for neighbouring outputs. The second
is then a matrix product: rows are output channels, columns are output pixels, each step is one tap of one input channel. Tiles of
channels x pixels keep their sums in registers, and write their results once, through the epilogue.

Columns run along the rows of the image, or, if those are short, through the whole padded copy, of which some pixels are no
outputs. A filter of one tap reads a copy in which the columns of a tile are contiguous (`walk.py`)."""

from __future__ import annotations

import math
from contextlib import ExitStack

import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.convolution.image import Image
from partita.accelerators.tvm.kernels.convolution.layer_draft import draft_layer
from partita.accelerators.tvm.kernels.convolution.plain_cut import cut_work
from partita.accelerators.tvm.kernels.convolution.walk import Walk, walks
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, float32
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import start, starts
from partita.accelerators.tvm.kernels.shared.panels import Tile, tiles
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.types import Array

UNROLLED = 32
"""Maximum number of unrolled taps; a filter of more has loops over all dimensions but the last."""


def convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with constant weights; None for any other body."""

    def cut(image: Image) -> _Layer | None:
        return None if image.pixels < machine.lanes else _Layer(image, *_best(image, machine), machine)

    return draft_layer(body, "convolution", cut)


def _best(image: Image, machine: Machine) -> tuple[Tile, Walk]:
    """The tile and the walk with the fewest estimated cycles."""
    outs = image.outs // image.groups
    choices = [(t, walk) for t in tiles(machine) if t.rows <= outs for walk in walks(image, t.width)]

    def cost(choice: tuple[Tile, Walk]) -> float:
        tile, walk = choice
        return (
            math.ceil(outs / tile.rows)
            * walk.count
            * (image.depth * tile.cycles + tile.rows * tile.vectors * walk.writing)
        )

    return choose("tile", choices, cost)


class _Layer:
    """A convolution, cut into tiles and tasks."""

    def __init__(self, image: Image, tile: Tile, walk: Walk, machine: Machine) -> None:
        self.image = image
        self.machine = machine
        self.tile = tile
        self.walk = walk
        self.inner = image.channels // image.groups
        self.outs = image.outs // image.groups
        self.blocks = starts(self.outs, tile.rows)
        products = image.batch * image.groups * self.outs * image.pixels * image.depth
        parts = image.groups if isinstance(image.batch, Extent) else image.batch * image.groups
        sizes = self.outs * image.depth, self.inner * walk.count * tile.width
        self.cut = cut_work(len(self.blocks), walk.count, *sizes, products, machine, parts)

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""
        return self.image.groups * len(self.blocks) * self.image.depth * self.tile.rows

    def pack(self, array: Array) -> Array:
        """The weights [group, block, input channel, tap, output channel]."""
        grouped = array.reshape(self.image.groups, self.outs, self.image.depth)
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
            with kernel.loop(self.inner, "c") as c, ExitStack() as loops:
                taps = [
                    loops.enter_context(kernel.loop(size, f"k{i}", "unroll" if self._is_unrolled(i) else "serial"))
                    for i, size in enumerate(image.filter)
                ]
                first = (group * len(self.blocks) + block) * image.depth + c * image.taps + self._tap(taps)
                at = walk.read(part // image.groups, group * self.inner + c, index, taps)
                rows = first * tile.rows
                tile.step(kernel, acc, lambda r: read(weight, (rows + r,)), lambda v: copy.vector(tile.lanes, at + v))

            def store(total: Value, r: Value, pixel: Operand) -> None:
                out = group * self.outs + start(block, tile.rows, self.outs) + r
                writer.store(total, (part // image.groups, out, pixel))

            walk.write(kernel, tile, acc, index, store)

        self.cut.tasks(kernel, image.batch * image.groups, work)

    def _tap(self, taps: list[Value]) -> Operand:
        """The index of the tap."""
        number: Operand = 0
        for tap, size in zip(taps, self.image.filter, strict=True):
            number = number * size + tap
        return number

    def _is_unrolled(self, dimension: int) -> bool:
        """True if the taps along this dimension are unrolled, which they are if there are few."""
        sizes = self.image.filter
        return self.image.taps <= UNROLLED or (dimension == len(sizes) - 1 and sizes[-1] <= UNROLLED)
