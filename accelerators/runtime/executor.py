"""Executes the steps of a compiled model; safe for concurrent callers."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from partita.accelerators.arrays.layout import HOST, aligned_block, array_layout, is_laid_out
from partita.accelerators.arrays.on_device import Destination, DeviceArray, Target, Wanted
from partita.accelerators.errors import InputError, RunError, asking
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.runtime.overlapping import Overlap
from partita.accelerators.runtime.steps import ALIGNMENT, RunPlan, RunStep, Step, Values
from partita.graph.types import Array

FEW = 4
"""Up to this many outputs are compared with all inputs one by one; for more, the inputs' memory spans are sorted once."""

Observer = Callable[[Step, Callable[[], None]], None]
"""Runs a step by calling the function, and records what it needs."""


Watcher = Callable[[Step, Values], None]
"""Receives a finished step and the values by slot, which it must not change."""


class Runs(Protocol):
    """An object that runs a model."""

    def run(
        self,
        arrays: list[Any],
        out: Sequence[Wanted | None] | None = None,
        observer: Observer | None = None,
        watcher: Watcher | None = None,
        in_turn: bool = False,
    ) -> list[Any]:
        """Compute the outputs for these inputs. The observer is called around each step, on its thread; the watcher gets the
        values after each step. A watched run, and an observed one with `in_turn`, runs one step after the other."""

    def close(self) -> None:
        """Free buffers and threads."""


class Workspace:
    """The buffers of one running call, reused by later calls."""

    def __init__(self, plan: RunPlan) -> None:
        self.block = _block(plan.block_size) if plan.block_size else None
        self.buffers: list[list[Any] | None] = [None] * len(plan.steps)
        for b in plan.buffers:
            assert self.block is not None
            step = plan.steps[b.step]
            listed = self.buffers[b.step] = self.buffers[b.step] or [None] * len(step.makes)
            listed[b.output] = self.block[b.offset : b.offset + b.nbytes].view(b.dtype).reshape(b.shape)


def _block(size: int) -> Any:
    try:
        return aligned_block(size, ALIGNMENT)
    except (MemoryError, ValueError, OverflowError) as error:
        cause = f"there is no memory for the values between its subgraphs, which take {size:,} bytes"
        raise RunError(cause, remedy="Give it smaller inputs, or check the sizes that the model states") from error


