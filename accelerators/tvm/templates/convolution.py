"""Direct convolution on plain NCHW tensors, of any rank, stride, padding, dilation and group count.

A first stage copies the image (`image.py`), so that each tap of the filter reads neighbours for neighbouring outputs.
The second is then a matrix product: rows are output channels, columns are output places, each step is one tap of one
input channel. Tiles of channels x places keep their sums in registers, and write their results once, through the epilogue.

Columns run along the rows of the image, or, where those are short, through the whole padded copy, of which some places
are no outputs. A filter of one tap reads a copy in which the columns of a tile stand together (`walk.py`)."""

from __future__ import annotations

import math

import numpy as np

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Array, Draft, template
from accelerators.tvm.templates.choice import choose
from accelerators.tvm.templates.cut import cut_work
from accelerators.tvm.templates.epilogue import Epilogue, input_name, make_epilogue, output_name, plus_bias
from accelerators.tvm.templates.image import Image, make_image
from accelerators.tvm.templates.script import Lines, kernel, loop
from accelerators.tvm.templates.tile import Tile, start, starts, tiles
from accelerators.tvm.templates.walk import Walk, walks

UNROLLED = 32
"""Filters of more taps than this keep loops over all but their last dimension."""


@template("cpu", ops=frozenset({"Conv"}))
def convolution(body: Body, machine: Machine) -> Draft | None:
    """A convolution with constant weights."""
    roots = [node for node in body.ops if node.op == "Conv"]
    image = make_image(roots[0]) if len(roots) == 1 else None
    if image is None or image.places < machine.lanes:
        return None
    root, rank = roots[0], len(image.sizes)
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    source, weight = (positions.get(entry) if entry is not None else None for entry in root.inputs[:2])
    if source is None or weight is None or source >= body.values or weight < body.values:
        return None
    biased = len(root.inputs) > 2 and root.inputs[2] is not None
    beside = {2: (image.outs, *(1,) * rank)} if biased else {}
    after = make_epilogue(body, root, plus_bias, [(0, 1), (1, 2), (2, 2 + rank)], beside)
    whole = (image.batch, image.channels, math.prod(image.sizes))
    if after is None or weight in after.operands or after.operands.get(source, whole) != whole:
        return None
    layer = _Layer(image, after, *_best(image, machine), machine.threads)
    shapes = {**after.operands, source: whole, weight: (layer.weights,)}
    params = [(input_name(i), shapes[i], "float32") for i in range(len(body.graph.inputs))]
    results = [after.results] * len(body.graph.outputs)
    params += [(output_name(i), shape, "float32") for i, shape in enumerate(results)]
    function = kernel(params, layer.text(input_name(source), input_name(weight)), after.functions)
    return Draft(function, "convolution", {weight: layer.pack}, shapes, results)


def _best(image: Image, machine: Machine) -> tuple[Tile, Walk]:
    """The tile and the walk that take the fewest cycles for all of it."""
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
    """The text of one convolution."""

    def __init__(self, image: Image, after: Epilogue, tile: Tile, walk: Walk, threads: int) -> None:
        self.image = image
        self.after = after
        self.tile = tile
        self.walk = walk
        self.inner = image.channels // image.groups
        self.outs = image.outs // image.groups
        self.blocks = starts(self.outs, tile.rows)
        parts = image.batch * image.groups
        products = parts * self.outs * image.places * image.depth
        sizes = self.outs * image.depth, self.inner * walk.count * tile.width
        self.cut = cut_work(len(self.blocks), walk.count, *sizes, products, threads, parts)

    @property
    def weights(self) -> int:
        """How many numbers the packed weights are."""
        return self.image.groups * len(self.blocks) * self.image.depth * self.tile.rows

    def pack(self, array: Array) -> Array:
        """The weights [group, block, input channel, tap, output channel]."""
        grouped = array.reshape(self.image.groups, self.outs, self.image.depth)
        blocks = [grouped[:, at : at + self.tile.rows].transpose(0, 2, 1) for at in self.blocks]
        return np.stack(blocks, 1).reshape(-1)

    def text(self, source: str, weight: str) -> Lines:
        """The copy, then the tasks: blocks of channels, tiles of places."""
        image, tile = self.image, self.tile
        group = f"part % {image.groups}"
        block = f"(({group}) * {len(self.blocks)} + b) * {image.depth}"
        number = f"{weight}[({block} + c * {image.taps} + {self._tap()}) * {tile.rows} + r]"
        channel = f"({group}) * {self.inner} + c"
        steps = self._taps(
            tile.step(
                number, "image", self.walk.read(f"part // {image.groups}", channel, "t", self._variables())
            )
        )
        work = [*tile.buffers, *tile.clear(), *loop("c", self.inner, steps)]
        outs = f"({group}) * {self.outs} + {start('b', tile.rows, self.outs)} + r"
        work += self.walk.write(
            tile, "t", lambda total, place: self.after.store(total, [f"part // {image.groups}", outs, place])
        )
        buffer = f'image = T.alloc_buffer(({self.walk.numbers},), "float32")'
        return [buffer, *self.walk.copy(source), *self.cut.tasks("b", "t", work, image.batch * image.groups)]

    def _variables(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.image.filter))]

    def _tap(self) -> str:
        """The number of the tap."""
        made = "0"
        for variable, size in zip(self._variables(), self.image.filter, strict=True):
            made = f"({made} * {size} + {variable})"
        return made

    def _taps(self, body: Lines) -> Lines:
        """Loops over the taps; few are unrolled."""
        sizes = self.image.filter
        for i in reversed(range(len(sizes))):
            unrolled = self.image.taps <= UNROLLED or (i == len(sizes) - 1 and sizes[i] <= UNROLLED)
            body = loop(f"k{i}", sizes[i], body, "unroll" if unrolled else "serial")
        return body
