"""What a kernel does, step by step."""

from __future__ import annotations

from typing import Literal

import attrs

from partita.accelerators.tvm.kernels.language.buffers import Buffer
from partita.accelerators.tvm.kernels.language.expressions import Call
from partita.accelerators.tvm.kernels.language.values import Value, Variable

LoopKind = Literal["serial", "unroll", "vectorized", "parallel", "blocks", "threads"]
"""How a loop runs; those of blocks and threads are what a GPU launches."""


class Statement:
    """One step, or a block of steps."""

    __slots__ = ()


@attrs.frozen(slots=True, eq=False)
class Store(Statement):
    """A number, or as many neighbours as the value has lanes, written to a buffer."""

    buffer: Buffer
    position: tuple[Value, ...]
    value: Value


@attrs.frozen(slots=True, eq=False)
class Bind(Statement):
    """A value gets a name, for the rest of its block."""

    variable: Variable
    value: Value


@attrs.frozen(slots=True, eq=False)
class Allocate(Statement):
    """A buffer of the kernel's own, for the rest of its block."""

    buffer: Buffer


@attrs.frozen(slots=True, eq=False)
class Do(Statement):
    """A call that makes nothing, such as a prefetch."""

    call: Call


@attrs.frozen(slots=True, eq=False)
class Require(Statement):
    """The kernel's run fails with this message where the condition does not hold."""

    condition: Value
    message: str


@attrs.frozen(slots=True, eq=False)
class Loop(Statement):
    """A block, once for each number from 0 on."""

    variable: Variable
    count: Value
    kind: LoopKind
    body: list[Statement]


@attrs.frozen(slots=True, eq=False)
class See(Statement):
    """A block that reads a buffer which begins at an address: one of several, chosen while the kernel runs."""

    buffer: Buffer
    address: Value
    body: list[Statement]


@attrs.frozen(slots=True, eq=False)
class When(Statement):
    """A block where a condition holds, and another where it does not."""

    condition: Value
    yes: list[Statement]
    no: list[Statement] = attrs.field(factory=list)
