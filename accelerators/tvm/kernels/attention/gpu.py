"""Attention on a GPU in one launch: a block takes some queries of a head and loops over tiles of keys.

For each query it keeps the largest score so far, the sum of the exponentials and the sum of the values; if a tile has a larger
score, both sums are scaled down (streaming softmax). No score is ever stored in global memory. Masks, causal or not, are among
the element-wise ops on the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.attention.gpu_tensor import NOTHING, TensorAttention, best_first, tensor_cuts
from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.contraction.gpu_product import has_tensor_cores
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import WIDTH
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads, View
from partita.accelerators.tvm.kernels.contraction.operands import found_in
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Operand,
    Registers,
    Value,
    element_named,
    float32,
    if_inside,
    maximum,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

ACROSS = 8
"""Number of threads that share a query."""

MANY_HEADS, MANY_ROWS = 12, 128
"""The heads and queries that the cut assumes if their numbers are dynamic."""


@attrs.frozen(slots=True)
class HeadCut:
    """The split of a head into blocks, threads and steps."""

    rows: int
    """Number of queries of a block."""
    high: int
    """Number of queries of a thread."""
    keys: int
    """Number of keys of a step."""

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.rows // self.high * ACROSS

    def shared(self, depth: int, columns: int) -> int:
        """Bytes of shared memory."""
        return 4 * (
            depth * (self.rows + self.keys + 2 * WIDTH) + self.keys * padded(columns) + self.rows * (self.keys + 1 + ACROSS)
        )


def cuts(gpu: Gpu, heads: int, rows: int, depth: int, columns: int) -> Iterator[HeadCut]:
    """The cuts that the GPU can run, best first: the largest with a block for each core, or else those with the most blocks."""
    listed = [HeadCut(r, high, keys) for r, high in ((64, 4), (32, 2), (16, 1), (16, 2), (8, 1), (4, 1)) for keys in (32, 16, 8)]
    fitting = [cut for cut in listed if cut.shared(depth, columns) <= gpu.shared and cut.threads <= gpu.threads]
    return best_first(fitting, heads, rows, gpu)


def padded(columns: int) -> int:
    """The columns of the values, rounded up to whole groups of the threads that share a query."""
    group = ACROSS * WIDTH if columns % (ACROSS * WIDTH) == 0 else ACROSS
    return -(-columns // group) * group


def gpu_attention(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one attention."""
    match = found_in(body, find_attention)
    if match is None:
        return None
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    if isinstance(columns, Extent) or isinstance(depth, Extent):
        return None
    elements = [element_named(element_of(operand.source)) for operand in match.operands]
    is_one = elements[0] is not float32 and len(set(elements)) == 1
    is_open = any(isinstance(size, Extent) for size in (*batch, rows, keys))
    many, most = ((MANY_HEADS, MANY_ROWS), MANY_ROWS) if is_open else ((math.prod(batch), rows), keys)
    if is_one and has_tensor_cores(machine, *elements[:2]):
        tensor = next(tensor_cuts(machine.gpu, *many, most, depth, columns), None)
        if tensor is not None:
            heads = Heads.of(body, "attention", tuple(batch))
            TensorAttention(match, heads, tensor, (rows, keys, depth, columns)).write()
            return heads.problem.draft(heads.kernel, "gpu_attention_on_tensor_cores")
    cut = next(cuts(machine.gpu, *many, depth, columns), None)
    if cut is None:
        return None
    heads = Heads.of(body, "attention", tuple(batch))
    _PlainAttention(match, heads, cut, rows, keys, depth, columns).write()
    return heads.problem.draft(heads.kernel, "gpu_attention")


@attrs.frozen(slots=True, eq=False)
class _Shared:
    """The buffers that the threads of a block share."""

    queries: Buffer
    keys: Buffer
    values: Buffer
    powers: Buffer
    """The exponentials of a tile of scores."""
    parts: Buffer
    """Partial results of the threads of a query: its largest score, and at the end its sum."""


@attrs.frozen(slots=True, eq=False)
class _Sums:
    """The state of a thread's queries."""

    values: Registers
    """The values, weighted by the exponentials and summed."""
    totals: Registers
    """The sums of the thread's exponentials."""
    largest: Registers
    """The largest score so far."""


