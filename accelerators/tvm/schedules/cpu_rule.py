"""The generic rules for processors: outer loops parallel, the innermost loop vectorized.

Cheap steps are inlined into their readers. With static sizes a reduction keeps its sums in registers: a strip of the innermost
output dimension is placed inside the reduction loops, or, if the reduction runs over neighbours in memory, the sums are split
into lanes. With dynamic sizes the last dimension stays one loop, which LLVM vectorizes whatever its length; threads share the
outermost loop if the work of the call is worth it. (Fused outer loops would divide by dynamic sizes, on which TVM's simplifier
does not terminate.)"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS

DEAR_STEPS = 8
"""Number of cheap steps that take as long as a step with a call into the C library."""

STRIP = 4
"""Maximum number of vectors of sums that a reduction keeps."""


def schedule_cpu(function: Any, machine: Machine) -> tuple[Any, str]:
    """The scheduled kernel and the rule's name; kernels that the rule does not fit only get parallel outer loops."""
    for name, rule in (("generic", _Rule.whole), ("parallel", _Rule.outer_only)):
        rule_run = _Rule(part("s_tir").Schedule(function, error_render_level="none"), machine)
        try:
            rule(rule_run)
        except Exception:  # noqa: BLE001  TVM raises any exception; the next rule needs less
            continue
        return rule_run.schedule.mod["main"], name
    return function, "as written"


