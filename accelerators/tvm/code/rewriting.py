"""Top-down rewriting of TVM's statements: parallel loops cut into pieces, and local buffers on the stack."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from partita.accelerators.tvm.machine.library import part

Change = Callable[[Any], Any]
"""Returns the replacement of a statement, whose inner statements are not visited; None keeps the statement and rewrites its inner
statements.
"""


def rewritten(statement: Any, change: Change) -> Any:
    """The rewritten statement; unchanged parts are shared. Linear."""
    changed = change(statement)
    if changed is not None:
        return changed
    tirx = part("tirx")
    if isinstance(statement, tirx.SeqStmt):
        inner = [rewritten(one, change) for one in statement.seq]
        same = all(new.same_as(old) for new, old in zip(inner, statement.seq, strict=True))
        return statement if same else tirx.SeqStmt(inner)
    if isinstance(statement, tirx.IfThenElse):
        other = None if statement.else_case is None else rewritten(statement.else_case, change)
        return tirx.IfThenElse(statement.condition, rewritten(statement.then_case, change), other)
    if not isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return statement
    body = rewritten(statement.body, change)
    return statement if body.same_as(statement.body) else _around(statement, body)


def _around(statement: Any, body: Any) -> Any:
    tirx = part("tirx")
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.While):
        return tirx.While(statement.condition, body)
    rest = statement.thread_binding, statement.annotations, statement.step
    return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body, *rest)


FEW, FEW_THREADS, MANY = 64, 16, 1024
"""Pieces of a loop for up to FEW_THREADS threads, and for more; pool.c has the same numbers."""

_LARGE = 1 << 31


def in_pieces(statement: Any, threads: int) -> Any:
    """The statement with its parallel loops cut into pieces that this many threads take one after another. Parallel loops are not
    nested. Linear.

    A loop of any length becomes FEW pieces of sizes as equal as possible, with empty ones spread evenly among them. So the thread
    pool need not know the length of the loop to give each thread an equal share."""
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


_LARGEST, _ALL = 1 << 15, 1 << 17
"""Maximum bytes of one buffer and of all together; larger ones use the workspace, since the stacks of threads are small."""


def on_stack(statement: Any) -> Any:
    """The statement with its local buffers on the stack, where LLVM keeps them in registers, as far as there is room. Linear.

    Marks set by kernels get lost, because TVM's storage pass rewrites all allocations. Without them, each buffer is allocated
    from and returned to TVM's workspace in every iteration of a parallel loop."""
    tirx, room = part("tirx"), _ALL

    def change(inner: Any) -> Any:
        nonlocal room
        if not isinstance(inner, tirx.AllocBuffer):
            return None
        size = _bytes(inner.buffer)
        if not 0 < size <= min(_LARGEST, room):
            return inner
        room -= size
        return tirx.AllocBuffer(inner.buffer, {"disable_lower_builtin": tirx.const(1, "bool")})

    return rewritten(statement, change)


def _bytes(buffer: Any) -> int:
    """Size in bytes of a local buffer; 0 for other buffers and dynamic ones."""
    if buffer.scope() != "local" or not all(isinstance(size, part("tirx").IntImm) for size in buffer.shape):
        return 0
    number = part("runtime").DataType(str(buffer.dtype))
    return math.prod(int(size) for size in buffer.shape) * (int(number.bits * number.lanes + 7) // 8)
