"""Local buffers on the stack, where LLVM keeps them in registers.

Marks set by kernels get lost, because TVM's storage pass rewrites all allocations. Without them, each buffer is allocated from
and returned to TVM's workspace in every iteration of a parallel loop.
"""

from __future__ import annotations

import math
from typing import Any

from partita.accelerators.tvm.code.rewriting import rewritten
from partita.accelerators.tvm.machine.library import part

LARGEST, ALL = 1 << 15, 1 << 17
"""Maximum bytes of one buffer and of all together; larger ones use the workspace, since the stacks of threads are small."""


def on_stack(statement: Any) -> Any:
    """The statement with its local buffers on the stack, as far as there is room. Linear."""
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
    """Size in bytes of a local buffer; 0 for other buffers and dynamic ones."""
    if buffer.scope() != "local" or not all(isinstance(size, part("tirx").IntImm) for size in buffer.shape):
        return 0
    number = part("runtime").DataType(str(buffer.dtype))
    return math.prod(int(size) for size in buffer.shape) * (int(number.bits * number.lanes + 7) // 8)
