"""Chooses the generic rule that schedules a kernel: that of the processor or that of the GPU."""

from __future__ import annotations

from typing import Any

from accelerators.tvm.machine.machine import Machine


def schedule(function: Any, machine: Machine) -> tuple[Any, str]:
    """The scheduled kernel, and the schedule's name."""
    if machine.kind == "cpu":
        from accelerators.tvm.schedules.cpu import schedule_cpu

        return schedule_cpu(function, machine)
    from accelerators.tvm.schedules.cuda import schedule_cuda

    return schedule_cuda(function, machine)