class Executor:
    """Runs a plan. Each call has its own slots and borrows a workspace from the pool."""

    def __init__(self, plan: RunPlan, constants: frozenset[int], parallel: bool | None) -> None:
        self.plan = plan
        self.constants = constants
        """The identities of all constant arrays, including those inside subgraphs."""
        self._pool: deque[Workspace] = deque()
        self._levels = plan.levels
        wide = any(sum(isinstance(plan.steps[i], RunStep) for i in level) > 1 for level in self._levels)
        self._trial = ConcurrencyTrial(parallel if wide else False)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._direct = self._only_step()
        overlap = Overlap(plan)
        self._overlap = overlap if overlap.gains else None
        self._read = {slot for step in plan.steps for slot in step.reads}
        self._maker = {slot: (i, k) for i, step in enumerate(plan.steps) for k, slot in enumerate(step.makes)}
        renewed_in_children(self)

    def run(
        self,
        arrays: list[Any],
        out: Sequence[Wanted | None] | None = None,
        observer: Observer | None = None,
        watcher: Watcher | None = None,
        in_turn: bool = False,
    ) -> list[Any]:
        """The outputs for these inputs, owned by the caller; `out` holds for each output an array to fill, or None."""
        if observer is None and watcher is None:
            if self._direct is not None and out is None:
                return self._owned(list(self._direct(arrays, None)), arrays)
            return self._side_by_side_or_not(arrays, out)
        with at_a_device():
            if in_turn or watcher is not None:
                return self._in_turn(arrays, out, observer, watcher)
            return self._side_by_side_or_not(arrays, out, observer)

    def _side_by_side_or_not(
        self, arrays: list[Any], out: Sequence[Wanted | None] | None, observer: Observer | None = None
    ) -> list[Any]:
        if self._trial.decided is False or out is not None:
            return self._in_turn(arrays, out, observer)
        side_by_side = self._trial.next()
        start = time.perf_counter()
        outputs = self._by_levels(arrays, observer) if side_by_side else self._in_turn(arrays, None, observer)
        self._trial.note(side_by_side, time.perf_counter() - start)
        return outputs

    def stays(self, number: int, array: DeviceArray) -> bool:
        """True if all readers of the input of this number can read the array on its device."""
        readers = [step for step in self.plan.steps if number in step.reads]
        mine = all(isinstance(step, RunStep) and step.unit.compiled.takes(array) for step in readers)
        return mine and bool(readers) and number not in self.plan.outputs

    def renew(self) -> None:
        """Resets the executor in a forked process, which has none of the threads."""
        self._threads, self._lock = None, threading.Lock()

    def close(self) -> None:
        """Frees buffers, device memory, and threads as soon as no running call holds them."""
        self._pool.clear()
        for step in self.plan.steps:
            if isinstance(step, RunStep):
                with asking(step.unit.title):
                    step.unit.compiled.let_go()
        with self._lock:
            self._threads = None

    def _only_step(self) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any]] | None:
        """The step to call directly if the model is one subgraph with the model's own inputs and outputs."""
        plan = self.plan
        if len(plan.steps) != 1 or not isinstance(plan.steps[0], RunStep):
            return None
        step = plan.steps[0]
        return step.unit.run if step.reads == tuple(range(plan.n_inputs)) and step.makes == plan.outputs else None

    def _in_turn(
        self, arrays: list[Any], out: Sequence[Wanted | None] | None, observer: Observer | None = None,
        watcher: Watcher | None = None,
    ) -> list[Any]:
        try:
            workspace = self._pool.pop()
        except IndexError:
            workspace = Workspace(self.plan)
        values: Values = [*arrays, *self.plan.rest]
        block = workspace.block
        buffers = workspace.buffers if out is None else self._with_targets(workspace.buffers, arrays, out)
        if self._overlap is not None and observer is None and watcher is None:
            self._overlap.run(values, buffers, block)
        else:
            self._one_by_one(values, buffers, block, observer, watcher)
        outputs = self._owned([values[slot] for slot in self.plan.outputs], arrays, out)
        self._pool.append(workspace)
        return outputs

    def _one_by_one(
        self, values: Values, buffers: list[Any], block: Any, observer: Observer | None, watcher: Watcher | None
    ) -> None:
        """Runs each step to its end before the next one."""
        for step, listed in zip(self.plan.steps, buffers):
            if observer is None:
                step.run(values, listed, block)
            else:
                observer(step, lambda step=step, listed=listed: step.run(values, listed, block))  # type: ignore[misc]
            if watcher is not None:
                watcher(step, values)
            for slot in step.frees:
                values[slot] = None

    def _by_levels(self, arrays: list[Any], observer: Observer | None) -> list[Any]:
        """Runs independent steps concurrently on threads, without shared buffers."""
        values: Values = [*arrays, *self.plan.rest]
        threads = self._thread_pool()
        for level in self._levels:
            first, *others = [self.plan.steps[i] for i in level]
            try:
                waiting = [threads.submit(_run_step, step, values, observer) for step in others]
            except RuntimeError:  # the interpreter is ending: it starts no more threads, but non-daemon threads may still call
                return self._in_turn(arrays, None, observer)
            try:
                _run_step(first, values, observer)
            finally:
                failures = [future.exception() for future in waiting]
            for failure in failures:
                if failure is not None:
                    raise failure
        return self._owned([values[slot] for slot in self.plan.outputs], arrays)

    def _thread_pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "partita-step")
            return self._threads

    def _with_targets(self, buffers: list[list[Any] | None], arrays: list[Any], out: Sequence[Wanted | None]) -> list[Any]:
        """The buffers with the caller's arrays for outputs that a device may write directly, and ON_DEVICE for those that it may
        leave in its memory."""
        mixed = list(buffers)
        for slot, target in zip(self.plan.outputs, out, strict=True):
            position = self._maker.get(slot)
            if target is None or position is None:
                continue
            step = self.plan.steps[position[0]]
            if isinstance(target, (DeviceArray, Destination)) and (slot in self._read or self.plan.outputs.count(slot) > 1):
                continue
            if isinstance(step, RunStep) and _takes(step, position[1], target, arrays):
                listed = list(mixed[position[0]] or [None] * len(step.makes))
                listed[position[1]] = target
                mixed[position[0]] = listed
        return mixed

    def _owned(self, values: list[Any], arrays: list[Any], out: Sequence[Wanted | None] | None = None) -> list[Any]:
        """The values, copied if they are not owned: the caller's inputs, constants, or a value that occurs twice."""
        shares = Spans(arrays).may_share if len(values) > FEW else partial(_may_share_any, arrays)
        if out is None and len(values) == 1 and self._is_fresh(values[0], shares, arrays):
            return values
        if out is not None:
            values = [self._copied(value) if _is_overwritten(value, i, out) else value for i, value in enumerate(values)]
        overlap = len(values) > 1 and Spans(values).overlap
        given = set() if out is None else set(map(id, out))
        for i, value in enumerate(values):
            wanted = None if out is None else out[i]
            if isinstance(wanted, Destination) and self._stays_on_device(i, value):
                values[i] = self._left(i, value, [*arrays, *values[:i]])
            elif wanted is not None and not isinstance(wanted, Destination):
                values[i] = value if value is wanted else _copied_to(wanted, value, i)
            elif (
                id(value) not in given
                and self._is_fresh(value, shares, arrays)
                and not (overlap and _may_share_any(values[:i], value))
            ):
                given.add(id(value))
            else:
                values[i] = self._copied(value)
        return values

    def _stays_on_device(self, output: int, value: Any) -> bool:
        """True if the value is on a device, or its device could have left it there."""
        if isinstance(value, DeviceArray):
            return True
        step, _ = self._maker.get(self.plan.outputs[output], (None, 0))
        unit = None if step is None else self.plan.steps[step].unit
        return unit is not None and unit.keeps_arrays and isinstance(value, np.ndarray) and not value.dtype.hasobject

    def _left(self, output: int, value: Any, before: Sequence[Any]) -> DeviceArray:
        """The value as an array on the device that makes it, which shares no memory with the arrays in `before`: the inputs and
        the earlier outputs."""
        if not isinstance(value, DeviceArray):
            return self.plan.steps[self._maker[self.plan.outputs[output]][0]].unit.put(value)
        return value.copied() if any(value.shares(other) for other in before) else value

    def _is_fresh(self, value: Any, shares: Callable[[Array], bool], arrays: list[Any]) -> bool:
        """True for an array that is a view of no input and no constant. Memory that numpy does not own is an engine's, which
        never lends constants."""
        if type(value) is not np.ndarray:
            return False
        base = value.base
        if base is None:
            return id(value) not in self.constants and not any(value is array for array in arrays)
        if isinstance(base, np.ndarray) and id(root(base)) in self.constants:
            return False
        return not shares(value)

    def _copied(self, value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            return np.array(value)
        if isinstance(value, DeviceArray):
            return value.numpy()
        return [self._copied(item) for item in value] if isinstance(value, list) else value


def _may_share_any(others: Sequence[Any], value: Array) -> bool:
    """True if the array may share memory with one of these."""
    return bool([other for other in others if isinstance(other, np.ndarray) and np.may_share_memory(value, other)])


def _run_step(step: Step, values: Values, observer: Observer | None) -> None:
    """Runs a step without buffers."""
    if observer is None:
        step.run(values, None, None)
    else:
        observer(step, lambda: step.run(values, None, None))


def _copied_to(target: Target, value: Any, output: int) -> Target:
    array = np.asarray(value)
    if array.shape != target.shape or array.dtype != target.dtype:
        cause = f"the output is {array.dtype.name}{list(array.shape)}, and the array {target.dtype.name}{list(target.shape)}"
        raise InputError(cause, where=f"out for output {output}")
    if isinstance(target, DeviceArray):
        target.fill(array)
    else:
        np.copyto(target, array)
    return target


def _is_overwritten(value: Any, output: int, out: Sequence[Wanted | None]) -> bool:
    """True if the value, which may be an input, may overlap the target of another output."""
    others = [target for i, target in enumerate(out) if i != output and isinstance(target, np.ndarray)]
    return isinstance(value, np.ndarray) and any(np.may_share_memory(value, target) for target in others)


def _takes(step: RunStep, output: int, target: Wanted, arrays: list[Any]) -> bool:
    """True if the device may write this output directly to the caller's array, or leave it in its memory."""
    if isinstance(target, Destination):
        return step.unit.keeps_arrays
    if isinstance(target, DeviceArray):
        stated = array_layout(step.types[output]) == (target.dtype, target.shape)
        return stated and step.unit.compiled.takes(target) and not any(map(target.shares, arrays))
    return (
        step.unit.memory == HOST
        and array_layout(step.types[output]) == (target.dtype, target.shape)
        and target.flags.writeable
        and is_laid_out(target, step.unit.compiled.alignment)
        and not any(isinstance(array, np.ndarray) and np.may_share_memory(target, array) for array in arrays)
    )


def root(array: Array) -> Array:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


_WORTH = 0.001
"""Seconds: shorter calls run concurrently only if PARALLEL says so."""

_TRIES = 3
"""Number of measured calls of each kind, after a warm-up call of each."""

_GAIN = 0.9
"""Concurrent runs are kept if they take less than this fraction of the time."""


class ConcurrencyTrial:
    """Decides if independent subgraphs run concurrently: the first calls alternate between both ways; then the faster one
    stays."""

    def __init__(self, decided: bool | None) -> None:
        self.decided = decided
        """True if independent subgraphs run concurrently. None while both ways are being tried."""
        self._guard = Guard()
        self._asked = 0
        self._seconds: dict[bool, list[float]] = {False: [], True: []}

    def next(self) -> bool:
        """True if this call runs independent subgraphs concurrently."""
        if self.decided is not None:
            return self.decided
        with self._guard.lock:
            self._asked += 1
            return self._asked % 2 == 0

    def note(self, side_by_side: bool, seconds: float) -> None:
        """Records the seconds of a call."""
        if self.decided is not None:
            return
        with self._guard.lock:
            self._seconds[side_by_side].append(seconds)
            turns, levels = self._seconds[False], self._seconds[True]
            if len(turns) > 1 and min(turns) < _WORTH:
                self.decided = False
            elif min(len(turns), len(levels)) > _TRIES:
                self.decided = min(levels[1:]) < _GAIN * min(turns[1:])


class Spans:
    """The byte ranges of arrays, including gaps between their elements. A query takes logarithmic time."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        listed = [array for array in arrays if isinstance(array, np.ndarray) and array.size]
        spans = sorted(map(_span, listed))
        self._starts = [start for start, _ in spans]
        self._ends = list(accumulate([end for _, end in spans], max))
        """For each span, the largest end of it and of all that begin before it."""

    @property
    def overlap(self) -> bool:
        """True if two of the arrays may share memory."""
        return any(start < end for start, end in zip(self._starts[1:], self._ends))

    def may_share(self, array: Array) -> bool:
        """True if the array may share memory with one of them, by the criterion of numpy's `may_share_memory`."""
        if not array.size:
            return False
        start, end = _span(array)
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start


def _span(array: Array) -> tuple[int, int]:
    """The address of an array's first byte, and of the byte after its last one."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.forc:
        return start, start + array.nbytes
    reaches = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + array.itemsize
