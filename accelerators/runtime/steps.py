"""The steps of a compiled model in order. They are planned once, so that a call only iterates over a list.

Values are in numbered slots: first the inputs, then constants, then the outputs of steps."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import numpy as np

from partita.accelerators.arrays.layout import HOST, array_layout
from partita.accelerators.building.units import Unit
from partita.accelerators.errors import CompileError, RunError
from partita.accelerators.process.exit_barrier import at_a_device
from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Type
from partita.passes.plan_memory import Arena

ALIGNMENT = 64
"""The alignment of the buffers between subgraphs, in bytes."""

Values = list[Any]
"""A call's slots."""


@attrs.define(slots=True, eq=False)
class RunStep:
    """Runs one subgraph."""

    unit: Unit
    """The subgraph that runs."""
    reads: tuple[int, ...]
    """The slots of its inputs."""
    makes: tuple[int, ...]
    """The slots of its outputs."""
    types: tuple[Type | None, ...]
    """The types of these values."""
    frees: tuple[int, ...] = ()
    """The slots that are free afterwards, if steps run in order."""

    def run(self, values: Values, buffers: Sequence[Any] | None, block: np.ndarray[Any, Any] | None) -> None:
        """Read the inputs, run the subgraph and store its outputs.

        A value in the block of buffers must be at its planned place, or it would be overwritten."""
        self.store(self.unit.run([values[i] for i in self.reads], buffers), values, buffers, block)

    def store(
        self, results: Sequence[Any], values: Values, buffers: Sequence[Any] | None, block: np.ndarray[Any, Any] | None
    ) -> None:
        """Store the outputs."""
        if block is None:
            for slot, value in zip(self.makes, results):
                values[slot] = value
        else:
            for slot, value, buffer in zip(self.makes, results, buffers or self._nothing):
                values[slot] = value if value is buffer else _kept_safe(value, block)

    @property
    def _nothing(self) -> tuple[None, ...]:
        return (None,) * len(self.makes)


@attrs.define(slots=True, eq=False)
class CopyStep:
    """Copies one value from the host to a device, or back."""

    unit: Unit
    """A subgraph of that device."""
    up: bool
    """True if the copy goes to the device."""
    source: int
    """The slot to read."""
    target: int
    """The slot to fill."""
    name: str
    """The value's name."""
    frees: tuple[int, ...] = ()
    """The slots that are free afterwards, if steps run in order."""

    @property
    def reads(self) -> tuple[int, ...]:
        """The slot that is read."""
        return (self.source,)

    @property
    def makes(self) -> tuple[int, ...]:
        """The slot that is filled."""
        return (self.target,)

    @at_a_device()
    def run(self, values: Values, buffers: Sequence[Any] | None, block: np.ndarray[Any, Any] | None) -> None:
        """Copy the value to the other memory."""
        compiled = self.unit.compiled
        try:
            values[self.target] = (compiled.upload if self.up else compiled.download)(values[self.source])
        except Exception as error:
            if isinstance(error, PartitaError):
                raise
            way = "to" if self.up else "from"
            raise RunError(error_in_words(error), where=f"copying {self.name!r} {way} {self.unit.device.label!r}") from error


Step = RunStep | CopyStep


def overlapping(steps: Sequence[Step]) -> list[bool]:
    """For each step, True if it may begin and finish later. Not one that shares its compiled subgraph with another step, which
    would wait for the first."""
    uses = Counter(id(step.unit.compiled) for step in steps if isinstance(step, RunStep))
    return [isinstance(step, RunStep) and step.unit.compiled.overlaps and uses[id(step.unit.compiled)] == 1 for step in steps]


@attrs.frozen(slots=True)
class Buffer:
    """The part of the block that holds one value between subgraphs."""

    step: int
    """The step that makes it."""
    output: int
    """The index of the value among the step's outputs."""
    offset: int
    """The position of the first byte."""
    nbytes: int
    """The number of bytes."""
    dtype: np.dtype[Any]
    """The type of the elements."""
    shape: tuple[int, ...]
    """The sizes of the array."""


