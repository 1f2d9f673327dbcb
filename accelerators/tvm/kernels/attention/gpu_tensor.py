"""Attention of two-byte elements on the tensor cores of a GPU, in one launch: a warp takes 16 queries of a head and loops over
tiles of keys.

As in `gpu.py` the softmax streams, and no score is ever stored: the sums of one product, as the threads of a warp hold
them, are the left matrix of the next one. Keys and values of the next tile are fetched during the work on the current one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import attrs

from partita.accelerators.tvm.kernels.attention.pattern import Attention
from partita.accelerators.tvm.kernels.contraction.gpu_operands import Side, neighbours, viewed_side
from partita.accelerators.tvm.kernels.contraction.gpu_product import Feed
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Value,
    constant,
    float32,
    if_inside,
    maximum,
    minimum,
    select,
    uint16,
    uint32,
)
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.language.warp_intrinsics import (
    BESIDE,
    DEEP,
    HIGH,
    MULTIPLY,
    PACK,
    PART,
    WAITS,
    WARP,
    WIDE,
    close_copies,
    power_of_two,
)
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

NOTHING = -math.inf
"""Initial value of the largest score."""

_OTHER_REGISTERS = 72
_MOST_REGISTERS = 248


@attrs.frozen(slots=True)
class TensorCut:
    """The split of a head into blocks, warps and steps."""

    warps: int
    """Warps of a block, with 16 queries each."""
    keys: int
    """Number of keys of a step."""

    @property
    def rows(self) -> int:
        """Number of queries of a block."""
        return self.warps * HIGH

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.warps * WARP

    def shared(self, depth: int, columns: int) -> int:
        """Bytes of shared memory: tiles of keys and of values for each stage, in the larger of the two orientations."""
        lines = [max(self.keys * (width + PART), width * (self.keys + PART)) for width in (whole(depth), whole(columns))]
        return 2 * STAGES * sum(lines)

    def registers(self, depth: int, columns: int) -> int:
        """Estimated registers of a thread: its queries, sums and scores, and the scores as two-byte elements."""
        return whole(depth) // 4 + whole(columns) // 2 + self.keys * 3 // 4 + _OTHER_REGISTERS


STAGES = 2
"""Number of tiles in shared memory: the current one and the next."""


def whole(count: int) -> int:
    """`count` rounded up to whole matrices of an instruction."""
    return -(-count // DEEP) * DEEP


def tensor_cuts(gpu: Gpu, heads: int, rows: int, keys: int, depth: int, columns: int) -> Iterator[TensorCut]:
    """The cuts that the GPU can run, best first: the largest with a block for each core, or else those with the most blocks."""
    listed = [TensorCut(warps, step) for warps in (8, 4, 2, 1) for step in (64, 32, 16) if step <= whole(keys)]
    fitting = [
        cut for cut in listed
        if cut.shared(depth, columns) <= gpu.shared and cut.registers(depth, columns) <= _MOST_REGISTERS
    ]
    return best_first(fitting, heads, rows, gpu)


class OfRows(Protocol):
    """A cut of a head into blocks of some queries."""

    @property
    def rows(self) -> int:
        """Number of queries of a block."""


C = TypeVar("C", bound=OfRows)


def best_first(cuts: Sequence[C], heads: int, rows: int, gpu: Gpu) -> Iterator[C]:
    """The cuts with a block for each core, in their order; if there are none, all of them, those with the most blocks first."""

    def blocks(cut: C) -> int:
        return heads * -(-rows // cut.rows)

    filling = [cut for cut in cuts if blocks(cut) >= gpu.cores]
    return iter(filling or sorted(cuts, key=lambda cut: -blocks(cut)))


@attrs.frozen(slots=True, eq=False)
class _Rows:
    """The state of a thread's two queries: rows g and g + 8 of its warp."""

    values: Buffer
    """The values, weighted by the exponentials and summed, in the accumulator layout of an instruction."""
    totals: Buffer
    """The sums of the thread's own exponentials."""
    largest: Buffer
    """The largest score of all keys so far."""


