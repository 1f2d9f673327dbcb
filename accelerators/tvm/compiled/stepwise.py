"""A compiled subgraph that a GPU runs from a list of launches."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray, Target, Wanted
from partita.accelerators.errors import RunError
from partita.accelerators.interface.accelerator import COPY, EXECUTED, ProfileRow, Turn
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.launch_list import OpenSteps, StepList
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, Origin, RunsOn
from partita.graph.types import Array

KEPT = 8
"""Maximum number of sizes whose memory on the device is kept."""

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs."""


class Session(Protocol):
    """Resources of a subgraph on a device: memory that includes the weights, and all that its launches need."""

    def send(self, number: int, array: Array) -> None:
        """Send an input of the next run to the device."""

    def begin(self, inputs: Sequence[Any], wanted: Mapping[int, Wanted]) -> None:
        """Queue the copies and launches of a run, except for inputs that were sent before."""

    def finish(self) -> list[Target]:
        """Results of the run that was begun, in the arrays and places given for them, if any."""

    def wait(self) -> None:
        """Wait for all queued calls; the next run begins anew."""

    def times(self) -> dict[int, float]:
        """Microseconds of each kernel of the last run."""

    def copy_times(self) -> list[tuple[bool, int, float]]:
        """Copies of the last run between host and device: True for an input, the index of the input or result, microseconds."""


class CompiledSteps(CompiledTvm):
    """A subgraph on a GPU: weights stay in its memory, launches are queued in order, and one run is active at a time."""

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
        """Built programs that came with it, by driver or digest."""
        self._program: Any = None
        self._sessions: OrderedDict[Shapes, Session] = OrderedDict()
        """Session for each set of input shapes, most recently used last; key () if all sizes are static."""
        self._resident: list[Any] | None = None
        """Weights on the device, shared by the sessions of all sizes."""
        self._keeps_memory = True
        """True if the memory on the device stays for the next run."""

    @property
    def step_list(self) -> StepList | OpenSteps:
        """The launches on the device."""
        return self._assembled.executable  # type: ignore[no-any-return]

    @abstractmethod
    def all_binaries(self) -> dict[str, bytes]:
        """The built programs, including those for this device."""

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
        """A context in which errors of the driver become RunError."""

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, copied from the device: directly into the arrays of `out` if given."""
        with self._lock:
            turn = StepsTurn(self, _nothing)
            try:
                turn.begin(inputs, out)
                return turn.finish()
            finally:
                turn.give_up()

    def turn(self, waits: bool = True) -> StepsTurn | None:
        """The next turn to run it; None if another turn is active and `waits` is False."""
        lock = self._lock
        return StepsTurn(self, lock.release) if lock.acquire(blocking=waits) else None

    @contextmanager
    def working(self, inputs: Sequence[Any] | None = None) -> Iterator[Session]:
        """The session for these inputs, or of the run that was begun, while the lock is held. After an error the next run begins
        anew, because a failed queue may stay so."""
        try:
            with self._driver_errors():
                yield self._session_for(inputs)
        except BaseException:
            self._forget()
            raise

    def _session_for(self, inputs: Sequence[Any] | None) -> Session:
        """The session; with dynamic sizes, the one for these input shapes, if it is still kept, else a new one."""
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
        """A new session for these shapes. The least recently used ones are dropped, and all if memory is short."""
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
        """Inputs of a session in a run with these inputs."""
        return [*inputs, *self._resident] if self._resident else inputs

    def note_times(self, session: Session) -> None:
        """Keep the profile rows of the run, if they were requested."""
        if self._perf_count:
            self._rows = self._measured_rows(session.times(), session.copy_times())

    def outputs(self, results: Sequence[Target], inputs: Sequence[Any]) -> Sequence[Any]:
        """Outputs of the body from the device's results; RunError if a flag among these reports an error."""
        return self._checked([self._result(origin, results, inputs) for origin in self._assembled.outputs])

    def targets(self, out: Sequence[Any] | None) -> dict[int, Wanted]:
        """Target by index of the result: an array of the caller's, or ON_DEVICE. A result that is several outputs is copied to
        the first of their arrays; the caller copies it to the others."""
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
        """Free the queue and the memory; those of later runs are freed when they end."""
        with self._lock:
            self._keeps_memory = False
            self._forget()

    def run_is_over(self) -> None:
        """Called at the end of a run, with the lock held. A call that began before the model was closed may reach this subgraph
        afterwards."""
        if not self._keeps_memory:
            self._forget()

    def renew(self) -> None:
        """In a forked process, which cannot use the device: drop everything. Another run raises an error."""
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        """Free the memory on the device, except weights that another object still uses."""
        self._sessions.clear()
        self._resident = None

    def _again(self, perf_count: bool) -> CompiledSteps:
        """The same program with a queue and memory of its own."""
        again = type(self)(self._assembled, self.launches, self._origins, self.runs_on, perf_count)
        again.binaries, again._program, again._resident = self.binaries, self._program, self._resident
        again._keeps_memory = self._keeps_memory
        return again

    def _measured_rows(self, times: Mapping[int, float], copies: Sequence[tuple[bool, int, float]]) -> list[ProfileRow]:
        """A row for each copy and each kernel, measured by the device's own clock."""
        rows = []
        for number, launch in enumerate(self.launches):
            name, spent = launch.nodes[0], times.get(number, 0.0)
            rows.append(ProfileRow(name, launch.layer_type, EXECUTED, spent, 0.0, launch.runs, launch.types))
        results = {origin: i for i, origin in enumerate(self._assembled.outputs) if isinstance(origin, int)}
        sent = [copy_row(f"input {number}", spent, True) for up, number, spent in copies if up]
        return [*sent, *rows, *(copy_row(f"output {results.get(n, n)}", spent, False) for up, n, spent in copies if not up)]

    def export(self) -> bytes:
        """The launches and the built programs, without the weights."""
        from partita.accelerators.tvm.compiled import gpu_serialization  # upward: the interface has export as a method

        return gpu_serialization.export(self)


