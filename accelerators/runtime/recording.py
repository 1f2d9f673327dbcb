"""The recorder: inspects the values between subgraphs, or compares some calls with numpy, while a model is in use."""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.arrays.distance import distance
from partita.accelerators.arrays.layout import HOST
from partita.accelerators.building.units import Unit
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.runtime.executor import Observer, Runs
from partita.accelerators.runtime.recorded import Recorded, RecordedValue, Sample
from partita.accelerators.runtime.steps import RunStep, Step, Values
from partita.accelerators.store.capsules.keeping import keep_failure
from partita.graph.interpret import interpret

if TYPE_CHECKING:
    from pathlib import Path


SHARE = 0.02
"""The recorder skips inspection if it would exceed this fraction of the time of all calls."""

_Key = tuple[str, str, int]
"""A value's key: device, subgraph, and the number of the subgraph's output."""

LONGEST = 1000
"""Maximum number of calls between two that are timed."""

MOST_SAMPLES = 1000
"""Maximum number of wrong samples kept, the first ones, and of right samples, the last ones."""

NICE = 19
"""The niceness of the thread that computes samples: it runs only on idle cores."""


class Recorder:
    """Runs a model's calls and inspects some of them."""

    def __init__(self, mode: str, capsules: Path | None = None) -> None:
        self.mode = mode
        self.every = int(mode.partition(":")[2]) if mode.startswith("sample:") else 0
        self.capsules = capsules
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Resets the recorder, as in a forked process."""
        self._lock = threading.Lock()
        self._computed = threading.Condition(self._lock)
        self._calls = self._looked = self._last = 0
        self._due = 1
        self._elapsed = self._spent = self._latest = self._pace = 0.0
        self._values: dict[_Key, RecordedValue] = {}
        self._wrong: list[Sample] = []
        self._right: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._sampled = self._accepted = self._done = 0
        self._waiting: list[_Taken] | None = None
        self._thread: threading.Thread | None = None

    def due(self) -> int:
        """The number of this call if it may be inspected; 0 for one that runs as without a recorder."""
        with self._lock:
            self._calls += 1
            is_due = self._calls % self.every == 0 if self.every else self._calls >= self._due
            return self._calls if is_due else 0

    def run(
        self, executor: Runs, arrays: list[Any], out: Sequence[Any] | None, observer: Observer | None, number: int
    ) -> list[Any]:
        """The outputs of a call that is due, which is inspected if there is time for it."""
        start, looking = perf_counter(), 0.0
        with self._lock:
            looks = self.every > 0 or number == 1 or self._can_afford()
        if looks:
            look = _Look(self, number)
            outputs = executor.run(arrays, out, observer, look)
            looking = look.finish()
        else:
            outputs = executor.run(arrays, out, observer, in_turn=True)
        with self._lock:
            self._timed(number, perf_counter() - start, looking)
        return outputs

    def _timed(self, number: int, seconds: float, looking: float) -> None:
        """Adds the time of this call, and estimates that of the calls since the last timed one: each counts as the shorter of the
        two. Then chooses the next call to time, unless every N-th call is sampled: half-way to the call at which an inspection
        can be afforded."""
        own = seconds - looking
        self._elapsed += seconds + max(0, number - self._last - 1) * min(self._pace, own)
        self._pace, self._last = own, max(self._last, number)
        if not self.every:
            missing = (self._spent + self._latest) / SHARE - self._elapsed
            self._due = number + 1 + min(LONGEST, int(max(0.0, missing) / (2 * own))) if own > 0 else number + 1

    def _can_afford(self) -> bool:
        """True if one more inspection, as long as the last one, would stay within SHARE."""
        return self._spent + self._latest <= SHARE * self._elapsed

    def note(self, seen: dict[_Key, RecordedValue], taken: list[_Taken], seconds: float) -> float:
        """Records the inspection of one call; returns the seconds that it took."""
        start = perf_counter()
        with self._lock:
            self._looked += 1
            for key, value in seen.items():
                self._values[key] = _joined(self._values.get(key), value)
            if taken:
                self._compare(taken)
            self._latest = seconds + perf_counter() - start
            self._spent += self._latest
            return self._latest

    def _compare(self, taken: list[_Taken]) -> None:
        """Hands a sample to a thread that ends when none is waiting. The sample is dropped if one is waiting already."""
        if self._waiting is None:
            self._waiting = taken
            self._accepted += 1
        if self._thread is None:
            thread = threading.Thread(target=self._compute, name="partita-recorder", daemon=True)
            with suppress(RuntimeError):  # no more threads can be started: the sample waits for a later call
                thread.start()
                self._thread = thread

    def _compute(self) -> None:
        """Computes waiting samples in numpy, at the lowest priority."""
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        waiting: list[_Taken] | None = []
        try:
            while (waiting := self._next()) is not None:
                for taken in waiting:
                    self._hold_against_numpy(taken)
        finally:
            if waiting is not None:  # it ended by an error
                self._end()

    def _next(self) -> list[_Taken] | None:
        """The waiting sample; None if there is none, so that the thread has to end."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            self._done = self._accepted - (waiting is not None)
            if waiting is None:
                self._thread = None
            self._computed.notify_all()
            return waiting

    def _end(self) -> None:
        """Lets the next call start another thread."""
        with self._lock:
            self._thread = None
            self._computed.notify_all()

    def _hold_against_numpy(self, taken: _Taken) -> None:
        sample, unit = taken.compared(), taken.unit
        with self._lock:
            self._sampled += 1
            if sample.ok:
                self._right.append(sample)
            elif len(self._wrong) < MOST_SAMPLES:
                self._wrong.append(sample)
        if not sample.ok and self.capsules is not None:
            reason = f"error {sample.error:.1e} in call {sample.call}"
            keep_failure(self.capsules, unit.name, unit.body, unit.device, unit.config, reason, taken.inputs)

    def recorded(self) -> Recorded:
        """The results so far. Waits for the samples taken so far, but not for later ones."""
        with self._lock:
            thread, goal = self._thread, self._accepted
            self._computed.wait_for(lambda: self._thread is None or self._done >= goal)
            is_ending = thread is not None and self._thread is None
        if thread is not None and is_ending:
            thread.join()
        with self._lock:
            share = self._spent / self._elapsed if self._elapsed else 0.0
            samples = tuple(sorted([*self._wrong, *self._right], key=lambda sample: sample.call))
            return Recorded(self.mode, self._calls, self._looked, share, tuple(self._values.values()), samples, self._sampled)


