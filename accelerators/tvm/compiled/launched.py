"""A compiled subgraph that an OpenCL device runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from accelerators.arrays.on_device import DeviceArray, Target
from accelerators.errors import RunError
from accelerators.interface.accelerator import ProfileRow
from accelerators.tvm.code.launches import Number
from accelerators.tvm.compiled.assembling import Assembled
from accelerators.tvm.compiled.shown import Origin
from accelerators.tvm.compiled.step_list import Slot, StepList
from accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, RunsOn
from accelerators.tvm.run.opencl_arrays import OpenClArray, as_bytes
from accelerators.tvm.run.opencl_driver import Driver, drivers, opencl, told
from graph.types import Array, numpy_dtype


class CompiledOpenCl(CompiledTvm):
    """A subgraph in an OpenCL device's memory: weights stay there, and launches go into one queue, one run at a time."""

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
        """The built programs that came with it, by the driver that built each."""
        self._program: Any = None
        self._session: _Session | None = None

    @property
    def step_list(self) -> StepList:
        """What the device does."""
        return self._assembled.executable  # type: ignore[no-any-return]

    @property
    def driver(self) -> Driver:
        """The device that runs it."""
        return drivers()[self.runs_on.device_id]

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, copied from the device: straight into the arrays of `out` where there are any."""
        with self._lock:
            self.driver.check_process()
            try:
                session = self._session = self._session or self._new_session()
                results = session.run(inputs, self._targets(out))
                if self._perf_count:
                    self._rows = self._measured_rows(session.times())
            except opencl().Error as error:
                self._session = None  # The next run begins anew: a queue that failed may stay so.
                raise RunError(f"the OpenCL driver failed: {told(error)}", where=f"device {self.driver.name}") from error
        return self._checked([self._result(origin, results, inputs) for origin in self._assembled.outputs])

    def takes(self, array: DeviceArray) -> bool:
        """Is it in the memory of this device, for which kernels of this context are made?"""
        return isinstance(array, OpenClArray) and array.buffer.context == self.driver.context

    def _targets(self, out: Sequence[Any] | None) -> dict[int, Target]:
        """By the number of a result, the array of the caller's that it is copied to. One result may be several outputs: it goes
        to the first array, and whoever gave the others copies it."""
        targets: dict[int, Target] = {}
        for origin, target in zip(self._assembled.outputs, out or ()):
            if not isinstance(origin, np.ndarray) and origin >= 0 and _is_in_one_piece(target):
                targets.setdefault(origin, target)
        return targets

    def _new_session(self) -> _Session:
        return _Session(self.step_list, self.program(), self.driver, self._assembled.weights, self._perf_count)

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

    def program(self) -> Any:
        """The program, built by the driver here."""
        if self._program is None:
            driver, steps = self.driver, self.step_list
            program = driver.program(steps.source, self.binaries.get(driver.identity))
            kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
            for kernel, local in {step.kernel: step.local for step in steps.steps}.items():
                driver.check_launch(kernels[kernel], local)
            self._program = program
        return self._program

    def check_code(self) -> None:
        """Build the program now, so that the driver complains here and not where the model runs; so of too little memory."""
        self.driver.check_memory(self.step_list.blocks)
        if self.step_list.steps:
            self.program()

    def all_binaries(self) -> dict[str, bytes]:
        """The built programs, that of the driver here among them."""
        if not self.step_list.steps:
            return self.binaries
        (binary,) = self.program().get_info(opencl().program_info.BINARIES)
        return {**self.binaries, self.driver.identity: binary}

    def _again(self, perf_count: bool) -> CompiledOpenCl:
        """The same program with a queue and memory of its own."""
        again = CompiledOpenCl(self._assembled, self.launches, self._origins, self.runs_on, perf_count)
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
        """The source, the launches, and the built programs, without the weights."""
        from accelerators.tvm.compiled import opencl_travel  # upward: the interface has export as a method

        return opencl_travel.export(self)


class _Session:
    """A queue, memory of its own, and a kernel object for each launch, which holds its arguments for good."""

    def __init__(self, steps: StepList, program: Any, driver: Driver, weights: Sequence[Array], measuring: bool) -> None:
        cl = opencl()
        driver.hold(self, steps.blocks)
        self._steps = steps
        self._queue = driver.queue(measuring)
        self._blocks = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, size) for size in steps.blocks]
        self._launches = [self._launch(program, step) for step in steps.steps]
        self._reading = {slot.block for slot in steps.inputs}
        """The blocks of inputs and weights."""
        self._events: list[Any] = []
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

    def run(self, inputs: Sequence[Any], targets: Mapping[int, Target]) -> list[Target]:
        """The results, in the arrays meant for them where there are any. Kernels read and write arrays on the device where they
        are: for this run alone they are arguments in the place of blocks.

        Everything is queued at once, and waited for at the end alone. Until then the events of the copies are held: one that
        is let go waits for its copy, because it keeps the host's memory."""
        enqueue, queue, slots = opencl().enqueue_nd_range_kernel, self._queue, self._steps.outputs
        given = dict(zip(self._inputs, inputs, strict=True))
        bound = {slot.block: array.buffer for slot, array in given.items() if isinstance(array, OpenClArray)}
        copies = [self._write(slot, array) for slot, array in given.items() if not isinstance(array, OpenClArray)]
        for i, target in targets.items():
            if isinstance(target, OpenClArray) and slots[i].block not in self._reading:
                bound.setdefault(slots[i].block, target.buffer)
        with self._arguments(bound):
            self._events = [enqueue(queue, kernel, whole, local) for kernel, whole, local in self._launches]
        results = [targets[i] if i in targets else np.empty(s.shape, numpy_dtype(s.dtype)) for i, s in enumerate(slots)]
        blocks = [bound.get(slot.block, self._blocks[slot.block]) for slot in slots]
        copies += [self._copied(result, block) for result, block in zip(results, blocks, strict=True)]
        queue.finish()
        del copies
        return results

    @contextmanager
    def _arguments(self, bound: Mapping[int, Any]) -> Iterator[None]:
        """Inside, kernels that are launched have these buffers in the place of blocks."""
        arguments = [
            (kernel, i, argument)
            for (kernel, *_), step in zip(self._launches, self._steps.steps if bound else ())
            for i, argument in enumerate(step.arguments)
            if not isinstance(argument, Number) and argument in bound
        ]
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
        """The event of a copy that is queued; None where there is nothing to copy."""
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
            spent[step.number] = spent.get(step.number, 0.0) + (event.profile.end - event.profile.start) / 1e3
        return spent


def _end_of_copy(end: Any) -> Any:
    """One end of a copy as pyopencl takes it: a buffer, or the host's memory whatever its element type."""
    if isinstance(end, OpenClArray):
        return end.buffer
    return as_bytes(end) if isinstance(end, np.ndarray) else end


def _is_in_one_piece(target: Target | None) -> bool:
    """Can a result be copied to it as it is?"""
    return isinstance(target, DeviceArray) or (target is not None and target.flags.carray)
