"""Rows gathered from a packed table: only those are unpacked."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.packed import DOMAIN, ROWS
from partita.accelerators.tvm.kernels.language import float32, select
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.numbers import read, write
from partita.accelerators.tvm.kernels.shared.packing import Packing
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.machine.machine import Machine


def packed_rows(body: Body, machine: Machine) -> Draft | None:
    """The kernel for the op that gathers rows; None for any other body. The rows are the columns of the packed matrix."""
    node, problem = body.ops[0], Problem.of(body)
    if len(body.ops) != 1 or node.domain != DOMAIN or node.op != ROWS:
        return None
    indices, matrix, scales, *points = (problem.positions[entry] for entry in node.reads)
    packing, block = Packing.of(node.attrs), int(node.attrs["block"])
    count = math.prod(shape_of(node[0])) // packing.depth
    shapes = {indices: (count,), matrix: (packing.size,)}
    kernel, inputs, (y,) = problem.kernel("packed_rows", shapes, [(count, packing.depth)])
    with kernel.tasks(count, "i", machine.threads_for(count * packing.depth) > 1) as i:
        given = inputs[indices][i]
        row = kernel.name_value("row", select(given < 0, given + packing.columns, given).as_index())
        with kernel.loop(packing.depth, "k") as k:
            number = packing.number(inputs[matrix], row, k)
            if points:
                number = number - inputs[points[0]][k // block, row].cast(float32)
            write(y, (i, k), number * read(inputs[scales], (k // block, row)))
    return problem.draft(kernel, "packed rows")
