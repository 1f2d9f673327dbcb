"""The generic rule for processors where sizes are known only while a kernel runs.

Cheap steps are worked into their readers, as the rule for known sizes does it. The last dimension stays one loop, which LLVM puts
into vectors whatever its length; threads share the outermost where the work of the call is worth it. (The outer ones as one loop
divide by sizes that are not known, over which TVM's simplifier does not come to an end.)"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.machine.library import part, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import STEPS
from partita.accelerators.tvm.schedules.cpu_rule import REDUCTION, SPATIAL, along_rows, inline_cheap, kinds_of

NAME = "any size"
"""The schedule's name."""


def schedule_open(function: Any, machine: Machine) -> tuple[Any, str]:
    """The scheduled kernel and the rule's name; a kernel that TVM does not schedule stays as it is written."""
    rule = _Rule(part("s_tir").Schedule(function, error_render_level="none"), machine)
    try:
        rule.run()
    except Exception:  # noqa: BLE001  TVM's schedule refuses with any exception
        return function, "as written"
    return _decided_while_running(rule.schedule.mod["main"], rule.steps), NAME


@attrs.define(slots=True)
class _Rule:
    schedule: Any
    """The schedule being made."""
    machine: Machine
    """The machine that the kernel is scheduled for."""
    steps: list[Any] = attrs.field(factory=list)
    """How many steps each loop takes in all that threads may share."""

    def run(self) -> None:
        """Schedule the whole function."""
        schedule = self.schedule
        inline_cheap(schedule)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            self._block(block)

    def _block(self, block: Any) -> None:
        schedule, content, loops = self.schedule, self.schedule.get(block), self.schedule.get_loops(block)
        kinds = kinds_of(content)
        if not loops or len(kinds) != len(loops) or set(kinds) - {SPATIAL, REDUCTION}:
            return
        spatial = [loop for loop, kind in zip(loops, kinds) if kind == SPATIAL]
        reduction = [loop for loop, kind in zip(loops, kinds) if kind == REDUCTION]
        if reduction and len(spatial) > 1 and not along_rows(content):
            schedule.reorder(*spatial[:-1], *reduction, spatial[-1])
        outer = spatial[:-1] if len(spatial) > 1 else spatial if reduction else []
        if outer and self.machine.threads > 1:
            self.steps.append(_steps(schedule, loops))
            shared = outer[0]
            schedule.annotate(shared, _NUMBER, len(self.steps) - 1)
        if reduction:
            schedule.decompose_reduction(block, reduction[0])


_NUMBER = "partita.shared"
"""The annotation of a loop that threads may share: its number among these. (An annotation holds no sizes.)"""


def _steps(schedule: Any, loops: list[Any]) -> Any:
    """How many steps the loops take together."""
    steps = part("tirx").const(1, "int64")
    for loop in loops:
        steps = steps * part("tirx").Cast("int64", schedule.get(loop).extent)
    return steps


def _decided_while_running(function: Any, steps: Sequence[Any]) -> Any:
    """The kernel with each loop that threads may share written twice: for all threads where the work is worth it, and for one."""
    tirx = part("tirx")

    def change(loop: Any) -> Any:
        if _NUMBER not in loop.annotations:
            return loop
        is_enough = steps[int(loop.annotations[_NUMBER])] >= tirx.const(STEPS, "int64")
        shared = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.PARALLEL, loop.body)
        alone = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
        return tirx.IfThenElse(is_enough, shared, alone)

    twice = importlib.import_module("tvm_ffi").structural_map(function, [(tirx.For, change)])
    return part("s_tir.transform").ConvertSSA()(tvm().IRModule({"main": twice}))["main"]
