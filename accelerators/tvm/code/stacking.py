"""Local buffers on the stack, where LLVM keeps them in registers.

The marks that kernels set for it get lost on the way: TVM's storage pass writes all allocations anew. Left alone, each
becomes a call for memory out of TVM's workspace and one to give it back, in every iteration of a parallel loop.
"""

from __future__ import annotations

import math
from typing import Any

from partita.accelerators.tvm.code.rewriting import rewritten
from partita.accelerators.tvm.machine.library import part

LARGEST, ALL = 1 << 15, 1 << 17
"""Bytes of one buffer and of all together: what is beyond comes out of the workspace, for the stacks of threads are small."""


def on_stack(statement: Any) -> Any:
    """The statement with its local buffers on the stack as far as there is room. Linear."""
    tirx, room = part("tirx"), ALL

    def change(inner: Any) -> Any:
        nonlocal room
        if not isinstance(inner, tirx.AllocBuffer):
            return None
        size = _bytes(inner.buffer)
        if not 0 < size <= min(LARGEST, room):
            return inner
        room -= size
        return tirx.AllocBuffer(inner.buffer, {"disable_lower_builtin": tirx.const(1, "bool")})

    return rewritten(statement, change)


def _bytes(buffer: Any) -> int:
    """The size of a local buffer; 0 for others, and where it is not known."""
    if buffer.scope() != "local" or not all(isinstance(size, part("tirx").IntImm) for size in buffer.shape):
        return 0
    number = part("runtime").DataType(str(buffer.dtype))
    return math.prod(int(size) for size in buffer.shape) * (int(number.bits * number.lanes + 7) // 8)