@attrs.frozen(slots=True, eq=False)
class RunPlan:
    """The precomputed plan of a call."""

    n_inputs: int
    """Number of inputs, which are in the first slots."""
    rest: tuple[Any, ...]
    """The initial content of the other slots: constants, and None."""
    steps: tuple[Step, ...]
    """The steps in execution order."""
    outputs: tuple[int, ...]
    """The slots of the model's outputs."""
    buffers: tuple[Buffer, ...]
    """The values between subgraphs of static size."""
    block_size: int
    """The size in bytes of the block that holds them; values that are not alive together share memory."""
    ends: Mapping[int, int]
    """The deadline of each overlapping step, by step number: the step before which it is finished."""

    @property
    def levels(self) -> list[list[int]]:
        """The steps by depth: those of one level may run concurrently."""
        level: dict[int, int] = {}
        levels: list[list[int]] = []
        for i, step in enumerate(self.steps):
            mine = max((level.get(slot, 0) for slot in step.reads), default=0)
            level.update(dict.fromkeys(step.makes, mine + 1))
            if mine == len(levels):
                levels.append([])
            levels[mine].append(i)
        return levels


def plan_run(graph: Graph, units: Mapping[str, Unit]) -> RunPlan:
    """Plans a graph whose ops are all calls of these units. Linear."""
    return _StepPlanner(graph, units).plan()


