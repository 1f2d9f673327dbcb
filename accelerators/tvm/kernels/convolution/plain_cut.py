"""The split of a convolution of plain tensors into tasks.

The kernel has two loops: over blocks of the weights, and over tiles of the image. A task is a range of each. The image is split
first: into parts that stay in a core's L2 while one block after another reads them, and, if the image is larger than the weights,
for the threads."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.language import Kernel, Value
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import CONVOLUTION_PRODUCTS

CACHED = 48 * 1024
"""Number of elements of the image that stay cached while one block after another reads them."""


@attrs.frozen(slots=True)
class Cut:
    """Ranges of blocks and of tiles."""

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

    def tasks(self, kernel: Kernel, each: int, work: Callable[[Value, Value, Value], None]) -> None:
        """Writes the loops around `work` for each of `each` parts; `work` takes the part, the block and the tile."""
        count = self.across * self.down
        with kernel.tasks(each * count, "task", self.parallel) as task:
            across = kernel.name_value("across", task % self.across)
            down = kernel.name_value("down", task // self.across % self.down)
            part = kernel.name_value("part", task // count)

            def tiles(block: Value) -> None:
                _ranged(kernel, "t", down, self.down, self.tiles, lambda tile: work(part, block, tile))

            _ranged(kernel, "b", across, self.across, self.blocks, tiles)


def cut_work(
    blocks: int, tiles: int, weights: int, image: int, products: int, machine: Machine, each: int = 1
) -> Cut:
    """The cut, given the elements of weights and image in each of `each` parts, and the products of all parts."""
    parallel = machine.threads_for(products, CONVOLUTION_PRODUCTS) > 1
    wanted = math.ceil(machine.tasks_for(products, CONVOLUTION_PRODUCTS) / each)
    down = min(tiles, max(1, round(image / CACHED)))
    if image >= weights:
        down = min(tiles, max(down, wanted))
    across = min(blocks, math.ceil(wanted / down))
    return Cut(blocks, tiles, across, min(tiles, max(down, math.ceil(wanted / across))), parallel)


def _ranged(kernel: Kernel, name: str, piece: Value, pieces: int, count: int, work: Callable[[Value], None]) -> None:
    """A loop over one of several almost equal ranges of `count` indices."""
    if pieces == 1:
        with kernel.loop(count, name) as index:
            work(index)
        return
    first, end = piece * count // pieces, (piece + 1) * count // pieces
    with kernel.loop(end - first, f"{name}_") as step:
        work(kernel.name_value(name, first + step))
