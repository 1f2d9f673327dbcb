"""Several ops on rows as one kernel: norms, softmax and reductions over the last dimension, as ops or decomposed, with the
element-wise ops around them.

Each op becomes steps: an expression at each position of a row, a value per row, or a sum, maximum or minimum over it. Each
reduction that depends on another one takes another pass over the row. Expressions are recomputed in each pass, except expensive
ones, which are kept. A row is finished before the next one begins, while it is in the nearest cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, make_body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant, float32
from partita.accelerators.tvm.kernels.rows.row_steps import ALONE, Program, RowStep, find_program, row_kind
from partita.accelerators.tvm.kernels.shared.element_access import number_shape, write
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import counted, is_shared_out
from partita.accelerators.tvm.kernels.shared.row import JOINS, join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_less
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

LONGEST = 40
"""Maximum number of ops of a kernel: a longer one has more live values than there are registers."""


class RowProperty(SubgraphProperty):
    """Connected ops on the same rows, at least one of which is not element-wise."""

    name = "rows"
    growth = "largest"
    min_subgraph_size = 2

    def __init__(self, extremes: bool = True) -> None:
        super().__init__()
        self._extremes = extremes
        """True to include ReduceMax and ReduceMin."""

    def create_subgraph_selector(self) -> SubgraphSelector:
        return RowSelector(self._extremes)

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that the kernel supports."""
        ops = [node for node in subgraph.nodes if node.is_op]
        return len(ops) <= LONGEST and find_program(make_body(subgraph)) is not None


class RowSelector(ContainOpSelector):
    """Ops that row programs support, each labelled with the row dimensions of its result. A softmax must be
    over the last dimension alone."""

    stateless = True

    def __init__(self, extremes: bool = True) -> None:
        super().__init__(lambda node: self.label(node) is not None)
        self._left_out = () if extremes else ("ReduceMax", "ReduceMin")

    def label(self, node: Node) -> Hashable | None:
        taken = node.op not in self._left_out and row_kind(node, LATEST) is not None
        shape = number_shape(node[0]) if taken else None
        return None if shape is None else shape[:-1]


SUMS = 4
"""Vectors of partial sums: independent sums hide the latency of an addition. One is enough beside a long function, which
takes longer than an addition, and needs the registers."""

STACK = 4096
"""Maximum number of elements that are kept on the stack."""

FEWEST = 2
"""Minimum number of vectors in a row to sum; shorter rows are left to TVM's generic rule."""

PASSES = 4
"""Assumed cost of an element, in steps, since a row is read several times."""


