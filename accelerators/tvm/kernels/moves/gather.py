"""Numbers read at indices that are given: Gather, GatherElements and GatherND.

Indices outside of their dimension were found before (`bodies/indices.py`); negative ones count from the end."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value
from partita.accelerators.tvm.kernels.moves.addresses import index_read, steps_of, summed
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.nest import is_shared_out, nest
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.kernels.shared.shapes import FARTHEST, Shape
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import MOVES
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node


def gather(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one op that reads at indices; None for any other body."""
    node, problem = body.ops[0], Problem.of(body)
    positions = [problem.position(entry) for entry in node.reads]
    if len(body.ops) != 1 or len(positions) != 2 or None in positions or positions[0] == positions[1]:
        return None
    data, indices, result = (shape_of(entry) for entry in (*node.reads, node[0]))
    is_far = any(not isinstance(count, Extent) and count >= FARTHEST for count in (math.prod(data), math.prod(result)))
    if not data or 0 in (*data, *indices, *result) or is_far:
        return None
    flat = {i: (math.prod(shape_of(entry)),) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (y,) = problem.kernel("gather", flat, [(math.prod(result),)])
    x, chosen = (inputs[position] for position in positions if position is not None)
    is_work = is_shared_out(math.prod(result), machine, MOVES)
    _Reading(node, kernel, x, chosen, y, machine.lanes, is_work).write(data, indices)
    return problem.draft(kernel, "gather")


@attrs.frozen(slots=True, eq=False)
class _Reading:
    """Writes the loops of one op."""

    node: Node
    kernel: Kernel
    data: Buffer
    indices: Buffer
    result: Buffer
    lanes: int
    """The width of a vector; where it is 1, each number is copied by itself."""
    is_work: bool | Value

    def write(self, data: Shape, indices: Shape) -> None:
        """The loops, by what the op's indices say."""
        if self.node.op == "GatherND":
            self._by_rows(data, indices, int(self.node.attrs.get("batch_dims", 0)))
            return
        axis = int(self.node.attrs.get("axis", 0)) % len(data)
        if self.node.op == "GatherElements":
            self._by_elements(data, indices, axis)
        else:
            self._along(data, math.prod(indices), axis)

    def _along(self, data: Shape, count: int, axis: int) -> None:
        """Whole slices of the data along the axis."""
        size, inner = data[axis], math.prod(data[axis + 1 :])
        with nest(self.kernel, (math.prod(data[:axis]), count, *self._alone(inner)), self.is_work) as (outer, k, *own):
            index = index_read(self.kernel, self.indices, "at", k, size)
            self._copy((outer * size + index) * inner, (outer * count + k) * inner, inner, *own)

    def _by_elements(self, data: Shape, indices: Shape, axis: int) -> None:
        """An index for each number of the result."""
        own, far = steps_of(indices), steps_of(data)
        with nest(self.kernel, indices, self.is_work) as at:
            n = summed([position * step for position, step in zip(at, own, strict=True)])
            index = index_read(self.kernel, self.indices, "at", n, data[axis])
            others = [at[d] * far[d] for d in range(len(data)) if d != axis]
            self._copy(summed([index * far[axis], *others]), n, 1)

    def _by_rows(self, data: Shape, indices: Shape, batch: int) -> None:
        """Rows of indices, of which each names a slice of the data; the first dimensions of both are the same."""
        count, far = indices[-1], steps_of(data)
        batches, rows = math.prod(indices[:batch]), math.prod(indices[batch:-1])
        inner, whole = math.prod(data[batch + count :]), math.prod(data[batch:])
        with nest(self.kernel, (batches, rows, *self._alone(inner)), self.is_work) as (b, r, *own):
            row = b * rows + r
            at = [index_read(self.kernel, self.indices, f"at{k}", row * count + k, data[batch + k]) for k in range(count)]
            first = summed([index * far[batch + k] for k, index in enumerate(at)])
            self._copy(first + b * whole, row * inner, inner, *own)

    def _alone(self, inner: int) -> tuple[int, ...]:
        """The loop over the numbers of a slice, where each is a task of its own."""
        return (inner,) if self.lanes == 1 else ()

    def _copy(self, source: Operand, target: Operand, count: int, own: Operand | None = None) -> None:
        """Some neighbours, in whole vectors as far as that goes, or one of them alone."""
        if own is not None:
            source, target, count = source + own, target + own, 1
        kernel, vectors = self.kernel, count // self.lanes if self.lanes > 1 else 0
        source, target = (kernel.name_value(name, position) for name, position in (("from", source), ("to", target)))
        if vectors:
            with kernel.loop(vectors, "v") as v, kernel.lanes(self.lanes) as lane:
                self.result[target + (v * self.lanes + lane)] = self.data[source + (v * self.lanes + lane)]
        with kernel.loop(count - vectors * self.lanes, "e") as e:
            rest = vectors * self.lanes + e
            self.result[target + rest] = self.data[source + rest]
