"""A compiled subgraph that runs on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
import hashlib
import math
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import Destination, DeviceArray, Target, Wanted
from partita.accelerators.errors import AcceleratorUnavailable, RunError
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.code.nvcc import cubins_of_all
from partita.accelerators.tvm.compiled.launch_list import Slot, Step, StepList
from partita.accelerators.tvm.compiled.stepwise import CompiledSteps, bound_arrays, uses_of
from partita.accelerators.tvm.run.cuda_arrays import CudaArray, empty, put
from partita.accelerators.tvm.run.cuda_driver import (
    NO_MEMORY,
    RELAXED,
    CudaDriver,
    CudaError,
    DevicePieces,
    LoadedKernel,
    Owned,
    call,
    created,
    driver_of,
)
from partita.graph.types import Array, numpy_dtype

WIDEST = 16
"""Maximum bytes that a thread reads at once. A GPU aborts the process's work if they are not aligned to that."""


class CompiledCuda(CompiledSteps):
    """A subgraph as machine code for one GPU architecture."""

    @property
    def driver(self) -> CudaDriver:
        """The GPU that runs it; AcceleratorUnavailable if there is none."""
        driver = driver_of(self.runs_on.device_id)
        if driver is None:
            raise AcceleratorUnavailable(
                f"there is no GPU {self.runs_on.device_id} here: it was compiled for {self.runs_on.machine.arch} and cannot run",
                remedy="Export the model and run it where there is one, or compile for 'cpu'",
            )
        return driver

    def takes(self, array: DeviceArray) -> bool:
        """True if the array is in this GPU's memory and aligned for vector loads."""
        if not isinstance(array, CudaArray) or array.address % WIDEST:
            return False
        return array.driver is driver_of(self.runs_on.device_id)

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        driver = self.driver
        driver.check_process()
        try:
            yield
        except CudaError as error:
            remedy = "Close other models, or give it smaller inputs" if error.status == NO_MEMORY else None
            raise RunError(f"the CUDA driver failed: {error}", where=f"device {driver.name}", remedy=remedy) from error

    def _put(self, weight: Array) -> CudaArray:
        return put(self.driver, weight)

    def _new_session(self, steps: StepList, weights: Sequence[Array]) -> CudaSession:
        records = self.runs_on.records and not self._perf_count
        kernels = self.program()
        return CudaSession(steps, kernels, self.driver, weights, self._perf_count, records)

    def program(self) -> dict[str, LoadedKernel]:
        """Kernels by name, loaded by the driver."""
        if self._program is None:
            kernels = {step.kernel: step.shared for step in self.step_list.steps}
            self._program = self.driver.loaded([*self.all_binaries().values()], kernels)
        return self._program  # type: ignore[no-any-return]

    def check_code(self) -> None:
        """Compile all sources now, so that errors of the CUDA compiler appear here and not at the first run; if there is a GPU,
        also report too little memory."""
        driver = driver_of(self.runs_on.device_id)
        if driver is not None:
            with self._driver_errors():
                driver.check_memory(self.step_list.blocks)
        self.all_binaries()

    def all_binaries(self) -> dict[str, bytes]:
        """Machine code by digest of its source; an imported subgraph has all of it."""
        if not self.binaries and self.step_list.steps:
            code = cubins_of_all(self.step_list.sources, self.runs_on.machine.arch)
            self.binaries = {hashlib.sha256(source.encode()).hexdigest(): binary for source, binary in code.items()}
        return self.binaries

    def source_to_export(self) -> str:
        """Empty: nothing is compiled again, because the machine code is for one architecture."""
        return ""


RECORDED = 8
"""Maximum number of recorded runs: one for each set of GPU addresses of the caller's arrays."""


HOST, AT_HAND = 0, -1
"""Used in place of an address: a value on the host, and an input or result in the session's own memory, with no copy to queue."""


@attrs.frozen(slots=True)
class _Run:
    """Addresses that one run reads and writes."""

    inputs: tuple[int, ...]
    """Addresses of inputs on the GPU; otherwise HOST, or AT_HAND for inputs that were sent before."""
    results: tuple[int, ...]
    """Addresses of results to be stored on the GPU; otherwise HOST, or AT_HAND for results that are copied after the run."""
    bound: tuple[tuple[int, int], ...]
    """Pairs of a memory block and the address that kernels get in its place."""


