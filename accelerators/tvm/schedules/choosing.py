"""Selects the generic rule that schedules a kernel: the processor's or the GPU's."""

from __future__ import annotations

from typing import Any

from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.cpu_rule import schedule_cpu
from partita.accelerators.tvm.schedules.dynamic_rule import schedule_open
from partita.accelerators.tvm.schedules.gpu_rule import schedule_gpu


def schedule(function: Any, machine: Machine, is_open: bool = False) -> tuple[Any, str]:
    """The scheduled kernel, and the schedule's name; `is_open` is True if some of its sizes are dynamic."""
    if is_open:
        return schedule_open(function, machine)
    if not machine.is_gpu:
        return schedule_cpu(function, machine)
    return schedule_gpu(function, machine)
