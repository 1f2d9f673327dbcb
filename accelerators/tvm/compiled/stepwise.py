"""A compiled subgraph that a GPU runs from a list of launches."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray, Target, Wanted
from partita.accelerators.errors import RunError
from partita.accelerators.interface.accelerator import COPY, ProfileRow
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.launch_list import StepList
from partita.accelerators.tvm.compiled.open_steps import OpenSteps
from partita.accelerators.tvm.compiled.shown import Origin
from partita.accelerators.tvm.compiled.steps_turn import StepsTurn
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, RunsOn
from partita.graph.types import Array

KEPT = 8
"""The number of sizes whose memory on the device is kept."""

Shapes = tuple[tuple[int, ...], ...]
"""The sizes of all inputs."""


class Session(Protocol):
    """A subgraph's place on a device: its memory, with the weights, and all that its launches need."""

    def send(self, number: int, array: Array) -> None:
        """Let an input of the run that comes next go to the device."""

    def begin(self, inputs: Sequence[Any], wanted: Mapping[int, Wanted]) -> None:
        """Have a run's copies and launches queued, all but the inputs that were sent."""

    def finish(self) -> list[Target]:
        """The results of the run that was begun, in the arrays and places meant for them where there are any."""

    def wait(self) -> None:
        """Wait for all that is queued: the next run begins anew."""

    def times(self) -> dict[int, float]:
        """Microseconds of each kernel of the last run."""

    def copy_times(self) -> list[tuple[bool, int, float]]:
        """Each copy of the last run between host and device: true for an input, its number or the result's, microseconds."""


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
        self.overlaps = isinstance(self.step_list, StepList)
        self.binaries: dict[str, bytes] = {}
        """The built programs that came with it, by what tells one from another."""
        self._program: Any = None
        self._sessions: OrderedDict[Shapes, Session] = OrderedDict()
        """The place for each size, that of the last run at the end; () where all sizes are known."""
        self._resident: list[Any] | None = None
        """The weights on the device, where the sessions of all sizes share them."""
        self._keeps_memory = True
        """Does the memory on the device stay for the next run?"""

    @property
    def step_list(self) -> StepList | OpenSteps:
        """What the device does."""
        return self._assembled.executable  # type: ignore[no-any-return]

    @abstractmethod
    def all_binaries(self) -> dict[str, bytes]:
        """The built programs, those for the device here among them."""

    @abstractmethod
    def source_to_export(self) -> str:
        """The source that goes with an export."""

    @abstractmethod
    def _new_session(self, steps: StepList, weights: Sequence[Array]) -> Session: ...

    @abstractmethod
    def _put(self, weight: Array) -> DeviceArray:
        """A copy of a weight on the device, for sessions of several sizes."""

    @abstractmethod
    def _driver_errors(self) -> AbstractContextManager[None]:
        """Inside, what the driver complains of is a RunError."""

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, copied from the device: straight into the arrays of `out` where there are any."""
        with self._lock:
            turn = StepsTurn(self, _nothing)
            try:
                turn.begin(inputs, out)
                return turn.finish()
            finally:
                turn.give_up()

    def turn(self, waits: bool = True) -> StepsTurn | None:
        """The next turn to run it; None if another has its turn and that is not to be waited for."""
        lock = self._lock
        return StepsTurn(self, lock.release) if lock.acquire(blocking=waits) else None

    @contextmanager
    def working(self, inputs: Sequence[Any] | None = None) -> Iterator[Session]:
        """The session for these inputs, or that of the run which was begun, while the lock is held. After an error the next run
        begins anew: a queue that failed may stay so."""
        try:
            with self._driver_errors():
                yield self._session_for(inputs)
        except BaseException:
            self._forget()
            raise

    def _session_for(self, inputs: Sequence[Any] | None) -> Session:
        """That of the inputs' sizes, where those are not known when it is compiled: the last ones that came have theirs still."""
        steps, shapes = self.step_list, Shapes()
        if isinstance(steps, OpenSteps):
            shapes = next(reversed(self._sessions)) if inputs is None else tuple([tuple(array.shape) for array in inputs])
        session = self._sessions.pop(shapes, None)
        if session is None and isinstance(steps, OpenSteps):
            session = self._session_of(steps, shapes)
        elif session is None:
            assert isinstance(steps, StepList)
            session = self._new_session(steps, self._assembled.weights)
        self._sessions[shapes] = session
        return session

    def _session_of(self, steps: OpenSteps, shapes: Shapes) -> Session:
        """A new one for inputs of these shapes; those that came longest ago go, and all where there is no room beside them."""
        if self._resident is None:
            self._resident = [self._put(weight) for weight in self._assembled.weights]
        while len(self._sessions) >= KEPT:
            self._sessions.popitem(last=False)
        known = steps.at(steps.sizes_of(shapes), range(len(shapes), len(steps.inputs)))
        try:
            return self._new_session(known, ())
        except RunError:
            if not self._sessions:
                raise
        self._sessions.clear()
        return self._new_session(known, ())

    def with_weights(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """What goes into a session in a run with these inputs."""
        return [*inputs, *self._resident] if self._resident else inputs

    def note_times(self, session: Session) -> None:
        """Keep the rows of the run, where they are asked for."""
        if self._perf_count:
            self._rows = self._measured_rows(session.times(), session.copy_times())

    def outputs(self, results: Sequence[Target], inputs: Sequence[Any]) -> Sequence[Any]:
        """What the body's outputs are, of what the device computed; RunError where that says that something is wrong."""
        return self._checked([self._result(origin, results, inputs) for origin in self._assembled.outputs])

    def targets(self, out: Sequence[Any] | None) -> dict[int, Wanted]:
        """By the number of a result, the array of the caller's that it is copied to, or ON_DEVICE. One result may be several
        outputs: it goes to the first of these, and whoever gave the others copies it."""
        targets: dict[int, Wanted] = {}
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
        """The queue and the memory go; those of a run that comes later go with its end."""
        with self._lock:
            self._keeps_memory = False
            self._forget()

    def run_is_over(self) -> None:
        """Whoever has the lock has nothing more to run. A call that has begun before the model was closed may come to this
        subgraph afterwards."""
        if not self._keeps_memory:
            self._forget()

    def renew(self) -> None:
        """A forked process cannot use the device; asked to, it says so."""
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        """The memory on the device goes, unless another still uses the weights there."""
        self._sessions.clear()
        self._resident = None

    def _again(self, perf_count: bool) -> CompiledSteps:
        """The same program with a queue and memory of its own."""
        again = type(self)(self._assembled, self.launches, self._origins, self.runs_on, perf_count)
        again.binaries, again._program, again._resident = self.binaries, self._program, self._resident
        again._keeps_memory = self._keeps_memory
        return again

    def _measured_rows(self, times: Mapping[int, float], copies: Sequence[tuple[bool, int, float]]) -> list[ProfileRow]:
        """A row for each copy and each kernel, from the device's own clock."""
        rows = []
        for number, launch in enumerate(self.launches):
            name, spent = launch.nodes[0], times.get(number, 0.0)
            rows.append(ProfileRow(name, launch.layer_type, "EXECUTED", spent, 0.0, launch.runs, launch.types))
        results = {origin: i for i, origin in enumerate(self._assembled.outputs) if isinstance(origin, int)}
        sent = [copy_row(f"input {number}", spent, True) for up, number, spent in copies if up]
        return [*sent, *rows, *(copy_row(f"output {results.get(n, n)}", spent, False) for up, n, spent in copies if not up)]

    def export(self) -> bytes:
        """The launches, and the built programs, without the weights."""
        # upward: the interface has export as a method
        from partita.accelerators.tvm.compiled import step_travel

        return step_travel.export(self)


def copy_row(value: str, real_us: float, up: bool) -> ProfileRow:
    """The row of a copy between the host and the device."""
    return ProfileRow(value, COPY, "EXECUTED", real_us, 0.0, "host to device" if up else "device to host")


def _nothing() -> None:
    """The lock is given back elsewhere."""


def bound_arrays(
    steps: StepList, inputs: Sequence[Any], targets: Mapping[int, Wanted], kind: type[DeviceArray]
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


def _is_in_one_piece(target: Wanted | None) -> bool:
    """Can a result be copied to it as it is?"""
    if isinstance(target, np.ndarray):
        return bool(target.flags.carray)
    return target is not None
