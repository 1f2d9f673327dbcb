"""MaxPool of floats on a GPU; `plain_pool.py` is the kernel for processors.

The largest number begins at minus infinity, which also stands outside of the input, and NaN wins. A generic rule schedules
the loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.gpu_reducers import FLOATS, extreme_of
from accelerators.tvm.kernels.window.plain_pool import Sliding, slidings
from accelerators.tvm.machine.library import part
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.schedules.choosing import schedule


def gpu_maxpool(body: Body, machine: Machine) -> Draft | None:
    """MaxPool of floats that does not return positions."""
    node = body.ops[0]
    if len(body.ops) != 1 or len(node.output_names) != 1 or element_of(node[0]) not in FLOATS:
        return None
    shape, wanted = shape_of(body.graph.inputs[0][0]), shape_of(node[0])
    if len(shape) < 3 or 0 in (*shape, *wanted):
        return None
    scheduled, name = schedule(_function(shape, wanted, element_of(node[0]), slidings(node, shape, wanted)), machine)
    return Draft(scheduled, name)


def _function(shape: Sequence[int], wanted: Sequence[int], dtype: str, windows: Sequence[Sliding]) -> Any:
    te, tirx = part("te"), part("tirx")
    lowest = tirx.const(-math.inf, dtype)
    reducer = extreme_of(dtype, largest=True)
    given = te.placeholder(tuple(shape), dtype, "x0")
    along = [te.reduce_axis((0, d.size), f"k{i}") for i, d in enumerate(windows)]

    def inside(n: Any, c: Any, *position: Any) -> Any:
        inner = [i - d.before for i, d in zip(position, windows, strict=True)]
        edges = [edge for i, d in zip(inner, windows, strict=True) for edge in (i >= 0, i < d.own)]
        return tirx.if_then_else(tirx.all(*edges), given(n, c, *inner), lowest)

    is_bare = all(d.is_inside for d in windows)
    source = given if is_bare else te.compute((*shape[:2], *[d.reach for d in windows]), inside, name="padded")

    def at(n: Any, c: Any, *position: Any) -> Any:
        taps = zip(position, along, windows, strict=True)
        return reducer(source(n, c, *(i * d.step + k * d.gap for i, k, d in taps)), axis=along)

    return te.create_prim_func([given, te.compute(tuple(wanted), at, name="out")])