class CudaSession:
    """Memory blocks that include the weights, a stream, and pinned memory for inputs and results.

    All calls of a run are queued in the stream, and the caller waits once, for the end of the run."""

    def __init__(
        self, steps: StepList, kernels: Mapping[str, LoadedKernel], driver: CudaDriver, weights: Sequence[Array], measuring: bool,
        records: bool,
    ) -> None:
        self._steps, self._driver, self._kernels = steps, driver, kernels
        self._memory = DevicePieces(driver, steps.blocks)
        pieces = self._memory.addresses
        self._blocks = (*pieces, *(pieces[part.block] + part.first for part in steps.parts))
        self._stream = driver.stream()
        self._launches = [_CudaLaunch(kernels[step.kernel].handle, step, self._blocks) for step in steps.steps]
        self._arrived = driver.event()
        self._events = [(driver.event(timed=True), driver.event(timed=True)) for _ in steps.steps] if measuring else []
        given = len(steps.inputs) - len(weights)
        ends = [*((True, i) for i in range(given)), *((False, i) for i in range(len(steps.outputs)))] if measuring else []
        self._copy_events = {end: (driver.event(timed=True), driver.event(timed=True)) for end in ends}
        self._copied: list[tuple[bool, int]] = []
        """Copies of the last run: True for an input, and the index of the input or result."""
        self._given = [_Passage(driver, slot) for slot in steps.inputs[:given]]
        self._made = [_Passage(driver, slot) for slot in steps.outputs]
        self._records = records
        self._recorded: OrderedDict[_Run, Owned] = OrderedDict()
        self._last: _Run | None = None
        self._sent: set[int] = set()
        self._results: list[Target] = []
        with driver.current():
            for slot, weight in zip(steps.inputs[given:], weights, strict=True):
                self._send(self._blocks[slot.block], np.asarray(weight, order="C"))
            self._wait()

    def send(self, number: int, array: Array) -> None:
        """Send an input of the next run to the GPU."""
        passage = self._given[number]
        with self._driver.current():
            np.copyto(passage.pinned, array)
            with self._clocked(True, number):
                self._send(self._blocks[passage.slot.block], passage.pinned)
        self._sent.add(number)

    def begin(self, inputs: Sequence[Any], wanted: Mapping[int, Wanted]) -> None:
        """Put a run into the stream. Kernels use arrays on the GPU in place.

        Results that get new arrays on the GPU are copied there after the run, so that the recorded run can be replayed."""
        slots = self._steps.outputs
        new = {i: self._room(slots[i]) for i, target in wanted.items() if isinstance(target, Destination)}
        targets = {i: target for i, target in wanted.items() if not isinstance(target, Destination)}
        bound = bound_arrays(self._steps, inputs, targets, CudaArray)
        run = _Run(
            tuple(AT_HAND if i in self._sent else _address(value) for i, value in enumerate(inputs)),
            tuple(AT_HAND if i in new else _address(targets.get(i)) for i in range(len(slots))),
            tuple((block, array.address) for block, array in bound.items()),
        )
        sent = [(True, i) for i, address in enumerate(run.inputs) if address == HOST or i in self._sent]
        self._copied = [*sent, *((False, i) for i, address in enumerate(run.results) if address == HOST)]
        for i, (passage, array) in enumerate(zip(self._given, inputs, strict=True)):
            if run.inputs[i] == HOST:
                np.copyto(passage.pinned, array)
        with self._driver.current():
            if any(address > 0 for address in (*run.inputs, *run.results)):
                self._wait_for_others()
            self._begin(run)
            for i, array in new.items():
                block = slots[i].block
                self._within(array.address, dict(run.bound).get(block, self._blocks[block]), array.nbytes)
        news = {**targets, **new}
        self._results = [
            news[i] if i in news else np.empty(slot.shape, numpy_dtype(slot.dtype)) for i, slot in enumerate(slots)
        ]

    def finish(self) -> list[Target]:
        """Waits for the run, and returns its results, in the arrays that `begin` got for them, else in new ones."""
        results = self._results
        self.wait()
        for passage, result in zip(self._made, results, strict=True):
            if isinstance(result, np.ndarray):
                np.copyto(result, passage.pinned)
        return results

    def wait(self) -> None:
        """Wait for the stream, and forget the inputs and results of the run."""
        self._sent, self._results = set(), []
        with self._driver.current():
            self._wait()

    def times(self) -> dict[int, float]:
        """Microseconds of each kernel of the last run."""
        spent: dict[int, float] = {}
        with self._driver.current():
            for step, events in zip(self._steps.steps, self._events, strict=True):
                spent[step.number] = spent.get(step.number, 0.0) + _microseconds(*events)
        return spent

    def copy_times(self) -> list[tuple[bool, int, float]]:
        """Copies of the last run between host and device, with their microseconds."""
        with self._driver.current():
            return [(*end, _microseconds(*self._copy_events[end])) for end in self._copied if end in self._copy_events]

    def _begin(self, run: _Run) -> None:
        """Put the run into the stream: recorded once two successive runs use the same addresses, and then replayed."""
        if run not in self._recorded and self._records and run == self._last:
            self._record(run)
        self._last = run
        if run in self._recorded:
            self._recorded.move_to_end(run)
            call("cuGraphLaunch", self._recorded[run].handle, self._stream.handle)
        else:
            self._queue(run)

    def _record(self, run: _Run) -> None:
        """Capture the calls of the run as a CUDA graph. If the driver cannot, later runs make their calls one by one."""
        try:
            graph = self._captured(run)
            try:
                recorded = created("cuGraphInstantiateWithFlags", graph, 0)
            finally:
                call("cuGraphDestroy", graph)
        except CudaError as error:
            self._records = False
            warnings.warn(f"its launches are made one by one, since they cannot be recorded: {error}", stacklevel=2)
            return
        self._recorded[run] = Owned(self._driver, recorded, "cuGraphExecDestroy")
        if len(self._recorded) > RECORDED:
            self._recorded.popitem(last=False)

    def _captured(self, run: _Run) -> int:
        graph = ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self._stream.handle, RELAXED)
        try:
            self._queue(run)
        finally:
            call("cuStreamEndCapture", self._stream.handle, ctypes.byref(graph))
        return graph.value or 0

    def _queue(self, run: _Run) -> None:
        """Queue all copies and launches of a run, one after another."""
        stream, bound = self._stream.handle, dict(run.bound)
        for i, (passage, address) in enumerate(zip(self._given, run.inputs, strict=True)):
            if address == HOST:
                with self._clocked(True, i):
                    self._send(self._blocks[passage.slot.block], passage.pinned)
        with self._arguments(bound):
            for number, launch in enumerate(self._launches):
                self._mark(number, 0)
                launch.begin(stream)
                self._mark(number, 1)
        for i, (passage, target) in enumerate(zip(self._made, run.results, strict=True)):
            source, size = bound.get(passage.slot.block, self._blocks[passage.slot.block]), passage.nbytes
            if target == HOST:
                with self._clocked(False, i):
                    if size:
                        call("cuMemcpyDtoHAsync_v2", passage.pinned.ctypes.data, source, size, stream)
            elif target != AT_HAND:
                self._within(target, source, size)

    def _room(self, slot: Slot) -> CudaArray:
        """A new array for a result."""
        return empty(self._driver, tuple(slot.shape), numpy_dtype(slot.dtype))

    @contextmanager
    def _arguments(self, bound: Mapping[int, int]) -> Iterator[None]:
        """A context in which launched kernels get these addresses in place of memory blocks."""
        uses = [(self._launches[number], position, block) for number, position, block in uses_of(self._steps, bound)]
        try:
            for launch, position, block in uses:
                launch.values[position] = bound[block]
            yield
        finally:
            for launch, position, block in uses:
                launch.values[position] = self._blocks[block]

    def _send(self, target: int, array: Array) -> None:
        if array.nbytes:
            call("cuMemcpyHtoDAsync_v2", target, array.ctypes.data, array.nbytes, self._stream.handle)

    def _within(self, target: int, source: int, size: int) -> None:
        if size and target != source:
            call("cuMemcpyDtoDAsync_v2", target, source, size, self._stream.handle)

    def _mark(self, number: int, which: int) -> None:
        if self._events:
            call("cuEventRecord", self._events[number][which].handle, self._stream.handle)

    @contextmanager
    def _clocked(self, up: bool, number: int) -> Iterator[None]:
        """A context for queueing one copy, which is timed if runs are measured."""
        events = self._copy_events.get((up, number), ())
        for event in events[:1]:
            call("cuEventRecord", event.handle, self._stream.handle)
        yield
        for event in events[1:]:
            call("cuEventRecord", event.handle, self._stream.handle)

    def _wait_for_others(self) -> None:
        """Let the stream wait for writes of other libraries to arrays that this run reads."""
        call("cuEventRecord", self._arrived.handle, self._driver.arrival_stream())
        call("cuStreamWaitEvent", self._stream.handle, self._arrived.handle, 0)

    def _wait(self) -> None:
        call("cuStreamSynchronize", self._stream.handle)


