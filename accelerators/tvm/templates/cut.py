"""How a product is cut into tasks for the threads.

Two loops walk a kernel: blocks of the weights, and tiles of the image (or rows of the left matrix). A task is a range of
each. The image is cut first: into parts that a core's second-level cache holds while one block after another reads them,
and for the threads where the image is larger than the weights."""

from __future__ import annotations

import math

import attrs

from accelerators.tvm.templates.script import Lines, loop

SERIAL = 1_000_000
"""Fewer products than this are one thread's work: it does them in about the time that it takes to wake the others."""

TASKS = 4
"""Tasks for each thread: a thread that is held up is late by little."""

CACHED = 48 * 1024
"""Numbers of the image that are walked for one block after another."""


@attrs.frozen(slots=True)
class Cut:
    """Ranges of blocks and of tiles."""

    blocks: int
    """How many blocks there are."""
    tiles: int
    """How many tiles there are."""
    across: int
    """Into how many ranges the blocks are cut."""
    down: int
    """Into how many ranges the tiles are cut."""
    parallel: bool
    """Is it work for several threads?"""

    def tasks(self, block: str, tile: str, body: Lines, each: int = 1) -> Lines:
        """The loops around the body, `each` times all of it; `part` says which time it is."""
        inner = _ranged(
            block, "across", self.across, self.blocks, _ranged(tile, "down", self.down, self.tiles, body)
        )
        count = self.across * self.down
        decoded = [
            f"across: T.int32 = task % {self.across}",
            f"down: T.int32 = task // {self.across} % {self.down}",
            f"part: T.int32 = task // {count}",
        ]
        return loop(
            "task",
            each * count,
            [*decoded, *inner],
            "parallel" if self.parallel and each * count > 1 else "serial",
        )


def cut_work(
    blocks: int, tiles: int, weights: int, image: int, products: int, threads: int, each: int = 1
) -> Cut:
    """The cut for so many numbers of weights and image, that are read in each of `each` parts; products: of all."""
    parallel = threads > 1 and products >= SERIAL
    wanted = math.ceil(TASKS * threads / each) if parallel else 1
    down = min(tiles, max(1, round(image / CACHED)))
    if image >= weights:
        down = min(tiles, max(down, wanted))
    across = min(blocks, math.ceil(wanted / down))
    return Cut(blocks, tiles, across, min(tiles, max(down, math.ceil(wanted / across))), parallel)


def _ranged(variable: str, piece: str, pieces: int, count: int, body: Lines) -> Lines:
    """A loop over one of several almost equal ranges of `count` numbers."""
    if pieces == 1:
        return loop(variable, count, body)
    first = f"{piece} * {count} // {pieces}"
    end = f"({piece} + 1) * {count} // {pieces}"
    return loop(f"{variable}_", f"{end} - {first}", [f"{variable}: T.int32 = {first} + {variable}_", *body])
