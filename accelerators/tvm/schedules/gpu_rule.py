"""The generic rule for GPUs of any vendor: TVM's own dlight schedules, the special ones first."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine

MOST_BLOCKS = 65535
"""Maximum number of blocks that CUDA launches along y and along z."""


def schedule_gpu(function: Any, machine: Machine) -> tuple[Any, str]:
    """The kernel with its loops bound to blocks and threads, and the rule's name; `topi` if TVM has already scheduled it."""
    if _is_scheduled(function):
        if _has_too_many_blocks(function):
            raise CompileError(f"TVM writes it for more than {MOST_BLOCKS:,} blocks along one dimension")
        return function, "topi"
    gpu, function = part("s_tir.dlight").gpu, _without_sums_of_one(function)
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback()):
        scheduled = _apply(rule, function, machine)
        if scheduled is not None:
            return scheduled, f"dlight.{type(rule).__name__}"
    raise CompileError("none of TVM's GPU schedules fits the kernel")


def _apply(rule: Any, function: Any, machine: Machine) -> Any:
    """The kernel as the rule schedules it; None if the rule does not fit."""
    dlight = part("s_tir.dlight")
    try:
        with machine.target, _declared_without_sources():
            module = dlight.ApplyDefaultSchedule(rule)(tvm().IRModule({"main": function}))
    except Exception:  # noqa: BLE001  TVM raises any exception; the next rule needs less
        return None
    function_made = module["main"]
    return function_made if _is_scheduled(function_made) and not _has_too_many_blocks(function_made) else None


def _is_scheduled(function: Any) -> bool:
    """True if it is marked as scheduled and all of it runs on threads of the GPU. Some rules schedule one stage of a kernel and
    leave the others to the host, which cannot write there."""
    if not function.attrs or "tirx.is_scheduled" not in function.attrs:
        return False
    scheduling, tirx = part("s_tir"), part("tirx")
    schedule = scheduling.Schedule(function)
    return all(
        any(schedule.get(loop).kind == tirx.ForKind.THREAD_BINDING for loop in schedule.get_loops(block))
        or _launches_itself(schedule.get(block))
        for block in schedule.get_child_blocks(schedule.get_sblock("root"))
    )


def _has_too_many_blocks(function: Any) -> bool:
    """True if CUDA would refuse to launch it. A dynamic extent is assumed to be small enough. Linear."""
    loops = [(loop.thread_binding, loop.extent) for loop in _inside(function.body, "For") if loop.thread_binding is not None]
    launches = [(step.node, step.value) for step in _inside(function.body, "AttrStmt") if step.attr_key == "thread_extent"]
    return any(
        str(axis.thread_tag) in ("blockIdx.y", "blockIdx.z") and getattr(extent, "value", 0) > MOST_BLOCKS
        for axis, extent in (*loops, *launches)
    )


def _launches_itself(block: Any) -> bool:
    """True if all writes of the block are in launches inside it, as in TVM's sorts. Linear in its length and depth."""
    launches = [inner for inner in _inside(block.body, "AttrStmt") if inner.attr_key == "thread_extent"]
    launched = {store for launch in launches for store in _inside(launch, "BufferStore")}
    return bool(launches) and launched.issuperset(_inside(block.body, "BufferStore"))


def _inside(statement: Any, kind: str) -> list[Any]:
    """All statements of this kind inside the statement."""
    listed: list[Any] = []
    importlib.import_module("tvm_ffi").structural_walk(statement, [(getattr(part("tirx"), kind), listed.append)], order="post")
    return listed


@contextmanager
def _declared_without_sources() -> Iterator[None]:
    """Inside, kernels that this thread declares with TVM are declared without the sources of their callers.

    TVM's schedules import its tensor-core intrinsics when a kernel first needs one, which declares some 500 kernels. For each of
    them TVM reads the source of every function on the call stack, which takes 17 seconds in all. It uses these lines only for
    kernels inside a class, and none of these is."""
    entry = part("tirx.script.parser.entry")
    whole, entry.inspect = entry.inspect, _Inspect(threading.get_ident())
    try:
        yield
    finally:
        entry.inspect = whole


class _Inspect:
    """The module `inspect` for TVM's decorator of kernels; on one thread its stack has no source lines."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def stack(self, context: int = 1) -> list[inspect.FrameInfo]:
        """The call stack, like `inspect.stack`."""
        caller = sys._getframe(1)
        if threading.get_ident() != self._thread:
            return inspect.getouterframes(caller, context)
        return [
            inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
            for frame, line in walk_stack(caller)
        ]


def _without_sums_of_one(function: Any) -> Any:
    """The TensorIR function with each block that reduces a single element as a plain computation. Linear.

    TVM's rules for GPUs drop the loop of one iteration but keep the initialization of the reduction, and then inline what follows
    into both: for `a + b`, where `a` is a sum of one element, the result was `b + a + b`."""
    scheduling = part("s_tir")

    def change(block: Any) -> Any:
        return _at_once(block) if block.init is not None and _reduces_one(block) else block

    body = structural_map(function.body, [(scheduling.SBlock, change)])
    return function if body.same_as(function.body) else function.with_body(body)


def _reduces_one(block: Any) -> bool:
    """True if every reduced dimension has one position and the block is a single store."""
    tirx = part("tirx")
    reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    is_simple = isinstance(block.body, tirx.BufferStore) and isinstance(block.init, tirx.BufferStore)
    return is_simple and all(isinstance(axis.dom.extent, tirx.IntImm) and axis.dom.extent.value == 1 for axis in reduced)


def _at_once(block: Any) -> Any:
    """The block with the initial value of its reduction in place of reads of its own result."""
    tirx, store, first = part("tirx"), block.body, block.init.value

    def begun(load: Any) -> Any:
        return first if load.source.same_as(store.buffer) else load

    value = structural_map(store.value, [(part("ir").TensorLoad, begun)])
    axes = [tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar, axis.thread_tag) for axis in block.iter_vars]
    return part("s_tir").SBlock(
        axes, block.reads, block.writes, block.name_hint, tirx.BufferStore(store.buffer, value, store.indices), None,
        block.alloc_buffers, block.match_buffers, block.annotations,
    )
