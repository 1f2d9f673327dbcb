"""The generic rule for processors with dynamic sizes.

Cheap steps are inlined into their readers, as in the rule for static sizes. The last dimension stays one loop, which LLVM
vectorizes whatever its length; threads share the outermost loop if the work of the call is worth it. (Fused outer loops would
divide by dynamic sizes, on which TVM's simplifier does not terminate.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS
from partita.accelerators.tvm.schedules.cpu_rule import REDUCTION, SPATIAL, along_rows, inline_cheap, kinds_of

NAME = "any size"
"""Name of the schedule."""


def schedule_open(function: Any, machine: Machine) -> tuple[Any, str]:
    """The scheduled kernel and the rule's name; a kernel that TVM cannot schedule stays as it is."""
    rule = _OpenRule(part("s_tir").Schedule(function, error_render_level="none"), machine)
    try:
        rule.run()
    except Exception:  # noqa: BLE001  TVM raises any exception
        return function, "as written"
    return _decided_while_running(rule.schedule.mod["main"], rule.steps), NAME


@attrs.define(slots=True)
class _OpenRule:
    schedule: Any
    """The schedule being made."""
    machine: Machine
    """The machine that the kernel is scheduled for."""
    steps: list[Any] = attrs.field(factory=list)
    """Total number of steps of the block, for each loop that threads may share."""

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
"""Annotation of a loop that threads may share: its index in `steps`. (An annotation cannot hold sizes.)"""


def _steps(schedule: Any, loops: list[Any]) -> Any:
    """Number of steps of the nested loops."""
    steps = part("tirx").const(1, "int64")
    for loop in loops:
        steps = steps * part("tirx").Cast("int64", schedule.get(loop).extent)
    return steps


def _decided_while_running(function: Any, steps: Sequence[Any]) -> Any:
    """The kernel with two versions of each loop that threads may share: parallel if the work is worth it, else serial."""
    tirx = part("tirx")

    def change(loop: Any) -> Any:
        if _NUMBER not in loop.annotations:
            return loop
        is_enough = steps[int(loop.annotations[_NUMBER])] >= tirx.const(STEPS, "int64")
        shared = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.PARALLEL, loop.body)
        alone = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
        return tirx.IfThenElse(is_enough, shared, alone)

    twice = structural_map(function, [(tirx.For, change)])
    return part("s_tir.transform").ConvertSSA()(tvm().IRModule({"main": twice}))["main"]
