"""Parallel loops cut into pieces that threads take one after another.

A loop of any length becomes FEW pieces of sizes as equal as possible, with empty ones spread evenly among them. So the thread
pool need not know the length of the loop to give each thread an equal share."""

from __future__ import annotations

from typing import Any

from partita.accelerators.tvm.code.rewriting import rewritten
from partita.accelerators.tvm.machine.library import part

FEW, FEW_THREADS, MANY = 64, 16, 1024
"""Pieces of a loop for up to FEW_THREADS threads, and for more; pool.c has the same numbers."""

_LARGE = 1 << 31


def in_pieces(statement: Any, threads: int) -> Any:
    """The statement with its parallel loops cut for this many threads. Parallel loops are not nested.

    Linear.
    """
    tirx, count = part("tirx"), FEW if threads <= FEW_THREADS else MANY

    def change(inner: Any) -> Any:
        cut = isinstance(inner, tirx.For) and inner.kind == tirx.ForKind.PARALLEL and inner.step is None
        return _cut(inner, count) if cut else None

    return rewritten(statement, change)


def _cut(loop: Any, count: int) -> Any:
    """The loop over pieces around the loop over the iterations of one piece."""
    tirx, piece = part("tirx"), part("tirx").Var("piece", "int32")
    kind, extent = str(loop.loop_var.ty.dtype), loop.extent
    small = isinstance(extent, tirx.IntImm) and extent.value * count < _LARGE

    def start(number: Any) -> Any:
        scaled = number * extent if small else tirx.Cast("int64", number) * tirx.Cast("int64", extent)
        return loop.min + tirx.Cast(kind, scaled >> (count.bit_length() - 1))

    begin = start(piece)
    inner = tirx.For(loop.loop_var, begin, start(piece + 1) - begin, tirx.ForKind.SERIAL, loop.body)
    return tirx.For(piece, 0, count, tirx.ForKind.PARALLEL, inner)
