"""A compiled subgraph that runs on an OpenCL device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from partita.accelerators.arrays.on_device import Destination, DeviceArray, Target, Wanted
from partita.accelerators.errors import RunError
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.launch_list import Slot, StepList
from partita.accelerators.tvm.compiled.stepwise import CompiledSteps, bound_arrays, uses_of
from partita.accelerators.tvm.run.opencl_arrays import OpenClArray, as_bytes, empty, put
from partita.accelerators.tvm.run.opencl_driver import Driver, drivers, opencl, told
from partita.graph.types import Array, numpy_dtype


class CompiledOpenCl(CompiledSteps):
    """A subgraph for any OpenCL driver; the driver builds its source."""

    @property
    def driver(self) -> Driver:
        """The device that runs it."""
        return drivers()[self.runs_on.device_id]

    def takes(self, array: DeviceArray) -> bool:
        """True if the array is in this device's OpenCL context, where kernels can use it."""
        return isinstance(array, OpenClArray) and array.buffer.context == self.driver.context

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        self.driver.check_process()
        try:
            yield
        except opencl().Error as error:
            raise RunError(f"the OpenCL driver failed: {told(error)}", where=f"device {self.driver.name}") from error

    def _new_session(self, steps: StepList, weights: Sequence[Array]) -> _OpenClSession:
        return _OpenClSession(steps, self.program(), self.driver, weights, self._perf_count)

    def _put(self, weight: Array) -> OpenClArray:
        return put(self.driver, weight)

    def program(self) -> Any:
        """The program, built by this device's driver."""
        if self._program is None:
            driver, steps = self.driver, self.step_list
            program = driver.program(steps.source, self.binaries.get(driver.identity))
            kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
            for kernel, local in {step.kernel: step.local for step in steps.steps}.items():
                driver.check_launch(kernels[kernel], local)
            self._program = program
        return self._program

    def check_code(self) -> None:
        """Build the program now, so that errors of the driver, or too little memory, appear here and not at the first run."""
        self.driver.check_memory(self.step_list.blocks)
        if self.step_list.steps:
            self.program()

    def all_binaries(self) -> dict[str, bytes]:
        """Built programs by driver, including this device's driver."""
        if not self.step_list.steps:
            return self.binaries
        (binary,) = self.program().get_info(opencl().program_info.BINARIES)
        return {**self.binaries, self.driver.identity: binary}

    def source_to_export(self) -> str:
        """The source, which any other driver can build."""
        return self.step_list.source