@attrs.frozen(slots=True, eq=False)
class _Taken:
    """Copies of the inputs and outputs of one run of a subgraph."""

    call: int
    unit: Unit
    inputs: list[Any]
    outputs: list[Any]

    def compared(self) -> Sample:
        try:
            expected = interpret(self.unit.body, self.inputs)
            error = distance(self.outputs, expected)
        except Exception as failure:  # noqa: BLE001  a user's op may raise anything: the sample records it
            return Sample(self.call, self.unit.name, self.unit.device.label, None, f"{type(failure).__name__}: {failure}")
        return Sample(self.call, self.unit.name, self.unit.device.label, error)


class _Look:
    """The inspection of one call, step by step."""

    def __init__(self, recorder: Recorder, call: int) -> None:
        self.recorder, self.call = recorder, call
        self.seen: dict[_Key, RecordedValue] = {}
        self.taken: list[_Taken] = []
        self.seconds = 0.0

    def __call__(self, step: Step, values: Values) -> None:
        """Inspects the outputs of a step. Values in a device's own memory are skipped."""
        if not isinstance(step, RunStep) or step.unit.memory != HOST:
            return
        start = perf_counter()
        if self.recorder.every:
            copies = [[_copied(values[slot]) for slot in slots] for slots in (step.reads, step.makes)]
            self.taken.append(_Taken(self.call, step.unit, *copies))
        for number, (slot, entry) in enumerate(zip(step.makes, step.unit.body.outputs, strict=True)):
            value = RecordedValue(entry.name, step.unit.name, step.unit.device.label)
            key = step.unit.device.label, step.unit.name, number
            self.seen[key] = _looked_at(value, values[slot], self.call, self.recorder.mode == "checksums")
        self.seconds += perf_counter() - start

    def finish(self) -> float:
        """Passes the results to the recorder; returns the seconds that inspection took."""
        return self.recorder.note(self.seen, self.taken, self.seconds)


def _copied(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def _looked_at(value: RecordedValue, array: Any, call: int, checksums: bool) -> RecordedValue:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return attrs.evolve(value, calls=1)
    checksum = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if checksums else None
    if not array.size or not (array.dtype.kind in "fiu" or "float" in array.dtype.name):
        return attrs.evolve(value, calls=1, checksum=checksum)
    low, high = float(array.min()), float(array.max())
    if np.isfinite(low) and np.isfinite(high):
        return attrs.evolve(value, calls=1, low=low, high=high, checksum=checksum)
    wide = array.astype(np.float64)
    finite, nans = wide[np.isfinite(wide)], int(np.isnan(wide).sum())
    bounds: tuple[float | None, float | None] = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    infinities = int(wide.size - finite.size - nans)
    return attrs.evolve(
        value, calls=1, nans=nans, infinities=infinities, first=call, low=bounds[0], high=bounds[1], checksum=checksum
    )


def _joined(before: RecordedValue | None, now: RecordedValue) -> RecordedValue:
    """Merges the statistics of one value from two calls."""
    if before is None:
        return now
    return attrs.evolve(
        now,
        calls=before.calls + now.calls,
        nans=before.nans + now.nans,
        infinities=before.infinities + now.infinities,
        first=now.first if before.first is None else before.first,
        low=_of_both(min, before.low, now.low),
        high=_of_both(max, before.high, now.high),
    )


def _of_both(choose: Callable[..., float], a: float | None, b: float | None) -> float | None:
    known = [number for number in (a, b) if number is not None]
    return choose(known) if known else None