def row_program(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of ops on rows; None for any other body."""
    match = find_program(body)
    if match is None or (_is_single_sum(body) and _is_short(match.columns, machine)):
        return None
    problem, kernel, inputs, outputs = match.kernel(body)
    _RowLoops(match, machine, kernel, inputs, outputs).write()
    return problem.draft(kernel, "rows")


def _is_short(columns: int, machine: Machine) -> bool:
    """True if a row has too few vectors for a kernel of its own. Rows of dynamic length count as long."""
    return not isinstance(columns, Extent) and columns < FEWEST * machine.lanes


def _is_single_sum(body: Body) -> bool:
    """True if the body is a single sum. TVM's generic rule for it is as fast on short rows. TVM's rule for a maximum starts with
    the smallest finite number, which is wrong for a row of -inf alone."""
    return len(body.ops) == 1 and ALONE.get(str(body.ops[0].op)) == "sum"


@attrs.frozen(slots=True, eq=False)
class _KeptPlace:
    """The place where a row's values are kept: a buffer, and the position of a column in it."""

    buffer: Buffer
    position: Callable[[Operand], tuple[Operand, ...]]


Lane = Callable[[int], tuple[Buffer, Operand]]
"""Returns the buffer and position of a partial sum, by the number of the reduction in its pass."""


class _RowLoops:
    """Writes the loops of a program. `m` holds values per row, `s` partial sums, `kept` expensive values; t0, t1, … are the
    values at a vector's positions. All are buffers, because TVM inlines named expressions."""

    def __init__(
        self, program: Program, machine: Machine, kernel: Kernel, inputs: Sequence[Buffer], outputs: Sequence[Buffer]
    ) -> None:
        self.program = program
        self.machine = machine
        self.kernel = kernel
        self.inputs = inputs
        self.outputs = outputs
        self.rows = program.single
        """The position in `m` of each step with one value per row."""
        late = {(read, step.level) for step in program.steps for read in step.reads if step.kind == "each"}
        late |= {(read, step.level - 1) for step in program.steps for read in step.reads if step.kind in JOINS}
        dear = [step for step in program.steps if step.dear and any(step is s and step.level < level for s, level in late)]
        self.lent: dict[RowStep, int] = {}
        """The index of the result in whose row each expensive step is kept."""
        self.aside: dict[RowStep, int] = {}
        """The position in `kept` of each expensive step without such a result."""
        for step in dear:
            self._choose_place(step, late)
        self.vectors: dict[RowStep, Buffer] = {}
        self.kept: dict[RowStep, _KeptPlace] = {}

    def _choose_place(self, step: RowStep, late: Collection[tuple[RowStep, int]]) -> None:
        """Keeps a step in the row of a float32 result that is not written before the step's last read; else in `kept`."""
        last = max(level for other, level in late if other is step)
        for i, (output, result) in enumerate(zip(self.outputs, self.program.results, strict=True)):
            is_free = i not in self.lent.values() and output.element is float32
            if is_free and result.is_full and (result is step or result.level >= last):
                self.lent[step] = i
                return
        self.aside[step] = len(self.aside)

    def write(self) -> None:
        """Writes the loop over the rows."""
        program, kernel = self.program, self.kernel
        many = program.rows != 1 and is_shared_out(program.rows * program.columns * PASSES, self.machine)
        with kernel.tasks(program.rows, "r", many) as r:
            self.r = r
            self._allocate()
            for level in program.levels:
                self._row_values(level)
                self._pass(level)
            for output, step in zip(self.outputs, program.results, strict=True):
                if not step.is_full:
                    write(output, (r, 0), self.m[self.rows[step]])

    def _allocate(self) -> None:
        program, kernel, lanes, r = self.program, self.kernel, self.machine.lanes, self.r
        joined = sum(step.kind in JOINS for step in program.steps)
        self.m = kernel.stack("m", float32, (len(self.rows),))
        self.sums = kernel.stack("s", float32, (SUMS * lanes * joined,))
        for i, step in enumerate(program.steps):
            if step.kind == "each" and step.is_full:
                self.vectors[step] = kernel.stack(f"t{i}", float32, (lanes,))
        for step, i in self.lent.items():
            self.kept[step] = _KeptPlace(self.outputs[i], lambda column: (r, column))
        if self.aside:
            size = len(self.aside) * program.columns
            kept = (kernel.stack if is_less(size, STACK + 1) else kernel.memory)("kept", float32, (size,))
            for step, i in self.aside.items():
                self.kept[step] = _KeptPlace(kept, lambda column, start=i * program.columns: (start + column,))  # type: ignore[misc]

    def _row_values(self, level: int) -> None:
        """Writes the steps with one value per row that are computable after `level` passes."""
        for step, at in self.rows.items():
            if step.kind == "each" and step.level == level:
                self.m[at] = self._computed(step, 0, 0)

    def _pass(self, level: int) -> None:
        """Writes the reductions that can be computed after `level` passes, and the values that this pass keeps or writes."""
        program, kernel, width = self.program, self.kernel, self.machine.lanes
        joins, results = program.joins_after(level), program.complete_after(level)
        kept = [step for step in self.kept if step.level == level]
        if not joins and not kept and not results:
            return
        targets = [*kept, *(step.reads[0] for step in joins), *(step for _, step in results)]
        needed = program.needed(targets, lambda step: self._is_stored(step, level))
        columns = counted(program.columns)
        vectors, most = columns // width, 1 if any(self._is_long(step, level) for step in needed) else SUMS
        groups, single = vectors // most, vectors % most

        def write_column(column: Operand, lane: Operand, sums: Lane) -> None:
            for step in needed:
                self.vectors[step][lane] = self._value(step, column, lane, level)
            for step in kept:
                place = self.kept[step]
                place.buffer[place.position(column)] = self._read(step, column, lane)
            for k, step in enumerate(joins):
                buffer, position = sums(k)
                buffer[position] = JOINS[step.kind].joined(buffer[position], self._read(step.reads[0], column, lane))
            for i, step in results:
                write(self.outputs[i], (self.r, column), self._read(step, column, lane))

        def partial(k: int, u: int) -> int:
            return (k * SUMS + u) * width

        count = 1 if isinstance(groups, int) and not groups else most
        for k, step in enumerate(joins):
            for u in range(count):
                self.sums[partial(k, u)] = constant(JOINS[step.kind].start, float32, width)
        with kernel.loop(groups, "v") as v, kernel.unroll(most, "u") as some, kernel.lanes(width) as lane:
            write_column((v * most + some) * width + lane, lane, lambda k: (self.sums, (k * SUMS + some) * width + lane))
        with kernel.loop(single, "v") as v, kernel.lanes(width) as lane:
            write_column((groups * most + v) * width + lane, lane, lambda k: (self.sums, k * SUMS * width + lane))
        for k, step in enumerate(joins):
            join, first = JOINS[step.kind].joined, partial(k, 0)
            for u in range(1, count):
                self.sums[first] = join(self.sums.vector(width, first), self.sums.vector(width, partial(k, u)))
            self.m[self.rows[step]] = join_lanes(step.kind, self.sums, width, first)
        with kernel.loop(columns - vectors * width, "e") as e:
            write_column(vectors * width + e, 0, lambda k: (self.m, self.rows[joins[k]]))

    def _is_long(self, step: RowStep, level: int) -> bool:
        return step.is_long and not self._is_stored(step, level)

    def _is_stored(self, step: RowStep, level: int) -> bool:
        return step in self.kept and step.level < level

    def _read(self, step: RowStep, column: Operand, lane: Operand) -> Value:
        """A step's value at a position, from its buffer."""
        value = self.program.given(step, self.inputs, self.r, column)
        if value is not None:
            return value
        return self.vectors[step][lane] if step.is_full else self.m[self.rows[step]]

    def _value(self, step: RowStep, column: Operand, lane: Operand, level: int) -> Value:
        """The expression for the step's value at a position."""
        if self._is_stored(step, level):
            place = self.kept[step]
            return place.buffer[place.position(column)]
        return self._computed(step, column, lane)

    def _computed(self, step: RowStep, column: Operand, lane: Operand) -> Value:
        assert step.compute is not None
        return step.compute(*(self._read(read, column, lane) for read in step.reads))
