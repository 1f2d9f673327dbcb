"""Attention to earlier keys and values where they stand, in buffers with room, and to the new ones.

How many earlier positions count is read while it runs. A task is some rows of one group: all the rows of the heads that share its
keys and values. A few rows at a time, the kernel makes their scores, which stay in a near cache, then the exponentials, and then
the sums of the values; each key and value is read once for these rows, and no position is read that does not count, or that is
too far back for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from partita.accelerators.interface.cached_attention import SCALE, WINDOW, is_cached_attention
from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    constant,
    float32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.kernels.shared.row import join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import VALUE_PRODUCTS

MOST_ROWS = 4
"""So many rows at most share a look at keys and values."""

CHAINS = 8
"""So many sums are under way at once: one addition need not wait for the one before."""


def cached_attention(body: Body, machine: Machine) -> Draft | None:
    """The one op of the body, if it is attention to a cache."""
    node = body.ops[0]
    if len(body.ops) != 1 or not is_cached_attention(node):
        return None
    problem = Problem.of(body)
    positions = [problem.position(entry) for entry in node.inputs]
    if None in positions or len(set(positions)) != len(positions):
        return None
    batch, heads, rows, depth = shape_of(node.reads[0])
    _, groups, room, _ = shape_of(node.reads[1])
    sizes = Sizes(batch * groups, heads // groups * rows, rows, room, depth, machine)
    if sizes.count * sizes.rows * depth == 0:
        return None
    flat = [(sizes.count, n, depth) for n in (sizes.rows, room, room, rows, rows)]
    shapes: dict[int, tuple[int, ...]] = {problem.positions[e]: shape for e, shape in zip(node.reads, flat)}
    kernel, inputs, outputs = problem.kernel("cached_attention", shapes, [flat[0]])
    query, keys, values, new_keys, new_values, length = (inputs[problem.positions[entry]] for entry in node.reads)
    operands = Operands(query, keys, values, new_keys, new_values, length, outputs[0])
    Writing(kernel, sizes, float(node.attrs[SCALE]), int(node.attrs.get(WINDOW, 0)), operands).write()
    return problem.draft(kernel, "cached attention")


@attrs.frozen(slots=True)
class Sizes:
    """The sizes of one such kernel, and how its work is cut."""

    count: int
    """Groups of keys and values, in all sequences."""
    rows: int
    """Rows of queries that read one group."""
    new: int
    """New positions."""
    room: int
    """Positions of the buffers."""
    depth: int
    """Numbers of a key, and of a value."""
    machine: Machine

    @property
    def lanes(self) -> int:
        """Numbers of a vector: as many as the machine has, or fewer where they do not divide the depth."""
        return math.gcd(self.machine.lanes, self.depth)

    @property
    def vectors(self) -> int:
        """Vectors of a key."""
        return self.depth // self.lanes

    @property
    def height(self) -> int:
        """Rows that are worked on together."""
        return min(MOST_ROWS, self.rows)

    @property
    def blocks(self) -> int:
        """How many times so many rows a group has; the last overlaps the one before."""
        return math.ceil(self.rows / self.height)

    @property
    def threads(self) -> int:
        """How many threads share the work, if half of the room counts."""
        return self.machine.threads_for(self.count * self.rows * (self.room // 2 + self.new) * self.depth * 2, VALUE_PRODUCTS)

    @property
    def parts(self) -> int:
        """Into how many tasks a group is cut."""
        return min(self.blocks, math.ceil(self.threads / self.count))

    @property
    def held(self) -> int:
        """Scores of a row, with room for whole vectors."""
        return self.room + self.new + self.machine.lanes


@attrs.frozen(slots=True, eq=False)
class Operands:
    """What the kernel reads and writes."""

    query: Buffer
    keys: Buffer
    values: Buffer
    new_keys: Buffer
    new_values: Buffer
    length: Buffer
    """How many positions of the buffers count."""
    result: Buffer


@attrs.frozen(slots=True, eq=False)
class Writing:
    """Writes the kernel."""

    kernel: Kernel
    sizes: Sizes
    scale: float
    window: int
    """How many positions up to its own a row sees; 0: all of them."""
    operands: Operands

    def write(self) -> None:
        """Groups, then parts of them, then some rows at a time."""
        kernel, sizes = self.kernel, self.sizes
        kernel.require(self.operands.length[0] >= 0, "the number of cached positions is below zero")
        too_many = f"more positions are said to be cached than there is room for, {sizes.room}"
        kernel.require(self.operands.length[0] <= sizes.room, too_many)
        with kernel.tasks(sizes.count * sizes.parts, "task", sizes.threads > 1) as task:
            length = kernel.name_value("length", self.operands.length[0].as_index())
            group = kernel.name_value("group", task // sizes.parts)
            part = kernel.name_value("part", task % sizes.parts)
            oldest = self._oldest(length)
            scores = kernel.memory("scores", float32, (sizes.height, sizes.held))
            inverse = kernel.memory("inverse", float32, (sizes.height,))
            first = kernel.name_value("first", part * sizes.blocks // sizes.parts)
            last = kernel.name_value("last", (part + 1) * sizes.blocks // sizes.parts)
            with kernel.loop(last - first, "b") as b:
                row = kernel.name_value("row", minimum((first + b) * sizes.height, sizes.rows - sizes.height))
                self._scores(scores, group, row, self.operands.keys, oldest, length, 0)
                self._scores(scores, group, row, self.operands.new_keys, 0, sizes.new, length)
                self._softmax(scores, inverse, row, length, oldest)
                self._mix(scores, inverse, group, row, length, oldest)

    def _oldest(self, length: Value) -> Operand:
        """The first position that some row sees."""
        return self.kernel.name_value("oldest", maximum(length - (self.window - 1), 0)) if self.window else 0

    # -- scores ------------------------------------------------------------------------------------------

    def _scores(
        self, scores: Buffer, group: Value, row: Value, keys: Buffer, first: Operand, end: Operand, at: Operand
    ) -> None:
        """The scores of some keys, written from a column on."""
        kernel, count = self.kernel, _less(end, first)
        step = max(1, CHAINS // self.sizes.height)
        whole = kernel.name_value("whole", count // step)
        with kernel.loop(whole, "j") as j:
            self._dots(scores, group, row, keys, _more(j * step, first), step, at)
        with kernel.loop(count - whole * step, "e") as e:
            self._dots(scores, group, row, keys, _more(whole * step + e, first), 1, at)

    def _dots(self, scores: Buffer, group: Value, row: Value, keys: Buffer, key: Value, step: int, at: Operand) -> None:
        """The scores of some neighbouring keys."""
        kernel, lanes, height = self.kernel, self.sizes.lanes, self.sizes.height
        sums = kernel.registers("sums", float32, (step, height), lanes)
        for t in range(step):
            for r in range(height):
                sums[t, r] = 0.0
        with kernel.unroll(self.sizes.vectors, "c") as c:
            for t in range(step):
                vector = kernel.name_value("key", keys.vector(lanes, group, key + t, c * lanes))
                for r in range(height):
                    sums[t, r] = sums[t, r] + vector * self.operands.query.vector(lanes, group, row + r, c * lanes)
        lane_sums = kernel.stack("lane_sums", float32, (lanes,))
        for t in range(step):
            for r in range(height):
                lane_sums[0] = sums[t, r]
                scores[r, at + key + t] = join_lanes("sum", lane_sums, lanes) * self.scale

    # -- exponentials --------------------------------------------------------------------------------------

    def _softmax(self, scores: Buffer, inverse: Buffer, row: Value, length: Value, oldest: Operand) -> None:
        """The exponentials of each row, zeros for the positions that it does not see; `inverse` becomes one over their sum."""
        kernel, lanes = self.kernel, self.sizes.machine.lanes
        joined = kernel.stack("joined", float32, (lanes,))
        with kernel.loop(self.sizes.height, "r") as r:
            count = kernel.name_value("count", length + (row + r) % self.sizes.new + 1)
            with kernel.loop(self.sizes.new + length + lanes - count, "e") as e:
                scores[r, count + e] = constant(-math.inf, float32)
            before = self._hidden(scores, r, count, oldest) if self.window else 0
            vectors = kernel.name_value("vectors", (count + (lanes - 1)) // lanes)
            joined[0] = constant(-math.inf, float32, lanes)
            with self._from(before, vectors) as v:
                joined[0] = maximum(joined.vector(lanes, 0), scores.vector(lanes, r, v * lanes))
            largest = kernel.name_value("largest", join_lanes("max", joined, lanes))
            joined[0] = constant(0.0, float32, lanes)
            whole = kernel.name_value("all", (length + (self.sizes.new + lanes - 1)) // lanes)
            with self._from(before, whole) as v, kernel.lanes(lanes) as lane:
                scores[r, v * lanes + lane] = exp_of_negative(scores[r, v * lanes + lane] - largest)
                joined[lane] = joined[lane] + scores[r, v * lanes + lane]
            inverse[r] = 1.0 / join_lanes("sum", joined, lanes)

    def _hidden(self, scores: Buffer, r: Value, count: Value, oldest: Operand) -> Value:
        """Hide what is too far back for a row that sees this many positions in all; how many vectors stand before all rows'."""
        kernel, lanes = self.kernel, self.sizes.machine.lanes
        before = kernel.name_value("before", oldest // lanes)
        with kernel.loop(maximum(count - self.window - before * lanes, 0), "f") as f:
            scores[r, before * lanes + f] = constant(-math.inf, float32)
        return before

    @contextmanager
    def _from(self, first: Operand, end: Value) -> Iterator[Value]:
        """A loop over vectors from one on."""
        with self.kernel.loop(_less(end, first), "v") as v:
            yield _more(v, first)

    # -- values --------------------------------------------------------------------------------------------

    def _mix(self, scores: Buffer, inverse: Buffer, group: Value, row: Value, length: Value, oldest: Operand) -> None:
        """The sums of the values, so many vectors at a time that their sums stay in registers."""
        across = max(1, CHAINS // self.sizes.height)
        for start in range(0, self.sizes.vectors, across):
            vectors = range(start, min(start + across, self.sizes.vectors))
            self._columns(scores, inverse, group, row, length, oldest, vectors)

    def _columns(
        self, scores: Buffer, inverse: Buffer, group: Value, row: Value, length: Value, oldest: Operand, vectors: range
    ) -> None:
        kernel, lanes, height = self.kernel, self.sizes.lanes, self.sizes.height
        sums = kernel.registers("mixed", float32, (height, len(vectors)), lanes)
        for r in range(height):
            for i in range(len(vectors)):
                sums[r, i] = 0.0

        def add(values: Buffer, first: Operand, end: Operand, at: Operand) -> None:
            with kernel.loop(_less(end, first), "step") as step:
                j = _more(step, first)
                numbers = [kernel.name_value("value", values.vector(lanes, group, j, c * lanes)) for c in vectors]
                for r in range(height):
                    chance = kernel.name_value("chance", scores[r, at + j].spread(lanes))
                    for i, vector in enumerate(numbers):
                        sums[r, i] = sums[r, i] + chance * vector

        add(self.operands.values, oldest, length, 0)
        add(self.operands.new_values, 0, self.sizes.new, length)
        for r in range(height):
            for i, c in enumerate(vectors):
                self.operands.result[group, row + r, c * lanes] = sums[r, i] * inverse[r].spread(lanes)


def _more(count: Value, first: Operand) -> Value:
    """A place counted from a first one."""
    return count if isinstance(first, int) and first == 0 else first + count


def _less(end: Operand, first: Operand) -> Operand:
    """How many places there are from a first one on."""
    return end if isinstance(first, int) and first == 0 else end - first
