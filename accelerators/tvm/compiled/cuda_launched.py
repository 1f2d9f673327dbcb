"""A compiled subgraph that runs on an NVIDIA GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.errors import AcceleratorUnavailable, RunError
from partita.accelerators.tvm.code.nvcc import cubins_of_all
from partita.accelerators.tvm.compiled.cuda_session import CudaSession
from partita.accelerators.tvm.compiled.launch_list import StepList
from partita.accelerators.tvm.compiled.stepwise import CompiledSteps
from partita.accelerators.tvm.run.cuda_arrays import CudaArray, put
from partita.accelerators.tvm.run.cuda_driver import CudaDriver, Kernel, driver_of
from partita.accelerators.tvm.run.cuda_library import NO_MEMORY, CudaError
from partita.graph.types import Array

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

    def program(self) -> dict[str, Kernel]:
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
