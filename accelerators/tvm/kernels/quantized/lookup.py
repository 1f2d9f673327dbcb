"""Bytes looked up in a table."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.language import uint8
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, is_shared_out
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import LOOKUPS

PIECE = 4096
"""Bytes of a task."""

UNROLLED = 8
"""Bytes of an unrolled step."""


def lookup(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Table; None for any other body."""
    node = body.ops[0]
    if len(body.ops) != 1 or node.domain != DOMAIN or node.op != "Table":
        return None
    problem, size = Problem.of(body), math.prod(shape_of(node[0]))
    given, table = (problem.positions[entry] for entry in node.reads)
    kernel, inputs, (result,) = problem.kernel("lookup", {given: (size,), table: (256,)}, [(size,)])
    whole = counted(size)
    pieces, rest = whole // PIECE, whole % PIECE
    tasks = kernel.tasks(pieces, "task", is_shared_out(size, machine, LOOKUPS))
    with tasks as task, kernel.loop(PIECE // UNROLLED, "i") as i, kernel.unroll(UNROLLED, "u") as u:
        at = task * PIECE + i * UNROLLED + u
        result[at] = inputs[table][inputs[given][at].bits_as(uint8).as_index()]
    with kernel.loop(rest, "i") as i:
        result[pieces * PIECE + i] = inputs[table][inputs[given][pieces * PIECE + i].bits_as(uint8).as_index()]
    return problem.draft(kernel, "lookup")
