"""A reduction over any dimensions.

Adjacent dimensions that are all reduced, or all kept, are merged. If the last one is kept, a strip of neighbours is reduced at a
time, to fill the vectors. If it is reduced, each lane reduces its share of it, and the lanes are combined at the end. Maximum and
minimum propagate NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, constant
from partita.accelerators.tvm.kernels.rows.row_steps import axes_of
from partita.accelerators.tvm.kernels.shared.element_access import FLOATS, INTEGERS, computed_as, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import nest, start
from partita.accelerators.tvm.kernels.shared.reducers import REDUCERS, Reducer
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules import schedule
from partita.graph.node import Node

STRIP = 4
"""Vectors that are reduced side by side: independent sums hide the latency of an addition."""


def reduction(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one reduction with constant axes; None for other axes and unsupported types."""
    node, problem = body.ops[0], Problem.of(body)
    if len(problem.inputs) != 1:
        return None
    if element_of(node[0]) not in (FLOATS | INTEGERS if REDUCERS[str(node.op)].takes_integers else FLOATS):
        return None
    shape = shape_of(problem.inputs[0])
    axes = axes_of(node, len(shape))
    if not axes or 0 in shape:
        return None
    groups = _Groups.of(shape, axes)
    kernel, (x,), (y,) = problem.kernel("reduction", {0: groups.sizes}, [groups.kept or (1,)])
    writing = _ReductionLoops(kernel, x, y, groups, REDUCERS[str(node.op)], machine.threads_for(math.prod(shape)) > 1)
    if groups.is_reduced[-1]:
        writing.along(machine.lanes)
    else:
        writing.across(machine.lanes)
    return problem.draft(kernel, "reduction")


@attrs.frozen(slots=True)
class _Groups:
    """A shape whose adjacent dimensions are merged if they are all reduced, or all kept."""

    sizes: tuple[int, ...]
    """The input's sizes."""
    is_reduced: tuple[bool, ...]
    """True for each dimension that is reduced."""

    @classmethod
    def of(cls, shape: Sequence[int], axes: Sequence[int]) -> _Groups:
        """Drops dimensions of size 1, but keeps at least one reduced dimension."""
        long = [(d in axes, size) for d, size in enumerate(shape) if size > 1]
        groups = [(reduced, math.prod(size for _, size in group)) for reduced, group in groupby(long, lambda item: item[0])]
        if not any(reduced for reduced, _ in groups):
            groups = [(True, 1), *groups]
        return cls(tuple([size for _, size in groups]), tuple([reduced for reduced, _ in groups]))

    @property
    def kept(self) -> tuple[int, ...]:
        """The result's sizes."""
        return tuple([size for size, reduced in zip(self.sizes, self.is_reduced, strict=True) if not reduced])

    @property
    def reduced(self) -> tuple[int, ...]:
        """The sizes of the reduced dimensions."""
        return tuple([size for size, reduced in zip(self.sizes, self.is_reduced, strict=True) if reduced])

    def position(self, kept: Sequence[Operand], reduced: Sequence[Operand]) -> tuple[Operand, ...]:
        """The position in the input, from the indices of kept and of reduced dimensions."""
        from_kept, from_reduced = iter(kept), iter(reduced)
        return tuple([next(from_reduced if is_reduced else from_kept) for is_reduced in self.is_reduced])


@attrs.frozen(slots=True, eq=False)
class _ReductionLoops:
    kernel: Kernel
    x: Buffer
    y: Buffer
    groups: _Groups
    reducer: Reducer
    is_shared: bool
    """True if threads share the result's positions."""

    def across(self, lanes: int) -> None:
        """The loops if the last dimension is kept: strips of it."""
        kernel, (*outer, inner) = self.kernel, self.groups.kept
        lanes = min(lanes, 1 << inner.bit_length() - 1)
        count = min(STRIP, inner // lanes)
        with nest(kernel, (*outer, math.ceil(inner / (count * lanes))), self.is_shared) as (*kept, strip):
            first = kernel.name_value("first", start(kernel.name_value("strip", strip), count * lanes, inner))
            acc = self._begun(count, lanes)
            with nest(kernel, self.groups.reduced, False, "k") as reduced:
                self._joined(acc, lambda v: self.groups.position((*kept, first + v * lanes), reduced))
            with kernel.unroll(count, "v") as v:
                self._write((*kept, first + v * lanes), acc[v])

    def along(self, lanes: int) -> None:
        """The loops if the last dimension is reduced: each lane takes its share of it, and the first one the remainder."""
        kernel, (*outer, last) = self.kernel, self.groups.reduced
        count = min(STRIP, last // lanes)
        if not count:
            count, lanes = 1, 1
        pieces, rest = divmod(last, count * lanes)
        with nest(kernel, self.groups.kept, self.is_shared) as kept:
            acc = self._begun(count, lanes)
            with nest(kernel, outer, False, "k") as reduced:
                with kernel.loop(pieces, "piece") as piece:
                    first = piece * (count * lanes)
                    self._joined(acc, lambda v: self.groups.position(kept, (*reduced, first + v * lanes)))
                with kernel.loop(rest, "rest") as i:
                    at = self.groups.position(kept, (*reduced, pieces * count * lanes + i))
                    acc.buffer[0] = self._with(acc.buffer[0], read(self.x, at))
            with kernel.loop(count * lanes - 1, "lane") as lane:
                acc.buffer[0] = self.reducer.joined(acc.buffer[0], acc.buffer[lane + 1])
            self._write(tuple(kept) or (0,), acc.buffer[0])

    def _begun(self, count: int, lanes: int) -> Registers:
        element = computed_as(self.x.element)
        acc = self.kernel.registers("acc", element, (count,), lanes)
        with self.kernel.unroll(count, "v") as v:
            acc[v] = constant(self.reducer.start_of(element), element, lanes)
        return acc

    def _joined(self, acc: Registers, position: Callable[[Value], tuple[Operand, ...]]) -> None:
        with self.kernel.unroll(acc.shape[0], "v") as v:
            acc[v] = self._with(acc[v], read(self.x, position(v), acc.lanes))

    def _with(self, total: Value, x: Value) -> Value:
        return self.reducer.joined(total, self.reducer.taken(x))

    def _write(self, position: tuple[Operand, ...], total: Value) -> None:
        write(self.y, position, self.reducer.finished(total, float(math.prod(self.groups.reduced))))


GPU_FLOATS = frozenset(("float16", "float32", "float64"))
"""The floating-point types that it accepts."""


def gpu_extreme(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ReduceMax or ReduceMin of floats with constant axes."""
    node = body.ops[0]
    if len(body.graph.inputs) != 1 or element_of(node[0]) not in GPU_FLOATS:
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
