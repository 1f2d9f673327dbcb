"""Attention that reads keys and values once, in place: for a few queries, as in token-by-token decoding, and for keys and values
in a cache. Packing them into panels would take longer than the products.

Few queries: a task is one head. It computes the scores key by key, with scale and mask applied, then the exponentials, then the
sums of the values. The number of keys may be dynamic; the number of queries that the code handles is static.

Cached keys and values are read from buffers with spare room, and new ones beside them. The number of cached positions is read at
run time. A task is some rows of one group: the rows of all heads that share its keys and values. A few rows at a time, the kernel
computes their scores, which stay in a near cache, then the exponentials, then the sums of the values. Each key and value is read
once for these rows; positions beyond the length, or too far back for all of them, are not read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from partita.accelerators.interface.cached_attention import SCALE, WINDOW
from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.contraction.heads import Head, View
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant, float32, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.row import Row, join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import VALUE_PRODUCTS

FEW = 8
"""Maximum number of queries; for more, panels pay off."""

MOST_VECTORS = 64
"""Maximum number of vectors of a key and a value together: code is unrolled over them, and LLVM is slow on long code."""

CHAINS = 8
"""Independent sums at a time, so that one addition need not wait for the one before."""


def _dots(
    kernel: Kernel, lanes: int, vectors: int, shape: tuple[int, int],
    key: Callable[[int, Operand], Value], query: Callable[[int, Operand], Value], store: Callable[[int, int, Value], None],
) -> None:
    """Products of some keys and some rows (`shape`) of `vectors` vectors each. `key` and `query` read a vector from an element
    on; `store` gets the number of the key, that of the row, and their product."""
    sums = kernel.registers("sums", float32, shape, lanes)
    pairs = [(t, r) for t in range(shape[0]) for r in range(shape[1])]
    for t, r in pairs:
        sums[t, r] = 0.0
    with kernel.unroll(vectors, "c") as c:
        for t in range(shape[0]):
            vector = kernel.name_value("key", key(t, c * lanes))
            for r in range(shape[1]):
                sums[t, r] = sums[t, r] + vector * query(r, c * lanes)
    lane_sums = kernel.stack("lane_sums", float32, (lanes,))
    for t, r in pairs:
        lane_sums[0] = sums[t, r]
        store(t, r, join_lanes("sum", lane_sums, lanes))


@attrs.frozen(slots=True, eq=False)
class FewRows(Scoring):
    """Writes the kernel."""

    count: int
    """Number of queries that the code handles: `rows` if that is static."""

    @property
    def is_worth_it(self) -> bool:
        """True if there are few queries, and all matrices are float32 and contiguous in whole vectors."""
        match, lanes = self.match, self.machine.lanes
        if self.count > FEW or self.depth % lanes or self.columns % lanes or self.depth + self.columns > MOST_VECTORS * lanes:
            return False
        if {element_of(operand.source) for operand in match.operands} != {"float32"}:
            return False
        query, key, value = (self.heads.read(matrix).strides.steps for matrix in match.operands)
        return query[-1] == key[-2] == value[-1] == 1

    @property
    def row(self) -> Row:
        """The scores of one query."""
        return Row(self.length, self.machine.lanes)

    @property
    def length(self) -> int | Value:
        """Number of keys, and of values, as an operand of loops."""
        return self.keys if isinstance(self.keys, int) else as_index(self.keys)

    def write(self, is_shared: bool) -> None:
        """Writes the whole kernel; threads share its heads if `is_shared`."""
        kernel = self.heads.kernel
        with kernel.tasks(self.heads.count, "task", is_shared) as task:
            head = self.heads.head(task)
            scores = kernel.memory("scores", float32, (self.count, self.length))
            memory = Scores(scores, scores, kernel.memory("inverse", float32, (self.count,)))
            self._dots(scores, head)
            self._finish(scores, head)
            self.make_powers(memory, self.count)
            self._mix(memory, head)

    # -- scores ------------------------------------------------------------------------------------------

    def _dots(self, scores: Buffer, head: Head) -> None:
        """Computes the products of queries and keys."""
        kernel, step = self.heads.kernel, max(1, CHAINS // self.count)
        whole = self.length // step
        with kernel.loop(whole, "j") as j:
            self._dots_of(scores, head, j * step, step)
        with kernel.loop(self.length % step, "e") as e:
            self._dots_of(scores, head, e + whole * step, 1)

    def _dots_of(self, scores: Buffer, head: Head, key: Value, count: int) -> None:
        """Computes the products of all queries and `count` neighbouring keys."""
        queries, keys = self.heads.read(self.match.query), self.heads.read(self.match.key)
        lanes = self.machine.lanes

        def store(t: int, r: int, total: Value) -> None:
            scores[r, key + t] = total

        _dots(
            self.heads.kernel, lanes, self.depth // lanes, (count, self.count),
            lambda t, k: keys.buffer.vector(lanes, keys.at(head, k, key + t)),
            lambda r, k: queries.buffer.vector(lanes, queries.at(head, r, k)),
            store,
        )

    def _finish(self, scores: Buffer, head: Head) -> None:
        """Applies scale and mask to the scores."""
        kernel, score, lanes = self.heads.kernel, self.score(), self.machine.lanes
        whole = self.length // lanes

        def put(row: Value, column: Value) -> None:
            scores[row, column] = score(scores[row, column], head, row, column)

        with kernel.loop(self.count, "r") as r:
            with kernel.loop(whole, "v") as v, kernel.lanes(lanes) as lane:
                put(r, v * lanes + lane)
            with kernel.loop(self.length % lanes, "e") as e:
                put(r, e + whole * lanes)

    # -- values ------------------------------------------------------------------------------------------

    def _mix(self, memory: Scores, head: Head) -> None:
        """Computes the sums of the values, for as many vectors at a time as keep their sums in registers."""
        lanes, across = self.machine.lanes, max(1, CHAINS // self.count)
        columns = range(0, self.columns, lanes)
        for first in range(0, len(columns), across):
            self._columns(memory, head, columns[first : first + across])

    def _columns(self, memory: Scores, head: Head, columns: range) -> None:
        """Computes the sums of some vectors of columns. If these are few, neighbouring keys have separate sums."""
        kernel, lanes, rows = self.heads.kernel, self.machine.lanes, self.count
        values = self.heads.read(self.match.value)
        chains = max(1, CHAINS // (rows * len(columns)))
        sums = kernel.registers("mixed", float32, (chains, rows, len(columns)), lanes)
        for c in range(chains):
            for r in range(rows):
                for i in range(len(columns)):
                    sums[c, r, i] = 0.0

        def add(key: Value, chain: int) -> None:
            for i, column in enumerate(columns):
                vector = kernel.name_value("value", values.buffer.vector(lanes, values.at(head, key, column)))
                for r in range(rows):
                    sums[chain, r, i] = sums[chain, r, i] + memory.powers[r, key].spread(lanes) * vector

        whole = self.length // chains
        with kernel.loop(whole, "j") as j:
            for c in range(chains):
                add(j * chains + c, c)
        with kernel.loop(self.length % chains, "e") as e:
            add(e + whole * chains, 0)
        for r in range(rows):
            for i, column in enumerate(columns):
                for c in range(1, chains):
                    sums[0, r, i] = sums[0, r, i] + sums[c, r, i]
                with kernel.lanes(lanes) as lane:
                    total = sums.lane((0, r, i), lane) * memory.inverse[r]
                    self._store(head, r, column + lane, total)

    def _store(self, head: Head, row: int, column: Operand, total: Value) -> None:
        """Writes an element of the result."""
        result: View = self.heads.written(self.match.result, self.match.after)
        write(result.buffer, (result.at(head, row, column),), total)


MOST_ROWS = 4
"""Maximum number of rows that share one read of keys and values."""

def cached_attention(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one attention to a cache."""
    node, problem = body.ops[0], Problem.of(body)
    positions = [problem.position(entry) for entry in node.inputs]
    if None in positions or len(set(positions)) != len(positions):
        return None
    batch, heads, rows, depth = shape_of(node.reads[0])
    _, groups, room, _ = shape_of(node.reads[1])
    sizes = CachedSizes(batch * groups, heads // groups * rows, rows, room, depth, machine)
    if sizes.count * sizes.rows * depth == 0:
        return None
    flat = [(sizes.count, n, depth) for n in (sizes.rows, room, room, rows, rows)]
    shapes: dict[int, tuple[int, ...]] = {problem.positions[e]: shape for e, shape in zip(node.reads, flat)}
    kernel, inputs, outputs = problem.kernel("cached_attention", shapes, [flat[0]])
    query, keys, values, new_keys, new_values, length = (inputs[problem.positions[entry]] for entry in node.reads)
    operands = CachedOperands(query, keys, values, new_keys, new_values, length, outputs[0])
    CachedAttention(kernel, sizes, float(node.attrs[SCALE]), int(node.attrs.get(WINDOW, 0)), operands).write()
    return problem.draft(kernel, "cached attention")


@attrs.frozen(slots=True)
class CachedSizes:
    """The sizes of the kernel, and how its work is split."""

    count: int
    """Number of groups of keys and values, over all sequences."""
    rows: int
    """Number of query rows that read one group."""
    new: int
    """Number of new positions."""
    room: int
    """Number of positions of the buffers."""
    depth: int
    """Number of elements of a key, and of a value."""
    machine: Machine

    @property
    def lanes(self) -> int:
        """Elements of a vector: the machine's lanes, or fewer if those do not divide the depth."""
        return math.gcd(self.machine.lanes, self.depth)

    @property
    def vectors(self) -> int:
        """Number of vectors of a key."""
        return self.depth // self.lanes

    @property
    def height(self) -> int:
        """Number of rows that are processed together."""
        return min(MOST_ROWS, self.rows)

    @property
    def blocks(self) -> int:
        """Number of blocks of that height in a group; the last overlaps the one before."""
        return math.ceil(self.rows / self.height)

    @property
    def threads(self) -> int:
        """Threads that share the work, assuming that the cache is half full."""
        return self.machine.threads_for(self.count * self.rows * (self.room // 2 + self.new) * self.depth * 2, VALUE_PRODUCTS)

    @property
    def parts(self) -> int:
        """Number of tasks per group."""
        return min(self.blocks, math.ceil(self.threads / self.count))

    @property
    def held(self) -> int:
        """Allocated scores of a row, with room for whole vectors."""
        return self.room + self.new + self.machine.lanes


@attrs.frozen(slots=True, eq=False)
class CachedOperands:
    """The buffers that the kernel reads and writes."""

    query: Buffer
    keys: Buffer
    values: Buffer
    new_keys: Buffer
    new_values: Buffer
    length: Buffer
    """Number of valid positions of the buffers."""
    result: Buffer


@attrs.frozen(slots=True, eq=False)
class CachedAttention:
    """Writes the kernel."""

    kernel: Kernel
    sizes: CachedSizes
    scale: float
    window: int
    """Number of positions that a row sees, up to and including its own; 0: all of them."""
    operands: CachedOperands

    def write(self) -> None:
        """Writes the kernel: a loop over groups, then over parts of them, then over blocks of rows."""
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
        """The first cached position that any row sees."""
        return self.kernel.name_value("oldest", maximum(length - (self.window - 1), 0)) if self.window else 0

    # -- scores ------------------------------------------------------------------------------------------

    def _scores(
        self, scores: Buffer, group: Value, row: Value, keys: Buffer, first: Operand, end: Operand, at: Operand
    ) -> None:
        """Computes the scores of the keys from `first` to `end`, stored from column `at` on."""
        kernel, count = self.kernel, _less(end, first)
        step = max(1, CHAINS // self.sizes.height)
        whole = kernel.name_value("whole", count // step)
        with kernel.loop(whole, "j") as j:
            self._dots(scores, group, row, keys, _more(j * step, first), step, at)
        with kernel.loop(count - whole * step, "e") as e:
            self._dots(scores, group, row, keys, _more(whole * step + e, first), 1, at)

    def _dots(self, scores: Buffer, group: Value, row: Value, keys: Buffer, key: Value, step: int, at: Operand) -> None:
        """Computes the scores of `step` neighbouring keys."""
        lanes, height = self.sizes.lanes, self.sizes.height

        def store(t: int, r: int, total: Value) -> None:
            scores[r, at + key + t] = total * self.scale

        _dots(
            self.kernel, lanes, self.sizes.vectors, (step, height),
            lambda t, k: keys.vector(lanes, group, key + t, k),
            lambda r, k: self.operands.query.vector(lanes, group, row + r, k),
            store,
        )

    # -- exponentials --------------------------------------------------------------------------------------

    def _softmax(self, scores: Buffer, inverse: Buffer, row: Value, length: Value, oldest: Operand) -> None:
        """Replaces scores by exponentials, zero for unseen positions; sets `inverse` to one over the sum."""
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
        """Masks positions too far back for a row that sees `count`; returns the number of vectors before every window."""
        kernel, lanes = self.kernel, self.sizes.machine.lanes
        before = kernel.name_value("before", oldest // lanes)
        with kernel.loop(maximum(count - self.window - before * lanes, 0), "f") as f:
            scores[r, before * lanes + f] = constant(-math.inf, float32)
        return before

    @contextmanager
    def _from(self, first: Operand, end: Value) -> Iterator[Value]:
        """A loop over the vectors from `first` to `end`."""
        with self.kernel.loop(_less(end, first), "v") as v:
            yield _more(v, first)

    # -- values --------------------------------------------------------------------------------------------

    def _mix(self, scores: Buffer, inverse: Buffer, group: Value, row: Value, length: Value, oldest: Operand) -> None:
        """Computes the sums of the values, for as many vectors at a time as keep their sums in registers."""
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
    """`first + count`, without an addition of 0."""
    return count if isinstance(first, int) and first == 0 else first + count


def _less(end: Operand, first: Operand) -> Operand:
    """`end - first`, without a subtraction of 0."""
    return end if isinstance(first, int) and first == 0 else end - first
