"""The generic rule for GPUs of any vendor: TVM's own dlight schedules, the special ones first."""

from __future__ import annotations

import importlib
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.gpu_intrinsics import declared_without_sources
from partita.accelerators.tvm.schedules.gpu_single import without_sums_of_one

MOST_BLOCKS = 65535
"""Maximum number of blocks that CUDA launches along y and along z."""


def schedule_gpu(function: Any, machine: Machine) -> tuple[Any, str]:
    """The kernel with its loops bound to blocks and threads, and the rule's name; `topi` if TVM has already scheduled it."""
    if _is_scheduled(function):
        if _has_too_many_blocks(function):
            raise CompileError(f"TVM writes it for more than {MOST_BLOCKS:,} blocks along one dimension")
        return function, "topi"
    gpu, function = part("s_tir.dlight").gpu, without_sums_of_one(function)
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback()):
        scheduled = _apply(rule, function, machine)
        if scheduled is not None:
            return scheduled, f"dlight.{type(rule).__name__}"
    raise CompileError("none of TVM's GPU schedules fits the kernel")


def _apply(rule: Any, function: Any, machine: Machine) -> Any:
    """The kernel as the rule schedules it; None if the rule does not fit."""
    dlight = part("s_tir.dlight")
    try:
        with machine.target, declared_without_sources():
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
