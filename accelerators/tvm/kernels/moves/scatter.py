"""Elements written at given positions: the data is copied, then each update goes to its index.

TVM's own kernel assumes that indices have the data's sizes in every dimension but the axis, as other definitions of the op
demand; ONNX allows less. Of two updates of one position the later one counts, so updates of one position stay on one thread."""

from __future__ import annotations

import math
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, select
from partita.accelerators.tvm.kernels.moves.addresses import index_read, steps_of, summed
from partita.accelerators.tvm.kernels.shared.element_access import Shape
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node

JOINED = frozenset("float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Element types in which an update may be combined with the present element."""


def scatter(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ScatterElements, Scatter or ScatterND; None for any other body."""
    node, problem = body.ops[0], Problem.of(body)
    positions = [problem.position(entry) for entry in node.reads]
    if len(body.ops) != 1 or len(positions) != 3 or None in positions:
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
    writing = _Writing(node, kernel, targets, numbers, y)
    if node.op == "ScatterND":
        writing.by_rows(data, indices, machine.is_gpu)
    else:
        writing.by_elements(data, indices, machine.threads_for(math.prod(indices)) > 1)
    return problem.draft(kernel, "scatter")


@attrs.frozen(slots=True, eq=False)
class _Writing:
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

