"""The statements of a kernel."""

from __future__ import annotations

from typing import Literal

import attrs

from partita.accelerators.tvm.kernels.language.buffers import Buffer
from partita.accelerators.tvm.kernels.language.expressions import Call
from partita.accelerators.tvm.kernels.language.values import Value, Variable

LoopKind = Literal["serial", "unroll", "vectorized", "parallel", "blocks", "threads"]
"""The kind of a loop; a GPU launches those of blocks and threads."""


class Statement:
    """A statement, which may contain blocks of statements."""

    __slots__ = ()


@attrs.frozen(slots=True, eq=False)
class Store(Statement):
    """A value written to a buffer: one element, or as many neighbours as the value has lanes."""

    buffer: Buffer
    position: tuple[Value, ...]
    value: Value


@attrs.frozen(slots=True, eq=False)
class Bind(Statement):
    """A name for a value, for the rest of its block."""

    variable: Variable
    value: Value


@attrs.frozen(slots=True, eq=False)
class Allocate(Statement):
    """A buffer of the kernel's own, for the rest of its block."""

    buffer: Buffer


@attrs.frozen(slots=True, eq=False)
class Do(Statement):
    """A call without a result, such as a prefetch."""

    call: Call


@attrs.frozen(slots=True, eq=False)
class Require(Statement):
    """A check: the run fails with this message unless the condition holds."""

    condition: Value
    message: str


@attrs.frozen(slots=True, eq=False)
class Loop(Statement):
    """A block that runs for each integer from 0 to `count` - 1."""

    variable: Variable
    count: Value
    kind: LoopKind
    body: list[Statement]


@attrs.frozen(slots=True, eq=False)
class See(Statement):
    """A block that reads a buffer at an address, which is chosen among several at run time."""

    buffer: Buffer
    address: Value
    body: list[Statement]


@attrs.frozen(slots=True, eq=False)
class When(Statement):
    """A block that runs if a condition holds, and another that runs otherwise."""

    condition: Value
    yes: list[Statement]
    no: list[Statement] = attrs.field(factory=list)
