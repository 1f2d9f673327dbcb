"""Nests of loops, and the pieces into which loops cut their counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, int32, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple, known_least

ITEM_THREADS = 128
"""Threads of a block of a GPU each of which computes one result, if the GPU allows as many."""


def is_shared_out(amount: int, machine: Machine, least: int = STEPS) -> bool | Value:
    """True if so much work is split among the threads; for a dynamic amount a condition that is evaluated at run time. On a GPU,
    whose threads wait for nobody, any work is split."""
    is_enough = machine.threads > 1 and (machine.is_gpu or known_least(amount) >= least)
    if is_enough or machine.threads == 1 or not isinstance(amount, Extent):
        return is_enough
    factor = math.gcd(*amount.terms.values())  # The amount itself may overflow indices of 32 bits.
    return as_index(amount // factor) >= math.ceil(least / factor)


@contextmanager
def each_item(kernel: Kernel, count: Operand, gpu: Gpu) -> Iterator[Value]:
    """A launch with a thread of the GPU for each of `count` items of work."""
    threads = min(ITEM_THREADS, gpu.threads)
    with kernel.launch((parts_of(count, threads), 1, 1), threads) as (block, _, _, thread):
        item = kernel.name_value("item", block * threads + thread)
        with kernel.when(item < count):
            yield item


@contextmanager
def nest(kernel: Kernel, sizes: Sequence[Operand], is_shared: bool | Value, name: str = "d") -> Iterator[list[Operand]]:
    """A block for each position of an array of these sizes: nested loops, or one parallel loop over all positions. Loop variables
    are `name` plus a number."""
    with ExitStack() as loops:
        if is_shared is False or all(map(_is_one, sizes)):
            named = [(size, f"{name}{d}") for d, size in enumerate(sizes)]
            yield [0 if _is_one(size) else loops.enter_context(kernel.loop(size, counter)) for size, counter in named]
            return
        task = loops.enter_context(kernel.tasks(math.prod(sizes), "task", is_shared))
        indices: list[Operand] = []
        for d, size in enumerate(sizes):
            index = task // math.prod(sizes[d + 1 :])
            indices.append((index % size if d else index) if not _is_one(size) else 0)
        yield indices


def _is_one(size: Operand) -> bool:
    """True if the size is statically 1."""
    return isinstance(size, int) and size == 1


def starts(size: int, step: int) -> list[int]:
    """Starts of pieces of `step` that cover `size`; the last overlaps the one before if they do not divide."""
    return [min(i * step, size - step) for i in range(math.ceil(size / step))]


def start(piece: Value, step: int, size: int | Value) -> Operand:
    """Start of a piece."""
    is_whole = not isinstance(size, Value) and is_multiple(size, step)
    return piece * step if is_whole else minimum(piece * step, size - step)


def pieces(size: int | Value, step: int) -> Operand:
    """Number of pieces of `step` that cover the size; the last overlaps the one before if they do not divide."""
    return math.ceil(size / step) if isinstance(size, int) else (as_index(size) + (step - 1)) // step


def counted(count: Operand) -> int | Value:
    """A static count as an integer, a dynamic one as a value of the kernel."""
    return count if isinstance(count, int) else as_index(count)


def smaller(a: Operand, b: Operand) -> Operand:
    """The smaller of two counts: one of them, if it is known statically which."""
    if isinstance(a, (int, Extent)) and isinstance(b, (int, Extent)):
        if known_least(b - a) >= 0:
            return a
        if known_least(a - b) >= 0:
            return b
    return minimum(as_index(a), as_index(b))


def larger(a: Operand, b: Operand) -> Operand:
    """The larger of two counts: one of them, if it is known statically which."""
    if isinstance(a, (int, Extent)) and isinstance(b, (int, Extent)):
        if known_least(a - b) >= 0:
            return a
        if known_least(b - a) >= 0:
            return b
    return maximum(as_index(a), as_index(b))


def kept(kernel: Kernel, name: str, count: Operand, is_kept: bool = True) -> Value:
    """A count that is computed once, at this point. TVM inlines a named value at each use, but not one that is read from memory;
    divisions by dynamic sizes would grow with each use. With `is_kept` false the count is only named."""
    if not is_kept:
        return kernel.name_value(name, count)
    cell = kernel.stack(f"{name}_kept", int32, (1,))
    cell[0] = as_index(count).cast(int32)
    return kernel.name_value(name, cell[0].as_index())


def each_piece(kernel: Kernel, count: Operand, most: int, work: Callable[[Operand, int], None]) -> None:
    """The work for pieces of `most` neighbours, and for single ones at the end; it gets the start and size of each piece. If the
    count is dynamic, the last ones belong to a piece that overlaps the one before."""
    if isinstance(count, int):
        with kernel.loop(count // most, "e") as e:
            work(e * most, most)
        with kernel.loop(count % most, "e") as e:
            work(count // most * most + e, 1)
        return
    whole = counted(count)
    with kernel.when(as_index(whole) >= most), kernel.loop(pieces(whole, most), "e") as e:
        work(kernel.name_value("piece", start(e, most, whole)), most)
    with kernel.otherwise(), kernel.loop(whole, "e") as e:
        work(e, 1)


def each_vector(
    kernel: Kernel, count: Operand, lanes: int, work: Callable[[Operand, int], None], name: str = "v"
) -> None:
    """The work for each vector of neighbours, and for the remainder; it gets the start and size of each. If the count is dynamic
    the remainder is a vector that overlaps the one before."""
    if not isinstance(count, int):
        each_piece(kernel, count, lanes, work)
        return
    whole, rest = divmod(count, lanes)
    with kernel.loop(whole, name) as v:
        work(v * lanes, lanes)
    if rest:
        work(whole * lanes, rest)