@attrs.define(slots=True)
class _Rule:
    schedule: Any
    """The schedule being made."""
    machine: Machine
    """The machine that the kernel is scheduled for."""

    def whole(self) -> None:
        """Schedule the whole function."""
        inline_cheap(self.schedule)
        for block in self._blocks():
            self._block(block)

    def outer_only(self) -> None:
        """Make each block's outermost loop parallel if possible."""
        for block in self._blocks():
            loops = self.schedule.get_loops(block)
            if loops and kinds_of(self.schedule.get(block))[:1] == [SPATIAL] and self._is_shared(self._steps(loops)):
                self.schedule.parallel(loops[0])

    def _blocks(self) -> list[Any]:
        return list(self.schedule.get_child_blocks(self.schedule.get_sblock("root")))

    def _block(self, block: Any) -> None:
        content, loops = self.schedule.get(block), self.schedule.get_loops(block)
        kinds = kinds_of(content)
        if not loops or len(kinds) != len(loops) or set(kinds) - {SPATIAL, REDUCTION}:
            return
        spatial = [loop for loop, kind in zip(loops, kinds) if kind == SPATIAL]
        reduction = [loop for loop, kind in zip(loops, kinds) if kind == REDUCTION]
        if not reduction:
            self._injective(content, spatial)
        elif len(spatial) > 1 and (_in_steps(content) or self._no_strip(spatial[-1])):
            self._windows(spatial, reduction)
        elif spatial and self._extent(spatial[-1]) >= 4 and not along_rows(content):
            self._strips(block, spatial, reduction)
        else:
            self._rows(block, content, spatial, reduction)

    def _injective(self, block: Any, loops: list[Any]) -> None:
        """Fuse all loops if all buffers are accessed in loop order, else vectorize the last dimension by itself."""
        dear = any(word in str(block) for word in _DEAR)
        steps, plain = self._steps(loops) * (DEAR_STEPS if dear else 1), _computes_places(block)
        if len(loops) > 1 and not plain and _in_one_order(block):
            loops = [self.schedule.fuse(*loops)]
        outer, inner, rest, vector = loops[:-1], loops[-1], None, None
        if not plain and not _narrow(block):
            rest, vector = self._vector(inner, self._lanes(block, self._extent(inner)))
        if rest is not None:
            outer = [*outer, rest]
        if outer and self._is_shared(steps):
            self.schedule.parallel(self.schedule.fuse(*outer) if len(outer) > 1 else outer[0])
        elif not outer and self._is_shared(steps) and vector is None:
            self.schedule.parallel(inner)

    def _no_strip(self, loop: Any) -> bool:
        """True if no strip of even one vector divides the loop.

        In that case LLVM makes better code of the whole loop."""
        extent = self._extent(loop)
        return extent > self.machine.lanes > _strip(extent, self.machine.lanes)

    def _strips(self, block: Any, spatial: list[Any], reduction: list[Any]) -> None:
        """Keep a strip of outputs in registers, inside the reduction loops."""
        schedule, steps = self.schedule, self._steps(spatial) * self._steps(reduction)
        width = _strip(self._extent(spatial[-1]), self.machine.lanes)
        local = schedule.cache_write(block, 0, "local")
        outer, strip = spatial[:-1], spatial[-1]
        if width < self._extent(strip):
            rest, strip = schedule.split(strip, [None, width])
            outer = [*outer, rest]
        schedule.reorder(*outer, *reduction, strip)
        if not outer:
            outer = [schedule.add_unit_loop(reduction[0])]
        whole = schedule.fuse(*outer) if len(outer) > 1 else outer[0]
        if self._is_shared(steps):
            schedule.parallel(whole)
        schedule.reverse_compute_at(local, whole, preserve_unit_loops=True)
        self._vector(strip)
        start = schedule.decompose_reduction(block, reduction[0])
        self._vector_last(start)
        self._vector_last(local)

    def _windows(self, spatial: list[Any], reduction: list[Any]) -> None:
        """Make the outer loops parallel; a row of outputs stays as it is, because LLVM unrolls and vectorizes its windows."""
        if self._is_shared(self._steps(spatial) * self._steps(reduction)):
            outer = spatial[: max(1, len(spatial) - 2)]
            self.schedule.parallel(self.schedule.fuse(*outer) if len(outer) > 1 else outer[0])

    def _rows(self, block: Any, content: Any, spatial: list[Any], reduction: list[Any]) -> None:
        """Make rows parallel; split float sums of a row into lanes that are added at the end. (LLVM splits integer sums.)"""
        schedule, lanes = self.schedule, self.machine.lanes
        steps = self._steps(spatial) * self._steps(reduction)
        whole = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0] if spatial else None
        if len(reduction) > 1 and along_rows(content):
            reduction = [schedule.fuse(*reduction)]
        last = reduction[-1]
        split = "float" in str(content.writes[0].source.dtype) and self._extent(last) >= 2 * lanes
        if split and self._extent(last) % lanes == 0 and len(reduction) == 1 and whole is not None:
            _, lane = schedule.split(last, [None, lanes])
            partial = schedule.rfactor(lane, 1)
            if self._is_shared(steps):
                schedule.parallel(schedule.get_loops(partial)[0])
        elif whole is not None and self._is_shared(steps):
            schedule.parallel(whole)

    def _lanes(self, block: Any, extent: int) -> int:
        """Number of elements of the block's narrowest type in a vector; fewer if that does not divide the loop."""
        narrow = self.machine.lanes * 4 // min(_bytes(region) for region in (*block.reads, *block.writes))
        return narrow if narrow > self.machine.lanes and extent % narrow == 0 else self.machine.lanes

    def _vector(self, loop: Any, lanes: int = 0) -> tuple[Any, Any]:
        """Vectorize the loop -> (loop over vectors or None, vectorized loop or None); other loops are left to LLVM."""
        lanes, extent = lanes or self.machine.lanes, self._extent(loop)
        if extent % lanes or extent == 0 or any(word in str(self.schedule.get(loop)) for word in _ONE_BY_ONE):
            return None, None
        if extent == lanes:
            self.schedule.vectorize(loop)
            return None, loop
        rest, vector = self.schedule.split(loop, [None, lanes])
        self.schedule.vectorize(vector)
        return rest, vector

    def _vector_last(self, block: Any) -> None:
        loops = self.schedule.get_loops(block)
        if loops:
            self._vector(loops[-1])

    def _extent(self, loop: Any) -> int:
        extent = self.schedule.get(loop).extent
        return int(extent)

    def _is_shared(self, steps: int) -> bool:
        """True if it is enough work for several threads."""
        return self.machine.threads_for(steps) > 1

    def _steps(self, loops: list[Any]) -> int:
        return math.prod(self._extent(loop) for loop in loops)