def copy_row(value: str, real_us: float, up: bool) -> ProfileRow:
    """Profile row of a copy between the host and the device."""
    return ProfileRow(value, COPY, EXECUTED, real_us, 0.0, "host to device" if up else "device to host")


def _nothing() -> None:
    """No release: the lock is released elsewhere."""


def bound_arrays(
    steps: StepList, inputs: Sequence[Any], targets: Mapping[int, Wanted], kind: type[DeviceArray]
) -> dict[int, Any]:
    """Array of this kind that kernels read or write in place of a memory block, by index of the block. A result in the memory of
    an input or weight is instead copied to its target at the end."""
    reading = {slot.block for slot in steps.inputs}
    bound = {steps.inputs[i].block: array for i, array in enumerate(inputs) if isinstance(array, kind)}
    for i, target in targets.items():
        if isinstance(target, kind) and steps.outputs[i].block not in reading:
            bound.setdefault(steps.outputs[i].block, target)
    return bound


def uses_of(steps: StepList, bound: Mapping[int, Any]) -> Iterator[tuple[int, int, int]]:
    """Each use of one of these memory blocks: index of the launch, index of its argument, block."""
    for number, step in enumerate(steps.steps if bound else ()):
        for position, argument in enumerate(step.arguments):
            if not isinstance(argument, Number) and argument in bound:
                yield number, position, argument


def _is_in_one_piece(target: Wanted | None) -> bool:
    """True if a result can be copied to the target as it is."""
    if isinstance(target, np.ndarray):
        return bool(target.flags.carray)
    return target is not None


class StepsTurn(Turn):
    """A turn whose creator holds the subgraph's lock; `release` releases it at the end of the turn."""

    def __init__(self, compiled: CompiledSteps, release: Callable[[], None]) -> None:
        self._compiled = compiled
        self._release: Callable[[], None] | None = release
        self._inputs: Sequence[Any] = ()

    def send(self, number: int, array: Any) -> None:
        """Queue the copy of one input."""
        with self._working() as session:
            session.send(number, array)

    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Queue everything else of the run."""
        with self._working(inputs) as session:
            session.begin(self._compiled.with_weights(inputs), self._compiled.targets(out))
        self._inputs = inputs

    def finish(self) -> Sequence[Any]:
        """Wait for the queue and return the outputs."""
        with self._working() as session:
            results = session.finish()
            self._compiled.note_times(session)
        self._end()
        return self._compiled.outputs(results, self._inputs)

    def give_up(self) -> None:
        """Wait for the queue and ignore errors."""
        if self._release is not None:
            with suppress(Exception), self._working() as session:
                session.wait()
            self._end()

    @contextmanager
    def _working(self, inputs: Sequence[Any] | None = None) -> Iterator[Session]:
        """Session of the subgraph. An error ends the turn."""
        try:
            with self._compiled.working(inputs) as session:
                yield session
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            self._compiled.run_is_over()
            release()