class _OpenClSession:
    """A queue, memory of its own, and for each launch a kernel object that keeps its arguments."""

    def __init__(self, steps: StepList, program: Any, driver: Driver, weights: Sequence[Array], measuring: bool) -> None:
        cl = opencl()
        driver.hold(self, steps.blocks)
        self._steps, self._driver = steps, driver
        self._queue = driver.queue(measuring)
        self._blocks = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, size) for size in steps.blocks]
        self._blocks += [self._blocks[part.block].get_sub_region(part.first, part.bytes) for part in steps.parts]
        self._launches = [self._launch(program, step) for step in steps.steps]
        self._events: list[Any] = []
        self._copies: list[tuple[bool, int, Any]] = []
        """Copies of the queued run: True for an input, the index of the input or result, the event."""
        self._timed: list[tuple[bool, int, Any]] = []
        """Copies of the last run, if it is measured."""
        self._measuring = measuring
        self._sent: set[int] = set()
        self._results: list[Target] = []
        given = len(steps.inputs) - len(weights)
        self._inputs = steps.inputs[:given]
        copies = [self._write(slot, weight) for slot, weight in zip(steps.inputs[given:], weights, strict=True)]
        self._queue.finish()
        del copies

    def _launch(self, program: Any, step: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        kernel = opencl().Kernel(program, step.kernel)
        for i, argument in enumerate(step.arguments):
            value = numpy_dtype(argument.dtype).type(argument.value) if isinstance(argument, Number) else self._blocks[argument]
            kernel.set_arg(i, value)
        return kernel, tuple(g * n for g, n in zip(step.groups, step.local, strict=True)), step.local

    def send(self, number: int, array: Array) -> None:
        """Send an input of the next run to the device."""
        self._copies.append((True, number, self._write(self._inputs[number], array)))
        self._queue.flush()
        self._sent.add(number)

    def begin(self, inputs: Sequence[Any], wanted: Mapping[int, Wanted]) -> None:
        """Queue a run. Kernels use arrays on the device in place: for this run alone they replace memory blocks as arguments.

        The events of the copies are kept until the run is finished: releasing one waits for its copy, because it keeps the host's
        memory."""
        enqueue, queue, slots = opencl().enqueue_nd_range_kernel, self._queue, self._steps.outputs
        targets = {i: self._room(slots[i]) if isinstance(target, Destination) else target for i, target in wanted.items()}
        bound = {b: array.buffer for b, array in bound_arrays(self._steps, inputs, targets, OpenClArray).items()}
        for i, (slot, array) in enumerate(zip(self._inputs, inputs, strict=True)):
            if i not in self._sent and not isinstance(array, OpenClArray):
                self._copies.append((True, i, self._write(slot, array)))
        with self._arguments(bound):
            self._events = [enqueue(queue, kernel, whole, local) for kernel, whole, local in self._launches]
        self._results = [targets[i] if i in targets else np.empty(s.shape, numpy_dtype(s.dtype)) for i, s in enumerate(slots)]
        blocks = [bound.get(slot.block, self._blocks[slot.block]) for slot in slots]
        results = zip(self._results, blocks, strict=True)
        self._copies += [(False, i, self._copied(result, block)) for i, (result, block) in enumerate(results)]
        queue.flush()

    def finish(self) -> list[Target]:
        """Results of the run that was begun, in the arrays and places given for them, if any."""
        results = self._results
        self.wait()
        return results

    def wait(self) -> None:
        """Wait for the queue; the next run begins anew."""
        self._queue.finish()
        self._timed = self._copies if self._measuring else []
        self._sent, self._copies, self._results = set(), [], []

    def _room(self, slot: Slot) -> OpenClArray:
        """A new array for a result, which kernels write to."""
        return empty(self._driver, tuple(slot.shape), numpy_dtype(slot.dtype))

    @contextmanager
    def _arguments(self, bound: Mapping[int, Any]) -> Iterator[None]:
        """A context in which launched kernels get these buffers in place of memory blocks."""
        arguments = [(self._launches[number][0], i, block) for number, i, block in uses_of(self._steps, bound)]
        try:
            for kernel, i, block in arguments:
                kernel.set_arg(i, bound[block])
            yield
        finally:
            for kernel, i, block in arguments:
                kernel.set_arg(i, self._blocks[block])

    def _write(self, slot: Slot, array: Any) -> Any:
        return self._copied(self._blocks[slot.block], np.asarray(array, order="C"))

    def _copied(self, target: Any, source: Any) -> Any:
        """Event of a queued copy; None if there is nothing to copy."""
        ends = [_end_of_copy(end) for end in (target, source)]
        arrays = [end for end in (target, source) if isinstance(end, (np.ndarray, OpenClArray))]
        if ends[0] is ends[1] or any(not array.nbytes for array in arrays):
            return None
        size = {"byte_count": target.nbytes} if isinstance(target, OpenClArray) else {"is_blocking": False}
        return opencl().enqueue_copy(self._queue, *ends, **size)

    def times(self) -> dict[int, float]:
        """Microseconds of each kernel of the last run."""
        spent: dict[int, float] = {}
        for step, event in zip(self._steps.steps, self._events, strict=True):
            spent[step.number] = spent.get(step.number, 0.0) + _microseconds(event)
        return spent

    def copy_times(self) -> list[tuple[bool, int, float]]:
        """Copies of the last run between host and device, with their microseconds."""
        return [(up, number, _microseconds(event)) for up, number, event in self._timed if event is not None]


def _microseconds(event: Any) -> float:
    return (event.profile.end - event.profile.start) / 1e3  # type: ignore[no-any-return]


def _end_of_copy(end: Any) -> Any:
    """One end of a copy as pyopencl takes it: a buffer, or the host's memory as bytes."""
    if isinstance(end, OpenClArray):
        return end.buffer
    return as_bytes(end) if isinstance(end, np.ndarray) else end