@attrs.frozen(slots=True, eq=False)
class _PlainAttention:
    match: Attention
    heads: Heads
    cut: HeadCut
    rows: int
    keys: int
    depth: int
    columns: int

    @property
    def each(self) -> int:
        """Number of keys of a thread in a step."""
        return self.cut.keys // ACROSS

    @property
    def wide(self) -> int:
        """Number of columns of a thread."""
        return padded(self.columns) // ACROSS

    def write(self) -> None:
        """Launches a block for each head and group of queries."""
        kernel, cut, match = self.heads.kernel, self.cut, self.match
        bands = parts_of(self.rows, cut.rows)
        with kernel.launch((bands, self.heads.count, 1), cut.threads) as (band, number, _, thread):
            head = self.heads.head(number)
            top = kernel.name_value("top", band * cut.rows)
            row, across = kernel.name_value("row", thread // ACROSS * cut.high), kernel.name_value("across", thread % ACROSS)
            shared = _Shared(
                kernel.shared("queries", float32, (self.depth, cut.rows + WIDTH)),
                kernel.shared("keys", float32, (self.depth, cut.keys + WIDTH)),
                kernel.shared("values", float32, (cut.keys, padded(self.columns))),
                kernel.shared("powers", float32, (cut.rows, cut.keys + 1)),
                kernel.shared("parts", float32, (cut.rows, ACROSS)),
            )
            sums = _Sums(
                kernel.registers("sums", float32, (cut.high, self.wide), 1),
                kernel.registers("totals", float32, (cut.high,), 1),
                kernel.registers("largest", float32, (cut.high,), 1),
            )
            for r in range(cut.high):
                sums.totals[r], sums.largest[r] = 0.0, NOTHING
                for c in range(self.wide):
                    sums.values[r, c] = 0.0
            query = self.heads.read(match.query)
            self._copy(thread, self.depth, cut.rows, lambda k, r: self._query(shared, query, head, top, k, r))
            with kernel.loop(parts_of(self.keys, cut.keys), "step") as step:
                first = kernel.name_value("first", step * cut.keys)
                self._step(shared, sums, head, thread, top, row, across, first)
            self._finish(shared, sums, head, top, row, across)

    def _step(
        self, shared: _Shared, sums: _Sums, head: Head, thread: Value, top: Value, row: Value, across: Value, first: Value
    ) -> None:
        """Processes one tile of keys: scores, exponentials, values."""
        kernel, cut = self.heads.kernel, self.cut
        key, value = self.heads.read(self.match.key), self.heads.read(self.match.value)
        self._copy(thread, self.depth, cut.keys, lambda k, c: self._key(shared, key, head, first, k, c))
        self._copy(thread, padded(self.columns), cut.keys, lambda c, k: self._value(shared, value, head, first, c, k))
        kernel.barrier()
        scores = kernel.registers("scores", float32, (cut.high, self.each), 1)
        self._scores(shared, scores, head, top, row, across, first)
        for r in range(cut.high):
            shared.parts[row + r, across] = _largest([scores[r, c] for c in range(self.each)])
        kernel.barrier()
        for r in range(cut.high):
            self._exponentials(shared, sums, scores, r, row, across)
        kernel.barrier()
        with kernel.loop(cut.keys, "k") as k:
            for r in range(cut.high):
                power = kernel.name_value("power", shared.powers[row + r, k])
                for c in range(self.wide):
                    sums.values[r, c] = sums.values[r, c] + power * shared.values[k, self._column(across, c)]
        kernel.barrier()

    # -- what is read --------------------------------------------------------------------------------------

    def _copy(self, thread: Value, along: int, lines: int, copy: Callable[[Value, Value], None]) -> None:
        """Calls `copy` for each element of `lines` lines, shared by all threads; neighbouring threads go along the first axis."""
        kernel, count = self.heads.kernel, along * lines
        with kernel.loop(-(-count // self.cut.threads), "copied") as i:
            number = i * self.cut.threads + thread
            with kernel.when(number < count if count % self.cut.threads else None):
                copy(number % along, number // along)

    def _query(self, shared: _Shared, view: View, head: Head, top: Value, k: Value, r: Value) -> None:
        shared.queries[k, r] = view.number(head, minimum(top + r, self.rows - 1), k)

    def _key(self, shared: _Shared, view: View, head: Head, first: Value, k: Value, c: Value) -> None:
        shared.keys[k, c] = view.number(head, k, minimum(first + c, self.keys - 1))

    def _value(self, shared: _Shared, view: View, head: Head, first: Value, c: Value, k: Value) -> None:
        """Copies an element of the values; zero outside of the matrix, so that it adds nothing."""
        inside = first + k < self.keys
        if padded(self.columns) != self.columns:
            inside = inside & (c < self.columns)
        shared.values[k, c] = if_inside(inside, view.number(head, first + k, c), 0.0)

    # -- what is computed ----------------------------------------------------------------------------------

    def _scores(
        self, shared: _Shared, scores: Registers, head: Head, top: Value, row: Value, across: Value, first: Value
    ) -> None:
        """Computes the scores of the thread's queries and keys; scores of absent keys become -inf."""
        kernel, cut, score = self.heads.kernel, self.cut, self.match.score(self.heads, self.rows, self.keys)
        for r in range(cut.high):
            for c in range(self.each):
                scores[r, c] = 0.0
        with kernel.loop(self.depth, "k") as k:
            queries = [kernel.name_value("q", shared.queries[k, row + r]) for r in range(cut.high)]
            keys = [kernel.name_value("key", shared.keys[k, across * self.each + c]) for c in range(self.each)]
            for r in range(cut.high):
                for c in range(self.each):
                    scores[r, c] = scores[r, c] + queries[r] * keys[c]
        for r in range(cut.high):
            for c in range(self.each):
                key = first + across * self.each + c
                number = score(scores[r, c], head, minimum(top + row + r, self.rows - 1), minimum(key, self.keys - 1))
                scores[r, c] = number if is_multiple(self.keys, cut.keys) else select(key < self.keys, number, NOTHING)

    def _exponentials(self, shared: _Shared, sums: _Sums, scores: Registers, r: int, row: Value, across: Value) -> None:
        """Stores the exponentials of a query's scores. Rescales the sums so far to the new largest score."""
        kernel = self.heads.kernel
        before = kernel.stack("before", float32, (1,))
        before[0] = sums.largest[r]
        for other in range(ACROSS):
            sums.largest[r] = maximum(sums.largest[r], shared.parts[row + r, other])
        base = kernel.stack("base", float32, (1,))
        base[0] = select(sums.largest[r] > NOTHING, sums.largest[r], 0.0)  # If all are masked so far, no difference is taken.
        scale = kernel.stack("scale", float32, (1,))
        scale[0] = exp_of_negative(before[0] - base[0])
        sums.totals[r] = sums.totals[r] * scale[0]
        for c in range(self.wide):
            sums.values[r, c] = sums.values[r, c] * scale[0]
        for c in range(self.each):
            scores[r, c] = exp_of_negative(scores[r, c] - base[0])
            sums.totals[r] = sums.totals[r] + scores[r, c]
            shared.powers[row + r, across * self.each + c] = scores[r, c]

    def _column(self, across: Value, number: int) -> Value:
        """The thread's column with this index: neighbouring threads read neighbouring columns, or groups of them."""
        width = WIDTH if self.wide % WIDTH == 0 else 1
        return across * width + (number // width * ACROSS * width + number % width)

    def _finish(self, shared: _Shared, sums: _Sums, head: Head, top: Value, row: Value, across: Value) -> None:
        """Writes the result: the sums of the values, divided by those of the exponentials."""
        kernel = self.heads.kernel
        result = self.heads.written(self.match.result, self.match.after)
        for r in range(self.cut.high):
            shared.parts[row + r, across] = sums.totals[r]
        kernel.barrier()
        for r in range(self.cut.high):
            total = kernel.stack("total", float32, (1,))
            total[0] = 0.0
            for other in range(ACROSS):
                total[0] = total[0] + shared.parts[row + r, other]

            def store(c: int, r: int = r, total: Buffer = total) -> None:
                number = sums.values[r, c] / total[0]
                if self.match.guard:  # Rows of NaN become zeros.
                    number = select(total[0] > 0.0, number, 0.0)
                at: Operand = result.at(head, top + row + r, self._column(across, c))
                write(result.buffer, (at,), number)

            with kernel.when(top + row + r < self.rows):
                for c in range(self.wide):
                    is_padded = padded(self.columns) != self.columns
                    with kernel.when(self._column(across, c) < self.columns if is_padded else None):
                        store(c)


def _largest(numbers: list[Value]) -> Value:
    largest = numbers[0]
    for number in numbers[1:]:
        largest = maximum(largest, number)
    return largest
