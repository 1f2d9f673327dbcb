"""Elements read and written at indices: Gather and Scatter and their kin, rows of packed tables, and the comparison of indices
with their dimensions.

The comparison (of the nodes that `bodies/indices.py` inserts) comes first: it copies the indices, with negative ones counted
from the end if the op does so. A row of indices has one for each size. On a processor the copy records whether any is out of
range, and fails at the end. A GPU kernel cannot fail: it clamps the index instead, and another kernel returns whether any is out
of range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.bodies.indices import complaint
from partita.accelerators.tvm.kernels.contraction.packing import Packing, PanelLayout
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    float32,
    int32,
    int64,
    maximum,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.element_access import FARTHEST, Shape, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack, Problem
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, nest
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES
from partita.accelerators.tvm.schedules import schedule
from partita.accelerators.tvm.schedules.gpu_rule import bind_loops
from partita.accelerators.tvm.sizes.extent import Extent
from partita.accelerators.tvm.sizes.sizing import is_for_any_size
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


PIECES = 16
"""Number of parts that long lists are cut into, one per thread."""

THREADS = 256
"""Threads of a GPU that check a list of dynamic length."""


def indices(body: Body, machine: Machine) -> Draft:
    """The kernel for the op that checks indices."""
    node = body.ops[0]
    sizes, signed = list(node.attrs["sizes"]), bool(node.attrs["signed"])
    shape, dtype = shape_of(node[0]), element_of(node[0])
    rows = math.prod(shape) // max(len(sizes), 1)
    if is_for_any_size(body.graph) and machine.is_gpu:
        return _clamped_at_any_size(body, sizes, signed)
    if machine.is_gpu:
        return Draft(*schedule(_clamped(shape, dtype, [int(size) for size in sizes], signed), machine))
    problem, flat = Problem.of(body), (rows, len(sizes))
    kernel, (x,), (y,) = problem.kernel("indices", {0: flat}, [flat])
    if machine.threads_for(rows * len(sizes)) == 1:
        _check(kernel, x, y, sizes, signed, 0, rows)
        return problem.draft(kernel, "indices")
    each = -(-rows // PIECES) if isinstance(rows, int) else kernel.name_value("each", (as_index(rows) + (PIECES - 1)) // PIECES)
    with kernel.loop(PIECES, "p", "parallel") as p:
        _check(kernel, x, y, sizes, signed, p * each, maximum(minimum(each, rows - p * each), 0))
    return problem.draft(kernel, "indices")


def _counted(value: Value, size: Operand, signed: bool) -> Value:
    """The index; negative ones count from the end."""
    return select(value < 0, value + size, value) if signed else value


def _check(kernel: Kernel, x: Buffer, y: Buffer, sizes: list[int], signed: bool, start: Operand, count: Operand) -> None:
    """Copies `count` rows, from `start` on; the run fails at the end if an index was out of range."""
    bad = kernel.stack("bad", int32, (1,))
    bad[0] = 0
    with kernel.loop(count, "k") as k:
        i = kernel.name_value("i", start + k)
        for j, size in enumerate(sizes):
            at = kernel.name_value("at", _counted(x[i, j], size, signed))
            y[i, j] = at
            bad[0] = bad[0] | (at < 0).cast(int32) | (at >= size).cast(int32)
    kernel.require(bad[0].equals(0), complaint(sizes))


def gpu_outside(body: Body, machine: Machine) -> Draft:
    """The kernel for the op that returns whether an index is out of range."""
    node = body.ops[0]
    read = node.inputs[0]
    assert read is not None
    if is_for_any_size(body.graph):
        return _any_outside_at_any_size(body, min(THREADS, machine.gpu.threads))
    sizes, signed = [int(size) for size in node.attrs["sizes"]], bool(node.attrs["signed"])
    return Draft(*schedule(_any_outside(shape_of(read), element_of(read), sizes, signed), machine))


def _clamped_at_any_size(body: Body, sizes: Sequence[int], signed: bool) -> Draft:
    """Clamps each index to its bounds, with a work item for each row of them."""
    problem = Problem.of(body)
    flat = (math.prod(shape_of(body.ops[0][0])) // len(sizes), len(sizes))
    kernel, (x,), (y,) = problem.kernel("indices", {0: flat}, [flat])
    with kernel.loop(flat[0], "i", "parallel") as i:
        for j, size in enumerate(sizes):
            at = kernel.name_value("at", _counted(x[i, j], size, signed))
            y[i, j] = maximum(minimum(at, size - 1), 0)
    draft = problem.draft(kernel, "indices")
    return attrs.evolve(draft, function=bind_loops(draft.function))


def _any_outside_at_any_size(body: Body, threads: int) -> Draft:
    """A number that is not 0 if any index is out of range, computed by one block of threads."""
    problem, sizes, signed = Problem.of(body), list(body.ops[0].attrs["sizes"]), bool(body.ops[0].attrs["signed"])
    flat = (math.prod(shape_of(problem.inputs[0])) // len(sizes), len(sizes))
    kernel, (x,), (y,) = problem.kernel("outside", {0: flat}, [(1,)])
    with kernel.launch((1, 1, 1), threads) as (_, _, _, thread):
        bad, flags = kernel.stack("bad", int32, (1,)), kernel.shared("flags", int32, (threads,))
        bad[0] = 0
        with kernel.loop(parts_of(flat[0] - thread, threads), "k") as k:
            i = kernel.name_value("i", k * threads + thread)
            for j, size in enumerate(sizes):
                at = kernel.name_value("at", _counted(x[i, j], size, signed))
                bad[0] = bad[0] | (at < 0).cast(int32) | (at >= size).cast(int32)
        flags[thread] = bad[0]
        kernel.barrier()
        with kernel.when(thread.equals(0)):
            with kernel.loop(threads, "other") as other:
                bad[0] = bad[0] | flags[other]
            y[0] = bad[0]
    return problem.draft(kernel, "outside")


def _clamped(shape: tuple[int, ...], dtype: str, sizes: list[int], signed: bool) -> Any:
    te, tirx = part("te"), part("tirx")
    given, zero, one = te.placeholder(shape, dtype, "x0"), tirx.const(0, dtype), tirx.const(1, dtype)

    def at(*indices: Any) -> Any:
        bound, value = _bound(indices, dtype, sizes), given(*indices)
        value = tirx.Select(value < zero, value + bound, value) if signed else value
        return te.max(te.min(value, bound - one), zero)

    return te.create_prim_func([given, te.compute(shape, at, name="out")])


def _any_outside(shape: tuple[int, ...], dtype: str, sizes: list[int], signed: bool) -> Any:
    te, tirx = part("te"), part("tirx")
    given, axes = te.placeholder(shape, dtype, "x0"), [te.reduce_axis((0, size), f"k{d}") for d, size in enumerate(shape)]

    def outside(_: Any) -> Any:
        bound, value = _bound(axes, dtype, sizes), given(*axes)
        least = tirx.const(0, dtype) - bound if signed else tirx.const(0, dtype)
        wrong = tirx.any(value < least, value >= bound).astype("int32")
        return te.max(wrong, axis=axes) if axes else wrong

    return te.create_prim_func([given, te.compute((1,), outside, name="out")])


def _bound(indices: Sequence[Any], dtype: str, sizes: list[int]) -> Any:
    """The size that bounds the index at this position: each position of the last dimension has its own."""
    tirx = part("tirx")
    bound = tirx.const(sizes[-1], dtype)
    for j, size in enumerate(sizes[:-1]):
        bound = tirx.Select(getattr(indices[-1], "var", indices[-1]).equal(j), tirx.const(size, dtype), bound)
    return bound
