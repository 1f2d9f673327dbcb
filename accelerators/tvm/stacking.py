"""Local buffers on the stack, where LLVM keeps them in registers.

What templates say of it gets lost on the way: TVM's storage pass writes all allocations anew. Left alone, each becomes a call for
memory out of TVM's workspace and one to give it back, in every iteration of a parallel loop."""

from __future__ import annotations

import math
from typing import Any

from accelerators.tvm.library import part
from accelerators.tvm.statements import rewritten

LARGEST = 1 << 15
"""A buffer of more bytes comes out of the workspace: the stacks of threads are small."""


def on_stack(statement: Any) -> Any:
    """The statement with its local buffers on the stack. Linear."""
    allocation = part("tirx").AllocBuffer
    return rewritten(statement, lambda inner: _stacked(inner) if isinstance(inner, allocation) else None)


def _stacked(statement: Any) -> Any:
    tirx, buffer = part("tirx"), statement.buffer
    known = all(isinstance(size, tirx.IntImm) for size in buffer.shape)
    if buffer.scope() != "local" or not known or math.prod(int(size) for size in buffer.shape) * _bytes(buffer.dtype) > LARGEST:
        return statement
    return tirx.AllocBuffer(buffer, {"disable_lower_builtin": tirx.const(1, "bool")})


def _bytes(dtype: Any) -> int:
    made = part("runtime").DataType(str(dtype))
    return int(made.bits * made.lanes + 7) // 8
