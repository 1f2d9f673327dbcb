"""A compiled subgraph that a GPU runs from a list of launches."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from accelerators.arrays.on_device import DeviceArray, Target
from accelerators.errors import RunError
from accelerators.interface.accelerator import ProfileRow
from accelerators.tvm.code.launches import Number
from accelerators.tvm.compiled.assembling import Assembled
from accelerators.tvm.compiled.shown import Origin
from accelerators.tvm.compiled.step_list import StepList
from accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, RunsOn
from graph.types import Array


class Session(Protocol):
    """A subgraph's place on a device: its memory, with the weights, and all that its launches need."""

    def run(self, inputs: Sequence[Any], targets: Mapping[int, Target]) -> list[Target]:
        """The results, in the arrays meant for them where there are any."""

    def times(self) -> dict[int, float]:
        """Microseconds of each kernel of the last run."""


class CompiledSteps(CompiledTvm):
    """A subgraph in a GPU's memory: weights stay there, and launches are queued one behind the other, one run at a time."""

    def __init__(
        self,
        assembled: Assembled,
        launches: Sequence[Launch],
        origins: Sequence[Origin] | Callable[[], CompiledTvm],
        runs_on: RunsOn,
        perf_count: bool,
    ) -> None:
        super().__init__(assembled, launches, origins, runs_on, perf_count)
        self.binaries: dict[str, bytes] = {}
        """The built programs that came with it, by what tells one from another."""
        self._program: Any = None
        self._session: Session | None = None

    @property
    def step_list(self) -> StepList:
        """What the device does."""
        return self._assembled.executable  # type: ignore[no-any-return]

    @abstractmethod
    def all_binaries(self) -> dict[str, bytes]:
        """The built programs, those for the device here among them."""

    @abstractmethod
    def source_to_export(self) -> str:
        """The source that goes with an export."""

    @abstractmethod
    def _new_session(self) -> Session: ...

    @abstractmethod
    def _driver_errors(self) -> AbstractContextManager[None]:
        """Inside, what the driver complains of is a RunError."""

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, copied from the device: straight into the arrays of `out` where there are any."""
        with self._lock:
            try:
                with self._driver_errors():
                    session = self._session = self._session or self._new_session()
                    results = session.run(inputs, self._targets(out))
                    if self._perf_count:
                        self._rows = self._measured_rows(session.times())
            except RunError:
                self._session = None  # The next run begins anew: a queue that failed may stay so.
                raise
        return self._checked([self._result(origin, results, inputs) for origin in self._assembled.outputs])

    def _targets(self, out: Sequence[Any] | None) -> dict[int, Target]:
        """By the number of a result, the array of the caller's that it is copied to. One result may be several outputs: it goes
        to the first array, and whoever gave the others copies it."""
        targets: dict[int, Target] = {}
        for origin, target in zip(self._assembled.outputs, out or ()):
            if not isinstance(origin, np.ndarray) and origin >= 0 and _is_in_one_piece(target):
                targets.setdefault(origin, target)
        return targets

    @staticmethod
    def _result(origin: int | Array, results: Sequence[Target], inputs: Sequence[Any]) -> Target:
        if isinstance(origin, np.ndarray):
            return origin.copy()
        return np.array(inputs[~origin], order="C") if origin < 0 else results[origin]

    def let_go(self) -> None:
        """The queue and the memory go."""
        with self._lock:
            self._session = None

    def renew(self) -> None:
        """A forked process cannot use the device; asked to, it says so."""
        self._lock, self._session = threading.Lock(), None

    def _again(self, perf_count: bool) -> CompiledSteps:
        """The same program with a queue and memory of its own."""
        again = type(self)(self._assembled, self.launches, self._origins, self.runs_on, perf_count)
        again.binaries, again._program = self.binaries, self._program
        return again

    def _measured_rows(self, times: Mapping[int, float]) -> list[ProfileRow]:
        """A row for each kernel, from the device's own clock."""
        rows = []
        for number, launch in enumerate(self.launches):
            name, spent = launch.nodes[0], times.get(number, 0.0)
            rows.append(ProfileRow(name, launch.layer_type, "EXECUTED", spent, 0.0, launch.runs, launch.types))
        return rows

    def export(self) -> bytes:
        """The launches, and the built programs, without the weights."""
        from accelerators.tvm.compiled import step_travel  # upward: the interface has export as a method

        return step_travel.export(self)


def bound_arrays(
    steps: StepList, inputs: Sequence[Any], targets: Mapping[int, Target], kind: type[DeviceArray]
) -> dict[int, Any]:
    """By the number of a piece of memory, the array of this kind that kernels read or write in its place. What is an input's or a
    weight's own memory too is copied to its target at the end."""
    reading = {slot.block for slot in steps.inputs}
    bound = {steps.inputs[i].block: array for i, array in enumerate(inputs) if isinstance(array, kind)}
    for i, target in targets.items():
        if isinstance(target, kind) and steps.outputs[i].block not in reading:
            bound.setdefault(steps.outputs[i].block, target)
    return bound


def uses_of(steps: StepList, bound: Mapping[int, Any]) -> Iterator[tuple[int, int, int]]:
    """Each launch and the number of its argument that is one of these pieces of memory, with the piece."""
    for number, step in enumerate(steps.steps if bound else ()):
        for position, argument in enumerate(step.arguments):
            if not isinstance(argument, Number) and argument in bound:
                yield number, position, argument


def _is_in_one_piece(target: Target | None) -> bool:
    """Can a result be copied to it as it is?"""
    return isinstance(target, DeviceArray) or (target is not None and target.flags.carray)
