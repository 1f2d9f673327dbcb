"""Chooses the generic rule that schedules a kernel: that of the processor or that of the GPU."""

from __future__ import annotations

from typing import Any

from accelerators.tvm.machine.machine import Machine


def schedule(function: Any, machine: Machine) -> tuple[Any, str]:
    """The scheduled kernel, and the schedule's name."""
    if not machine.is_gpu:
        from accelerators.tvm.schedules.cpu_rule import schedule_cpu

        return schedule_cpu(function, machine)
    from accelerators.tvm.schedules.gpu_rule import schedule_gpu

    return schedule_gpu(function, machine)
