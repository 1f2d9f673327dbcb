"""Elements read at indices: Gather, GatherElements and GatherND, and rows of packed tables.

Indices out of range were found before (`bodies/indices.py`); negative ones count from the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.contraction.packing import Packing, PanelLayout
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, float32, int64, select
from partita.accelerators.tvm.kernels.shared.element_access import FARTHEST, Shape, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack, Problem
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, nest
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node


def gather(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one op that reads at indices; None if it reads one value only, or positions beyond 32 bits."""
    node, problem = body.ops[0], Problem.of(body)
    positions = [problem.position(entry) for entry in node.reads]
    if len(positions) != 2 or None in positions or positions[0] == positions[1]:
        return None
    data, indices, result = (shape_of(entry) for entry in (*node.reads, node[0]))
    is_far = any(not isinstance(count, Extent) and count >= FARTHEST for count in (math.prod(data), math.prod(result)))
    if not data or 0 in (*data, *indices, *result) or is_far:
        return None
    flat = {i: (math.prod(shape_of(entry)),) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (y,) = problem.kernel("gather", flat, [(math.prod(result),)])
    x, chosen = (inputs[position] for position in positions if position is not None)
    is_work = is_shared_out(math.prod(result), machine, MOVES)
    _GatherLoops(node, kernel, x, chosen, y, machine.lanes, is_work).write(data, indices)
    return problem.draft(kernel, "gather")


@attrs.frozen(slots=True, eq=False)
class _GatherLoops:
    """Writes the loops of one op."""

    node: Node
    kernel: Kernel
    data: Buffer
    indices: Buffer
    result: Buffer
    lanes: int
    """The width of a vector; with 1, each element is copied by itself."""
    is_work: bool | Value

    def write(self, data: Shape, indices: Shape) -> None:
        """Writes the loops, by the meaning of the op's indices."""
        if self.node.op == "GatherND":
            self._by_rows(data, indices, int(self.node.attrs.get("batch_dims", 0)))
            return
        axis = int(self.node.attrs.get("axis", 0)) % len(data)
        if self.node.op == "GatherElements":
            self._by_elements(data, indices, axis)
        else:
            self._along(data, math.prod(indices), axis)

    def _along(self, data: Shape, count: int, axis: int) -> None:
        """Copies whole slices of the data along the axis."""
        size, inner = data[axis], math.prod(data[axis + 1 :])
        with nest(self.kernel, (math.prod(data[:axis]), count, *self._alone(inner)), self.is_work) as (outer, k, *own):
            index = index_read(self.kernel, self.indices, "at", k, size)
            self._copy((outer * size + index) * inner, (outer * count + k) * inner, inner, *own)

    def _by_elements(self, data: Shape, indices: Shape, axis: int) -> None:
        """Copies one element per index."""
        own, far = steps_of(indices), steps_of(data)
        with nest(self.kernel, indices, self.is_work) as at:
            n = summed([position * step for position, step in zip(at, own, strict=True)])
            index = index_read(self.kernel, self.indices, "at", n, data[axis])
            others = [at[d] * far[d] for d in range(len(data)) if d != axis]
            self._copy(summed([index * far[axis], *others]), n, 1)

    def _by_rows(self, data: Shape, indices: Shape, batch: int) -> None:
        """Copies a slice of the data per row of indices; the leading `batch` dimensions of both are the same."""
        count, far = indices[-1], steps_of(data)
        batches, rows = math.prod(indices[:batch]), math.prod(indices[batch:-1])
        inner, whole = math.prod(data[batch + count :]), math.prod(data[batch:])
        with nest(self.kernel, (batches, rows, *self._alone(inner)), self.is_work) as (b, r, *own):
            row = b * rows + r
            at = [index_read(self.kernel, self.indices, f"at{k}", row * count + k, data[batch + k]) for k in range(count)]
            first = summed([index * far[batch + k] for k, index in enumerate(at)])
            self._copy(first + b * whole, row * inner, inner, *own)

    def _alone(self, inner: int) -> tuple[int, ...]:
        """The extra loop over the elements of a slice, if each is copied by itself."""
        return (inner,) if self.lanes == 1 else ()

    def _copy(self, source: Operand, target: Operand, count: int, own: Operand | None = None) -> None:
        """Copies neighbours, in full vectors as far as possible, or only one of them."""
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


def packed_rows(body: Body, machine: Machine) -> Draft:
    """The kernel for the op that gathers rows of a packed table, of which only those are unpacked. The rows are the columns of
    the packed matrix."""
    node, problem = body.ops[0], Problem.of(body)
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


def panel_rows(body: Body, machine: Machine) -> Draft:
    """The kernel for the op that gathers rows of a table stored in the panels of a product. The rows are the table's columns."""
    node, problem = body.ops[0], Problem.of(body)
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


def index_read(kernel: Kernel, indices: Buffer, name: str, position: Operand, size: int) -> Value:
    """The named index at a position; negative ones count from the end of the dimension."""
    index = indices[position].cast(int64)
    return kernel.name_value(name, select(index < 0, index + size, index).as_index())


def summed(terms: Sequence[Operand]) -> Operand:
    """The sum of one or more terms."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def steps_of(shape: Shape) -> Shape:
    """The distance in a flat buffer between neighbours along each dimension."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


JOINED = frozenset("float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Element types in which an update may be combined with the present element."""


def scatter(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ScatterElements, Scatter or ScatterND."""
    node, problem = body.ops[0], Problem.of(body)
    positions = [problem.position(entry) for entry in node.reads]
    if len(positions) != 3 or None in positions:
        return None
    data, indices, updates = (shape_of(entry) for entry in node.reads)
    reduction = str(node.attrs.get("reduction", "none"))
    if not data or 0 in (*data, *indices, *updates) or (reduction != "none" and element_of(node[0]) not in JOINED):
        return None
    count = math.prod(data)
    flat = {i: (math.prod(shape_of(entry)),) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (y,) = problem.kernel("scatter", flat, [(count,)])
    x, targets, numbers = (inputs[position] for position in positions if position is not None)
    with kernel.tasks(count, "i", machine.threads_for(count) > 1) as i:
        y[i] = x[i]
    writing = _ScatterLoops(node, kernel, targets, numbers, y)
    if node.op == "ScatterND":
        writing.by_rows(data, indices, machine.is_gpu)
    else:
        writing.by_elements(data, indices, machine.threads_for(math.prod(indices)) > 1)
    return problem.draft(kernel, "scatter")


@attrs.frozen(slots=True, eq=False)
class _ScatterLoops:
    node: Node
    kernel: Kernel
    targets: Buffer
    """The indices."""
    numbers: Buffer
    """The updates."""
    result: Buffer

    def by_elements(self, data: Shape, indices: Shape, is_work: bool) -> None:
        """Writes a loop for each dimension of the indices: the axis is the innermost, the outermost of the others is parallel."""
        kernel, axis = self.kernel, int(self.node.attrs.get("axis", 0)) % len(data)
        own, far = steps_of(indices), steps_of(data)
        others = [d for d in range(len(data)) if d != axis]
        with ExitStack() as loops:
            at: dict[int, Value] = {}
            for d in (*others, axis):
                is_shared = is_work and d == others[0] if others else False
                at[d] = loops.enter_context(kernel.loop(indices[d], f"d{d}", "parallel" if is_shared else "serial"))
            n = kernel.name_value("n", summed([at[d] * step for d, step in enumerate(own)]))
            index = self._index("at", n, data[axis])
            position = summed([*(at[d] * far[d] for d in others), index * far[axis]])
            self._write(kernel.name_value("p", position), n)

    def by_rows(self, data: Shape, indices: Shape, is_shared: bool) -> None:
        """Goes through the rows of the indices, each of which is the position of a slice of the updates. If the positions in a
        slice are shared by threads, each goes through all rows in order."""
        kernel, count, rows = self.kernel, indices[-1], math.prod(indices[:-1])
        size, far = math.prod(data[count:]), steps_of(data)
        with ExitStack() as loops:
            e = loops.enter_context(kernel.loop(size, "e", "parallel")) if is_shared else None
            r = loops.enter_context(kernel.loop(rows, "r"))
            at = [self._index(f"at{k}", r * count + k, data[k]) for k in range(count)]
            first = kernel.name_value("p", summed([index * far[k] for k, index in enumerate(at)]))
            if e is None:
                e = loops.enter_context(kernel.loop(size, "e"))
            self._write(first + e, r * size + e)

    def _index(self, name: str, position: Operand, size: int) -> Value:
        return index_read(self.kernel, self.targets, name, position, size)

    def _write(self, position: Operand, update: Operand) -> None:
        """Writes the element after the update. For maximum and minimum NaN wins."""
        there, number = self.result[position], self.numbers[update]
        how = str(self.node.attrs.get("reduction", "none"))
        if how in ("add", "mul"):
            number = there + number if how == "add" else there * number
        elif how in ("max", "min"):
            number = select(there > number if how == "max" else there < number, there, number)
            if there.type.element.kind == "float":
                number = select(there <= math.inf, number, there)
        self.result[position] = number
