"""The maximum or minimum over any dimensions, on a GPU; `any_axes.py` is the kernel for processors.

TVM's own kernel starts with the smallest finite number, which is the wrong result for rows of -inf only; this one starts with
-inf. It propagates NaN, which TVM's own drops. A generic rule schedules the loops."""

from __future__ import annotations

import math
from typing import Any

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.rows.row_steps import axes_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.choosing import schedule
from partita.graph.node import Node

FLOATS = frozenset(("float16", "float32", "float64"))
"""The floating-point types that it accepts."""


def gpu_extreme(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ReduceMax or ReduceMin of floats with constant axes."""
    node = body.ops[0]
    if len(body.ops) != 1 or len(body.graph.inputs) != 1 or element_of(node[0]) not in FLOATS:
        return None
    shape = shape_of(body.graph.inputs[0][0])
    axes = axes_of(node, len(shape))
    if not axes or math.prod(shape) == 0:
        return None
    scheduled, name = schedule(_function(node, shape, axes), machine)
    return Draft(scheduled, name)


def _function(node: Node, shape: tuple[int, ...], axes: list[int]) -> Any:
    te, dtype = part("te"), element_of(node[0])
    largest, keep = node.op == "ReduceMax", node.attrs.get("keepdims", 1)
    reducer = _extreme_of(dtype, largest)
    given = te.placeholder(shape, dtype, "x0")
    along = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes}

    def at(*indices: Any) -> Any:
        spatial = iter([index for d, index in enumerate(indices) if not (keep and d in along)])
        position = [along[d] if d in along else next(spatial) for d in range(len(shape))]
        return reducer(given(*position), axis=list(along.values()))

    return te.create_prim_func([given, te.compute(shape_of(node[0]), at, name="out")])


def _extreme_of(dtype: str, largest: bool) -> Any:
    """A TVM reducer for the maximum or minimum; NaN wins."""
    te, tirx = part("te"), part("tirx")

    def join(a: Any, b: Any) -> Any:
        better = tirx.Select(a > b if largest else a < b, a, b)
        return tirx.Select(a <= tirx.const(math.inf, dtype), better, a)

    return te.comm_reducer(join, lambda kind: tirx.const(-math.inf if largest else math.inf, kind))