class _StepPlanner:
    def __init__(self, graph: Graph, units: Mapping[str, Unit]) -> None:
        self.graph = graph
        self.units = units
        self.slots: dict[tuple[NodeEntry, str], int] = {}
        self.rest: list[Any] = []
        self.steps: list[Step] = []
        self.maker: dict[Node, Unit] = {}

    def plan(self) -> RunPlan:
        for i, node in enumerate(self.graph.inputs):
            self.slots[node[0], HOST] = i
        for node in self.graph.nodes:
            if node.is_constant:
                self.slots[node[0], HOST] = self.new(node.value)
        absent = self.new(None)
        for node in self.graph.nodes:
            if node.is_op:
                self.add_call(node, absent)
        outputs = tuple([self.slot_of(entry, HOST, None) for entry in self.graph.outputs])
        overlaps = overlapping(self.steps)
        if any(overlaps):
            self.steps = begun_early(self.steps, overlaps)
        ends = ends_of(self.steps, overlapping(self.steps))
        last: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            until = min(ends.get(i, i), len(self.steps) - 1)
            last.update({slot: max(until, last.get(slot, 0)) for slot in (*step.makes, *step.reads)})
        self.set_frees(last, set(outputs))
        buffers, size = self.plan_buffers(last, set(outputs))
        return RunPlan(len(self.graph.inputs), tuple(self.rest), tuple(self.steps), outputs, tuple(buffers), size, ends)

    def new(self, value: Any = None) -> int:
        self.rest.append(value)
        return len(self.graph.inputs) + len(self.rest) - 1

    def add_call(self, node: Node, absent: int) -> None:
        unit = self.units[node.name]
        if len(node.inputs) != len(unit.body.inputs):
            raise CompileError(
                f"the call has {len(node.inputs)} inputs and its body {len(unit.body.inputs)}",
                where=unit.title,
                remedy="connect_subgraph_inputs has to give one value for each input of the body",
            )
        reads = tuple([absent if entry is None else self.slot_of(entry, unit.memory, unit) for entry in node.inputs])
        makes = []
        for entry in node.outputs:
            self.slots[entry, unit.memory] = slot = self.new()
            makes.append(slot)
        self.maker[node] = unit
        self.steps.append(RunStep(unit, reads, tuple(makes), node.output_types))

    def slot_of(self, entry: NodeEntry, memory: str, unit: Unit | None) -> int:
        """The slot of a value in that memory; adds a copy if there is none."""
        slot = self.slots.get((entry, memory))
        if slot is None and memory == HOST:
            maker = self.maker[entry.node]
            slot = self.add_copy(entry, maker, False, self.slots[entry, maker.memory], HOST)
        elif slot is None:
            assert unit is not None
            slot = self.add_copy(entry, unit, True, self.slot_of(entry, HOST, None), memory)
        return slot

    def add_copy(self, entry: NodeEntry, unit: Unit, up: bool, source: int, memory: str) -> int:
        self.slots[entry, memory] = target = self.new()
        self.steps.append(CopyStep(unit, up, source, target, entry.name))
        return target

    def set_frees(self, last: Mapping[int, int], kept: set[int]) -> None:
        """Sets the slots to free after their last use; inputs and constants are never freed."""
        written = {slot for step in self.steps for slot in step.makes}
        ending: dict[int, list[int]] = {}
        for slot, i in last.items():
            if slot in written and slot not in kept:
                ending.setdefault(i, []).append(slot)
        for i, slots in ending.items():
            self.steps[i].frees = tuple(slots)

    def plan_buffers(self, last: Mapping[int, int], kept: set[int]) -> tuple[list[Buffer], int]:
        """Plans one block for all values between subgraphs, best fit in order of execution."""
        arena = Arena()
        buffers: list[Buffer] = []
        ending: dict[int, list[tuple[int, int]]] = {}
        for i, step in enumerate(self.steps):
            if isinstance(step, RunStep) and step.unit.memory == HOST:
                for k, (slot, kind) in enumerate(zip(step.makes, step.types, strict=True)):
                    layout = None if slot in kept else array_layout(kind)
                    nbytes = 0 if layout is None else math.prod(layout[1]) * layout[0].itemsize
                    if layout is None or not nbytes:
                        continue
                    size = -(-nbytes // ALIGNMENT) * ALIGNMENT
                    offset = arena.take(size)
                    buffers.append(Buffer(i, k, offset, nbytes, *layout))
                    ending.setdefault(last[slot], []).append((offset, size))
            for offset, size in ending.pop(i, ()):
                arena.give(offset, size)
        return buffers, arena.size


def _kept_safe(value: Any, block: np.ndarray[Any, Any]) -> Any:
    """The value; a copy if it is in the block at an unplanned place."""
    if isinstance(value, np.ndarray):
        return np.array(value) if value.base is not None and np.may_share_memory(value, block) else value
    return [_kept_safe(item, block) for item in value] if isinstance(value, list) else value


class Ordered(Protocol):
    """A step that reads and writes numbered slots."""

    @property
    def reads(self) -> tuple[int, ...]:
        """The slots that it reads."""

    @property
    def makes(self) -> tuple[int, ...]:
        """The slots that it writes."""


OneStep = TypeVar("OneStep", bound=Ordered)


def begun_early(steps: Sequence[OneStep], overlaps: Sequence[bool]) -> list[OneStep]:
    """The steps in another valid order: among ready steps, overlapping ones come first; then those that do not depend on an
    overlapping one, beginning with those that other overlapping steps need. Near-linear."""
    if not any(overlaps) or all(overlaps):
        return list(steps)
    maker = {slot: i for i, step in enumerate(steps) for slot in step.makes}
    needs = [{maker[slot] for slot in step.reads if slot in maker} for step in steps]
    readers: list[list[int]] = [[] for _ in steps]
    for i, makers in enumerate(needs):
        for j in makers:
            readers[j].append(i)
    leads = [False] * len(steps)
    for i in reversed(range(len(steps))):
        leads[i] = any(overlaps[reader] or leads[reader] for reader in readers[i])
    waits = [any(overlaps[j] for j in makers) for makers in needs]
    missing = [len(makers) for makers in needs]
    ready = [(not overlaps[i], waits[i], not leads[i], i) for i in range(len(steps)) if not missing[i]]
    heapq.heapify(ready)
    ordered: list[OneStep] = []
    while ready:
        i = heapq.heappop(ready)[-1]
        ordered.append(steps[i])
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (not overlaps[reader], waits[reader], not leads[reader], reader))
    return ordered


def ends_of(steps: Sequence[Ordered], overlaps: Sequence[bool]) -> dict[int, int]:
    """The deadline of each overlapping step, by step number: the first step that reads its outputs, or else the number of all
    steps."""
    first: dict[int, int] = {}
    for i in reversed(range(len(steps))):
        first.update(dict.fromkeys(steps[i].reads, i))
    whole = len(steps)
    return {
        i: min((first.get(slot, whole) for slot in step.makes), default=whole)
        for i, step in enumerate(steps) if overlaps[i]
    }