def inline_cheap(schedule: Any) -> None:
    """Inline each cheap step into its readers; expensive ones only if they stay a single computation."""
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        inner, readers = schedule.get(block), schedule.get_consumers(block)
        if not readers or set(kinds_of(inner)) - {SPATIAL}:
            continue
        text = str(inner)
        branching, dear = "if_then_else" in text, any(word in text for word in _DEAR)
        reduces = any(REDUCTION in kinds_of(schedule.get(reader)) for reader in readers)
        if (dear and len(readers) > 1) or ((branching or dear) and reduces):
            continue
        try:
            schedule.compute_inline(block)
        except Exception:  # noqa: BLE001  TVM raises any exception; the step is not inlined
            continue


SPATIAL, REDUCTION = 0, 2
_DEAR = ("T.exp", "T.log", "T.tanh", "T.erf", "T.sqrt", "T.rsqrt", "T.pow", "T.sin", "T.cos", "T.sigmoid", "T.tan",
         "T.acos", "T.asin", "T.atan")
_ONE_BY_ONE = ("T.cosh", "T.sinh")
"""Functions that TVM computes one element at a time, and for which it fails to split a vector."""


def kinds_of(block: Any) -> list[int]:
    """TVM's kind of each of the block's loops: 0 is spatial, 2 a reduction, and there are others."""
    return [int(var.iter_type) for var in block.iter_vars]


def _bytes(region: Any) -> int:
    """Size in bytes of an element of the buffer."""
    return int("".join(filter(str.isdigit, str(region.source.dtype))) or 8) // 8


def _narrow(block: Any) -> bool:
    """True if all elements have at most two bytes. LLVM vectorizes such loops better than TVM does."""
    return all(_bytes(region) <= 2 for region in (*block.reads, *block.writes))


def _in_one_order(block: Any) -> bool:
    """True if every buffer is accessed in the order of the loops, completely."""
    wanted = [var.var for var in block.iter_vars]
    for region in (*block.reads, *block.writes):
        starts = [item.min for item in region.region]
        if len(starts) != len(wanted) or not all(a.same_as(b) for a, b in zip(starts, wanted)):
            return False
    return True


def _computes_places(block: Any) -> bool:
    """True if the result depends on loop indices, by value or by float positions that are read. LLVM hoists such sums."""
    value = str(getattr(block.body, "value", "")).splitlines()[-1:]
    text, names = "".join(value), "|".join(re.escape(var.var.name) for var in block.iter_vars)
    if re.search(rf'Cast\("float\d+", ({names})\)', text):
        return True
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    return bool(names) and re.search(rf"\b({names})\b", text) is not None


def along_rows(block: Any) -> bool:
    """True if the reduction runs over neighbours in memory, and the last output dimension does not."""
    variables = [var.var for var in block.iter_vars]
    kinds = kinds_of(block)
    spatial = [v for v, kind in zip(variables, kinds) if kind == SPATIAL]
    reduction = [v for v, kind in zip(variables, kinds) if kind == REDUCTION]
    lasts = [region.region[-1].min for region in block.reads if len(region.region)]
    uses = part("tirx.analysis").undefined_vars
    free = [{v.name for v in uses(last, [])} for last in lasts]
    over_spatial = any(spatial and spatial[-1].name in names for names in free)
    over_reduction = any(v.name in names for v in reduction for names in free)
    return over_reduction and not over_spatial


def _in_steps(block: Any) -> bool:
    """True if neighbouring outputs read elements with a stride; vectors of these would be gathered one by one."""
    spatial = [var.var for var, kind in zip(block.iter_vars, kinds_of(block)) if kind == SPATIAL]
    if not spatial:
        return False
    last = re.compile(rf"\b{re.escape(spatial[-1].name)} \*|\* {re.escape(spatial[-1].name)}\b")
    return any(last.search(str(region.region[-1].min)) for region in block.reads if len(region.region))


def _strip(extent: int, lanes: int) -> int:
    """The widest strip of whole vectors that divides the dimension; else the widest divisor that is not too long."""
    for count in range(STRIP, 0, -1):
        if extent % (count * lanes) == 0:
            return count * lanes
    return max(d for d in range(1, min(extent, STRIP * lanes) + 1) if extent % d == 0)


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
