"""Rows gathered from a table that is stored in the panels of a product; the rows are its columns."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.bodies.packed import DOMAIN, PANEL_ROWS
from partita.accelerators.tvm.kernels.moves.addresses import index_read
from partita.accelerators.tvm.kernels.shared.draft import Draft, GradualPack
from partita.accelerators.tvm.kernels.shared.nest import is_shared_out, nest
from partita.accelerators.tvm.kernels.shared.panel_layout import PanelLayout
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import MOVES


def panel_rows(body: Body, machine: Machine) -> Draft | None:
    """The kernel for the op that gathers rows; None for any other body."""
    node, problem = body.ops[0], Problem.of(body)
    if len(body.ops) != 1 or node.domain != DOMAIN or node.op != PANEL_ROWS:
        return None
    table, indices = (problem.positions[entry] for entry in node.reads)
    width, group, turned = (int(node.attrs[key]) for key in ("width", "group", "turned"))
    words, depth = shape_of(problem.inputs[table])[:: 1 if turned else -1]
    layout = PanelLayout(depth, words, width, group, bool(turned), element_of(problem.inputs[table]))
    count = math.prod(shape_of(problem.inputs[indices]))
    kernel, inputs, (y,) = problem.kernel("panel_rows", {indices: (count,), table: (layout.size,)}, [(count, depth)])
    with nest(kernel, (count,), is_shared_out(count * depth, machine, MOVES)) as (i,):
        row = index_read(kernel, inputs[indices], "row", i, words)
        first = kernel.name_value("first", layout.column(row))
        with kernel.loop(depth // group, "k") as k, kernel.unroll(group, "g") as g:
            y[i, k * group + g] = inputs[table][first + k * (width * group) + g]
        with kernel.loop(depth % group, "e") as e:
            y[i, depth // group * group + e] = inputs[table][first + depth // group * (width * group) + e]
    return problem.draft(kernel, "panel rows", {table: GradualPack(layout)})
