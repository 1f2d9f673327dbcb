"""The generic rule for GPUs of any maker: TVM's own dlight schedules, the special ones first."""

from __future__ import annotations

from typing import Any

from accelerators.errors import CompileError
from accelerators.tvm.machine.library import part, tvm
from accelerators.tvm.machine.machine import Machine


def schedule_gpu(function: Any, machine: Machine) -> tuple[Any, str]:
    """The kernel with its loops bound to blocks and threads, and the rule that did it."""
    gpu = part("s_tir.dlight").gpu
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback()):
        scheduled = _apply(rule, function, machine)
        if scheduled is not None:
            return scheduled, f"dlight.{type(rule).__name__}"
    raise CompileError("none of TVM's GPU schedules fits the kernel")


def _apply(rule: Any, function: Any, machine: Machine) -> Any:
    """The kernel as the rule schedules it; None if the rule does not fit."""
    dlight = part("s_tir.dlight")
    try:
        with machine.target:
            module = dlight.ApplyDefaultSchedule(rule)(tvm().IRModule({"main": function}))
    except Exception:  # noqa: BLE001  TVM's rules refuse with any exception; the next one asks for less
        return None
    function_made = module["main"]
    scheduled = function_made.attrs is not None and "tirx.is_scheduled" in function_made.attrs
    return function_made if scheduled and _is_bound(function_made) else None


def _is_bound(function: Any) -> bool:
    """Does all of it run on threads of the GPU? Some rules schedule one stage of a kernel and leave the others to the host, which
    cannot write there."""
    scheduling, tirx = part("s_tir"), part("tirx")
    schedule = scheduling.Schedule(function)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return all(
        any(schedule.get(loop).kind == tirx.ForKind.THREAD_BINDING for loop in schedule.get_loops(block)) for block in blocks
    )
