"""Checks of indices against their dimensions: they are copied, negative ones counted from the end (if the op does); an index out
of range is an error.

A row of indices has one for each size. On a processor the copy records whether any is out of range, and fails at the end. A GPU
kernel cannot fail: it clamps the index instead, and another kernel returns whether any is out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.bodies.indices import complaint
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, int32, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import Value, as_index, parts_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.choosing import schedule
from partita.accelerators.tvm.schedules.gpu_loops import bind_loops
from partita.accelerators.tvm.sizes.sizing import is_for_any_size

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
