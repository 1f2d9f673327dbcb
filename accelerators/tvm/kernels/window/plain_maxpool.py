"""MaxPool of plain tensors of floats: the largest number in each window, where no other kernel is faster.

It begins at minus infinity, which is also what stands outside of the input, and one that is no number wins. The
generic rule schedules it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.reducers import FLOATS, extreme_of
from accelerators.tvm.machine.library import part
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.schedules.choosing import schedule
from graph.node import Node


@attrs.frozen(slots=True)
class Windows:
    """Where the windows lie, dimension by dimension."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    begins: tuple[int, ...]
    """How far the first window begins before the input."""
    gaps: tuple[int, ...]
    """From one number of a window to the next."""


def largest_in_windows(body: Body, machine: Machine) -> Draft | None:
    """MaxPool of floats that does not return positions."""
    node = body.ops[0]
    if len(body.ops) != 1 or len(node.output_names) != 1 or element_of(node[0]) not in FLOATS:
        return None
    shape, wanted = shape_of(body.graph.inputs[0][0]), shape_of(node[0])
    if len(shape) < 3 or 0 in (*shape, *wanted):
        return None
    scheduled, name = schedule(_function(shape, wanted, element_of(node[0]), windows(node, shape, wanted)), machine)
    return Draft(scheduled, name)


def windows(node: Node, shape: Sequence[int], wanted: Sequence[int]) -> Windows:
    """What the attributes say, automatic padding worked out."""
    dims = len(shape) - 2

    def given(name: str, default: int, count: int = dims) -> tuple[int, ...]:
        return tuple(node.attrs.get(name) or (default,) * count)

    sizes, steps, gaps = given("kernel_shape", 1), given("strides", 1), given("dilations", 1)
    begins = given("pads", 0, 2 * dims)[:dims]
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto == "VALID":
        begins = (0,) * dims
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        rows = zip(shape[2:], wanted[2:], sizes, steps, gaps, strict=True)
        total = [max((out - 1) * step + (size - 1) * gap + 1 - own, 0) for own, out, size, step, gap in rows]
        begins = tuple((pad + (auto == "SAME_LOWER")) // 2 for pad in total)
    return Windows(sizes, steps, begins, gaps)


def _function(shape: Sequence[int], wanted: Sequence[int], dtype: str, windows: Windows) -> Any:
    te, tirx = part("te"), part("tirx")
    lowest = tirx.const(-math.inf, dtype)
    reducer = extreme_of(dtype, largest=True)
    given = te.placeholder(tuple(shape), dtype, "x0")
    along = [te.reduce_axis((0, size), f"k{d}") for d, size in enumerate(windows.sizes)]
    rows = zip(shape[2:], wanted[2:], windows.sizes, windows.steps, windows.begins, windows.gaps, strict=True)
    reach = [(out - 1) * step + (size - 1) * gap + 1 for _, out, size, step, _, gap in rows]

    def inside(n: Any, c: Any, *position: Any) -> Any:
        inner = [i - begin for i, begin in zip(position, windows.begins, strict=True)]
        edges = [edge for i, own in zip(inner, shape[2:], strict=True) for edge in (i >= 0, i < own)]
        return tirx.if_then_else(tirx.all(*edges), given(n, c, *inner), lowest)

    bare = not any(windows.begins) and all(far <= own for far, own in zip(reach, shape[2:], strict=True))
    source = given if bare else te.compute((*shape[:2], *reach), inside, name="padded")

    def at(n: Any, c: Any, *position: Any) -> Any:
        steps = zip(position, windows.steps, along, windows.gaps, strict=True)
        return reducer(source(n, c, *(i * step + k * gap for i, step, k, gap in steps)), axis=along)

    return te.create_prim_func([given, te.compute(tuple(wanted), at, name="out")])
