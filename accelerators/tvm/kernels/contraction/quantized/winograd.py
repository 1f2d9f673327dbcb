"""Convolutions with 3 x 3 windows and fewer products, by Winograd's method; exact, since everything stays in integers.

A square of 2 x 2 results reads 4 x 4 elements of the image. Sixteen sums of those, times sixteen sums of the nine weights, are 16
products per channel instead of 36, and sums of these sums of products are the four results. Along one line, with the elements d,
the weights g and the products m:

    m = (d0 - d2) 2 g0,  (d1 + d2) (g0 + g1 + g2),  (d2 - d1) (g0 - g1 + g2),  (d1 - d3) 2 g2
    m0 + m1 + m2 = 2 (d0 g0 + d1 g1 + d2 g2),  m1 - m2 - m3 = 2 (d1 g0 + d2 g1 + d3 g2)

In both dimensions together the sums of bytes fit 16 bits, and each result is computed times four. A task writes the sums of its
band of the image once, and those of a panel's weights before the band's squares are multiplied by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain

import attrs

from partita.accelerators.tvm.kernels.contraction.quantized.cut import NUMBERS, SQUARE, ByteCut
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, int16, int32
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.loops import start

LINE = 32
"""Elements of a cache line, left free after those of each kind: otherwise the sixteen that are written one after another would
often compete for the same few lines."""

Line = Sequence[Value]
"""Vectors along one line of a square."""


def _of_image(d: Line) -> list[Value]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _of_weights(g: Line) -> list[Value]:
    return [g[0] + g[0], g[0] + g[2] + g[1], g[0] + g[2] - g[1], g[2] + g[2]]


def _of_products(m: Line) -> list[Value]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _down_and_across(kernel: Kernel, numbers: Sequence[Line], along: Callable[[Line], list[Value]]) -> list[list[Value]]:
    """Applies `along` to each column of vectors, then to each row."""
    columns = [along(column) for column in zip(*numbers, strict=True)]
    kind = columns[0][0].type
    half = kernel.registers("half", kind.element, (len(columns), len(columns[0])), kind.lanes)
    for x, column in enumerate(columns):
        for y, number in enumerate(column):
            half[x, y] = number
    return [along([half[x, y] for x in range(len(columns))]) for y in range(len(columns[0]))]


@attrs.frozen(slots=True, eq=False)
class Squares:
    """Writes the products of one band."""

    cut: ByteCut
    kernel: Kernel
    wide: int
    """Columns of the copy of the image."""

    @property
    def apart(self) -> int:
        """Distance in the image's sums from those of one kind to the next."""
        return self.cut.squares * self.cut.shape.across + LINE

    def corner(self, square: Value) -> tuple[Operand, Operand]:
        """The first row in the band and the first column of a square; the last of each overlaps the one before."""
        rows, columns = self.cut.rows, self.cut.shape.window.out[1]
        across = math.ceil(columns / SQUARE)
        return start(square // across, SQUARE, rows), start(square % across, SQUARE, columns)

    def write_image(self, image: Buffer) -> Buffer:
        """The Winograd sums of the image: [number][square][channel]."""
        kernel, across = self.kernel, self.cut.shape.across
        lanes = min(across, 2 * self.cut.dot.lanes)
        into = kernel.memory("squares", int16, (NUMBERS * self.apart,))
        with kernel.loop(self.cut.squares, "square") as square, kernel.loop(math.ceil(across / lanes), "v") as v:
            row, column = self.corner(square)
            channel = kernel.name_value("channel", start(v, lanes, across))
            at = kernel.name_value("from", (row * self.wide + column) * across + channel)
            seen = [[image.vector(lanes, at + (y * self.wide + x) * across) for x in range(4)] for y in range(4)]
            to = kernel.name_value("to", square * across + channel)
            for i, number in enumerate(chain.from_iterable(_down_and_across(kernel, seen, _of_image))):
                into[to + i * self.apart] = number
        return into

    def memory_of_weights(self) -> Buffer:
        """The buffer for the Winograd sums of a panel's weights."""
        return self.kernel.memory("sums_of_weights", int16, (NUMBERS * self._between(self.cut.tile.vectors),))

    def write_weights(self, weight: Buffer, first: Value, vectors: int, into: Buffer) -> None:
        """The Winograd sums of a panel's weights: [number][step][vector][the elements of a step]."""
        kernel, size, steps = self.kernel, self.cut.dot.right_size, self.cut.shape.steps * vectors
        apart = self._between(vectors)
        with kernel.loop(steps, "step") as step:
            taps = [weight.vector(size, first + (tap * steps + step) * size).cast(int16) for tap in range(9)]
            numbers = _down_and_across(kernel, [taps[row : row + 3] for row in (0, 3, 6)], _of_weights)
            for i, number in enumerate(chain.from_iterable(numbers)):
                into[step * size + i * apart] = number

    def multiply(self, image: Buffer, weights: Buffer, group: Value, base: Value, vectors: int) -> Registers:
        """The sums of products of a tile of squares: [number, square, vector]."""
        cut, kernel = self.cut, self.kernel
        products = kernel.registers("products", int32, (NUMBERS, cut.tile.rows, vectors), cut.dot.lanes)
        with kernel.loop(NUMBERS, "number") as number:
            acc = kernel.registers("acc", int32, (cut.tile.rows, vectors), cut.dot.lanes)
            for r in range(cut.tile.rows):
                for v in range(vectors):
                    acc[r, v] = 0
            at = kernel.name_value("at", number * self.apart + base * cut.shape.across + group * cut.shape.reach)
            with kernel.loop(self.cut.shape.steps, "k") as k:
                step = kernel.name_value("step", number * self._between(vectors) + k * (vectors * cut.dot.right_size))
                for r in range(cut.tile.rows):
                    numbers = image.vector(cut.dot.group, at + r * cut.shape.across + k * cut.dot.group)
                    left = kernel.name_value(f"left{r}", numbers.regrouped(int32))
                    for v in range(vectors):
                        cut.dot.step(kernel, acc, (r, v), left, weights, step + v * cut.dot.right_size)
            for r in range(cut.tile.rows):
                for v in range(vectors):
                    products[number, r, v] = acc[r, v]
        return products

    def store(
        self, products: Registers, beginning: Buffer, columns: Sequence[Value], base: Value, first: Value, writer: Writer
    ) -> None:
        """Writes the results of the products; `first` is the position of the band's first result."""
        cut, kernel, lanes = self.cut, self.kernel, self.cut.dot.lanes
        with kernel.loop(cut.tile.rows, "r") as r:
            row, column = self.corner(base + r)
            pixel = kernel.name_value("pixel", first + row * cut.shape.window.out[1] + column)
            for v, begin in enumerate(columns):
                totals = [[products[4 * y + x, r, v] for x in range(4)] for y in range(4)]
                results = _down_and_across(kernel, totals, _of_products)
                sums = kernel.registers("sums", int32, (SQUARE, SQUARE), lanes)
                for i, line in enumerate(results):
                    for j, total in enumerate(line):
                        sums[i, j] = (total >> 2) + beginning.vector(lanes, begin)
                with kernel.loop(SQUARE, "y") as y, kernel.loop(SQUARE, "x") as x, kernel.lanes(cut.stored) as lane:
                    writer.store(sums.lane((y, x), lane), (pixel + y * cut.shape.window.out[1] + x, begin + lane))

    def _between(self, vectors: int) -> int:
        """Distance in a panel's weight sums from those of one kind to the next."""
        return self.cut.shape.steps * vectors * self.cut.dot.right_size + LINE