def _microseconds(start: Owned, end: Owned) -> float:
    taken = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(taken), start.handle, end.handle)
    return taken.value * 1e3


class _Passage:
    """A value copied between the host and the GPU. Its pinned memory is allocated on first use."""

    def __init__(self, driver: CudaDriver, slot: Slot) -> None:
        self.slot = slot
        self._driver = driver
        self._pinned: Array | None = None

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return math.prod(self.slot.shape) * numpy_dtype(self.slot.dtype).itemsize

    @property
    def pinned(self) -> Array:
        """The value in pinned memory of the host."""
        if self._pinned is None:
            memory = self._driver.pinned(self.nbytes) if self.nbytes else np.empty(0, np.uint8)
            self._pinned = memory.view(numpy_dtype(self.slot.dtype)).reshape(self.slot.shape)
        return self._pinned


class _CudaLaunch:
    """One launch with its arguments in the driver's form."""

    def __init__(self, function: int, step: Step, blocks: Sequence[int]) -> None:
        count = len(step.arguments)
        self.values = (ctypes.c_uint64 * count)(*(_bits(a) if isinstance(a, Number) else blocks[a] for a in step.arguments))
        """The arguments: addresses, or the bits of numbers."""
        begin = ctypes.addressof(self.values)
        self._pointers = (ctypes.c_void_p * count)(*range(begin, begin + 8 * count, 8))
        self._sizes = function, *step.groups, *step.local, step.shared

    def begin(self, stream: int) -> None:
        """Queue it in the stream."""
        call("cuLaunchKernel", *self._sizes, stream, self._pointers, None)


def _bits(number: Number) -> int:
    """Bit pattern of the number, padded to eight bytes."""
    return int.from_bytes(np.array(number.value, numpy_dtype(number.dtype)).tobytes(), "little")


def _address(value: Any) -> int:
    return value.address if isinstance(value, CudaArray) else HOST