class TensorAttention:
    """Writes the kernel of an attention."""

    def __init__(self, match: Attention, heads: Heads, cut: TensorCut, sizes: tuple[int, int, int, int]) -> None:
        """`sizes` are the numbers of queries and of keys, the depth of their product and the columns of the values. Queries and
        keys may be dynamic."""
        self.match, self.heads, self.cut = match, heads, cut
        self.kernel = heads.kernel
        self.rows, self.keys, self.depth, self.columns = sizes
        self.steps = parts_of(self.keys, cut.keys)
        self.is_one_step = not isinstance(self.keys, Extent) and self.keys <= cut.keys
        """True if all keys are in one tile."""

    def write(self) -> None:
        """Launches a block for each head and group of queries."""
        kernel, cut = self.kernel, self.cut
        with kernel.launch((parts_of(self.rows, cut.rows), self.heads.count, 1), cut.threads) as (band, number, _, thread):
            head = self.heads.head(number)
            lane = kernel.name_value("lane", thread % WARP)
            row = kernel.name_value("row", band * cut.rows + thread // WARP * HIGH + lane // 4)
            beside = kernel.name_value("beside", lane % 4 * 2)
            stages = 1 if self.is_one_step else STAGES
            keys = Feed(kernel, "keys", self._keys(head, thread), stages)
            values = Feed(kernel, "values", self._values(head, thread), stages)
            sums = _Rows(
                kernel.stack("sums", float32, (whole(self.columns) // 2,)),
                kernel.stack("totals", float32, (2,)),
                kernel.stack("largest", float32, (2,)),
            )
            for i in range(whole(self.columns) // 2):
                sums.values[i] = 0.0
            for half in range(2):
                sums.totals[half], sums.largest[half] = 0.0, NOTHING
            feeds = keys, values
            self._begin(feeds, as_index(0), as_index(0))
            self._end(feeds, as_index(0), as_index(0))
            queries = self._queries(head, row, beside)
            with kernel.loop(self.steps, "step") as step:
                self._step(feeds, queries, sums, head, step, (row, beside, lane))
            self._finish(sums, head, row, beside)

    def _step(
        self, feeds: tuple[Feed, Feed], queries: Buffer, sums: _Rows, head: Head, step: Value, own: tuple[Value, Value, Value]
    ) -> None:
        """Processes one tile of keys while the next one is fetched: scores, exponentials, values."""
        kernel, (keys, values), (row, beside, lane) = self.kernel, feeds, own
        if any(feed.is_copied for feed in feeds):
            kernel.do(WAITS[0]())
        kernel.barrier()
        stage, after = step % STAGES, (step + 1) % STAGES
        if not self.is_one_step:
            with kernel.when(step + 1 < self.steps):
                self._begin(feeds, step + 1, after)
        scores = kernel.stack("scores", float32, (self.cut.keys // 2,))
        self._score(keys, stage * keys.side.size, queries, scores, lane)
        self._follow(scores, head, row, step * self.cut.keys + beside)
        powers = self._exponentials(scores, sums, values.side.buffer.element)
        self._mix(values, stage * values.side.size, powers, sums, lane)
        if not self.is_one_step and not all(feed.is_copied for feed in feeds):
            with kernel.when(step + 1 < self.steps):
                self._end(feeds, step + 1, after)

    # -- what is read --------------------------------------------------------------------------------------

    def _begin(self, feeds: tuple[Feed, Feed], step: Value, stage: Value) -> None:
        for feed in feeds:
            feed.begin(step, stage * feed.side.size)
        if any(feed.is_copied for feed in feeds):
            self.kernel.do(close_copies())

    def _end(self, feeds: tuple[Feed, Feed], step: Value, stage: Value) -> None:
        for feed in feeds:
            feed.end(step, stage * feed.side.size)

    def _keys(self, head: Head, thread: Value) -> Side:
        """The right matrix of the scores, shaped (depth, keys)."""
        return viewed_side(
            self.heads.read(self.match.key), head, self._tile(whole(self.depth)), thread, self.cut.keys, (self.depth, self.keys),
            lambda step, spot: (spot.k, step * self.cut.keys + spot.at),
        )

    def _values(self, head: Head, thread: Value) -> Side:
        """The right matrix of the result, shaped (keys, columns)."""
        return viewed_side(
            self.heads.read(self.match.value), head, self._tile(self.cut.keys), thread, whole(self.columns),
            (self.keys, self.columns), lambda step, spot: (step * self.cut.keys + spot.k, spot.at),
        )

    def _tile(self, depth: int) -> TensorTile:
        """A tile whose right matrix, of this depth per step, is fetched by all threads of a block."""
        return TensorTile(self.cut.rows, WIDE, HIGH, WIDE, depth, 1, STAGES)

    def _queries(self, head: Head, row: Value, beside: Value) -> Buffer:
        """The thread's parts of the left matrix of the scores, as pairs of neighbours; zeros beyond the depth."""
        view = self.heads.read(self.match.query)
        has_pairs = neighbours(view, -1, self.depth) > 1
        queries = self.kernel.stack("queries", uint32, (whole(self.depth) // 4,))
        lines = [self.kernel.name_value("line", minimum(row + PART * half, self.rows - 1)) for half in range(2)]

        def bits(line: Value, k: Value) -> Value:
            number = view.buffer[view.at(head, line, k)].bits_as(uint16).cast(uint32)
            return number if self.depth % DEEP == 0 else if_inside(k < self.depth, number, constant(0, uint32))

        def pair(line: Value, k: Value) -> Value:
            if not has_pairs:
                return bits(line, k) | (bits(line, k + 1) << 16)
            numbers = view.buffer.vector(2, view.at(head, line, k)).regrouped(uint32)
            return numbers if self.depth % DEEP == 0 else if_inside(k < self.depth, numbers, constant(0, uint32))

        for part in range(whole(self.depth) // DEEP):
            for far in range(2):
                for half in range(2):
                    queries[part * 4 + far * 2 + half] = pair(lines[half], beside + (part * DEEP + far * PART))
        return queries

    # -- what is computed ----------------------------------------------------------------------------------

    def _score(self, keys: Feed, first: Value, queries: Buffer, scores: Buffer, lane: Value) -> None:
        """Computes the products of the warp's queries and the tile's keys."""
        kernel, multiply = self.kernel, MULTIPLY[(keys.side.buffer.element,) * 2]
        for i in range(self.cut.keys // 2):
            scores[i] = 0.0
        right = kernel.stack("keys_now", uint32, (4,))
        for part in range(whole(self.depth) // DEEP):
            for key in range(0, self.cut.keys, 2 * WIDE):
                keys.load(right, 0, first, part * DEEP, key, lane, is_left=False)
                for j in range(2):
                    kernel.do(multiply(scores[(key + j * WIDE) // 2], queries[part * 4], right[2 * j]))

    def _follow(self, scores: Buffer, head: Head, row: Value, first: Value) -> None:
        """Applies the element-wise ops to the scores; scores of absent keys become -inf."""
        score = self.match.score(self.heads, self.rows, self.keys)
        lines = [self.kernel.name_value("line", minimum(row + PART * half, self.rows - 1)) for half in range(2)]
        for i in range(self.cut.keys // 2):
            key = first + (i // 4 * WIDE + i % 2)
            number = score(scores[i], head, lines[i % 4 // 2], minimum(key, self.keys - 1))
            scores[i] = number if is_multiple(self.keys, self.cut.keys) else select(key < self.keys, number, NOTHING)

    def _exponentials(self, scores: Buffer, sums: _Rows, element: Element) -> Buffer:
        """The exponentials of the scores as a left matrix. Rescales the sums so far to the new largest score."""
        kernel = self.kernel
        for half in range(2):
            numbers = [i for i in range(self.cut.keys // 2) if i % 4 // 2 == half]
            before = kernel.name_value("before", sums.largest[half])
            for i in numbers:
                sums.largest[half] = maximum(sums.largest[half], scores[i])
            for neighbour in BESIDE:
                sums.largest[half] = maximum(sums.largest[half], neighbour(sums.largest[half]))
            largest = sums.largest[half]
            base = kernel.name_value("base", select(largest > NOTHING, largest, 0.0))  # If all are masked so far.
            scale = kernel.name_value("scale", _exp(before - base))
            sums.totals[half] = sums.totals[half] * scale
            for i in range(half * 2, whole(self.columns) // 2, 4):
                for j in range(2):
                    sums.values[i + j] = sums.values[i + j] * scale
            for i in numbers:
                scores[i] = _exp(scores[i] - base)
                sums.totals[half] = sums.totals[half] + scores[i]
        powers = kernel.stack("powers", uint32, (self.cut.keys // 4,))
        for i in range(self.cut.keys // 4):
            powers[i] = PACK[element](scores[2 * i], scores[2 * i + 1])
        return powers

    def _mix(self, values: Feed, first: Value, powers: Buffer, sums: _Rows, lane: Value) -> None:
        """Adds the values, weighted by the exponentials, whose pairs are those of the left matrix."""
        kernel, multiply = self.kernel, MULTIPLY[(values.side.buffer.element,) * 2]
        right = kernel.stack("values_now", uint32, (4,))
        for part in range(self.cut.keys // DEEP):
            for column in range(0, whole(self.columns), 2 * WIDE):
                values.load(right, 0, first, part * DEEP, column, lane, is_left=False)
                for j in range(2):
                    kernel.do(multiply(sums.values[(column + j * WIDE) // 2], powers[part * 4], right[2 * j]))

    def _finish(self, sums: _Rows, head: Head, row: Value, beside: Value) -> None:
        """Writes the result: the sums of the values, divided by those of the exponentials."""
        kernel = self.kernel
        result = self.heads.written(self.match.result, self.match.after)
        for half in range(2):
            for neighbour in BESIDE:
                sums.totals[half] = sums.totals[half] + neighbour(sums.totals[half])
        for half in range(2):
            line, total = row + PART * half, sums.totals[half]

            def store(i: int, column: Value, line: Value = line, total: Value = total) -> None:
                number = sums.values[i] / total
                if self.match.guard:  # Rows of NaN become zeros.
                    number = select(total > 0.0, number, 0.0)
                write(result.buffer, (result.at(head, line, column),), number)

            with kernel.when(line < self.rows):
                for i in range(whole(self.columns) // 2):
                    column = beside + (i // 4 * WIDE + i % 2)
                    if i % 4 // 2 != half:
                        continue
                    with kernel.when(column < self.columns if self.columns % DEEP else None):
                        store(i, column)


def _exp(x: Value) -> Value:
    """exp by the GPU's power-of-two instruction, accurate to about 22 bits, which is more than two-byte elements hold."""
    return power_of_two(x * math.log2(math.e))

