"""NVIDIA's GPUs: their memory, their streams, and the code that runs on them."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import RunError
from partita.accelerators.tvm.run.cuda_library import NOT_FOUND, CudaError, call, created, library, number
from partita.accelerators.tvm.run.device_memory import DeviceMemory
from partita.graph.types import Array

_MAJOR, _MINOR = 75, 76
"""The driver's numbers of the two parts of a GPU's architecture."""

_PORTABLE = 1
"""Memory of the host's that all contexts know as pinned."""

_NON_BLOCKING = 1
"""A stream that does not wait for the one that others use by default."""

_UNTIMED = 2
"""An event that only orders."""

_SHARED_SIZE = 8
"""The attribute of a kernel that is the memory that its blocks may ask for."""

USUAL_SHARED = 49152
"""The bytes of memory that a block may share without asking."""

RELAXED = 2
"""While calls are recorded, whatever else the process does is not recorded, and no error."""


class Owned:
    """A thing of the driver's that goes with its last holder."""

    def __init__(self, driver: CudaDriver, handle: int, release: str) -> None:
        self.handle = handle
        """The driver's handle, or its address."""
        weakref.finalize(self, driver.release, release, handle)


class Shown:
    """Memory as numpy takes it. The owner lasts as long as an array that shows it."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        """What keeps the memory."""
        self.__array_interface__ = {
            "shape": shape, "typestr": np.dtype(dtype).str, "data": (address, False), "version": 3,
        }


@attrs.frozen(slots=True, eq=False)
class CudaDriver(DeviceMemory):
    """One GPU in the context that all libraries of a process share."""

    ordinal: int
    """Its number."""
    title: str
    """The name that its maker gives it."""
    arch: str
    """Its architecture, as "sm_90"."""
    memory: int
    """All of its bytes."""
    context: int
    process: int
    """The process that began to use it."""
    arrivals: list[int] = attrs.field(factory=list)
    """The stream that waits for what other libraries still write, once it is there."""

    @property
    def name(self) -> str:
        """Its name and number."""
        return f"{self.title} (GPU {self.ordinal})"

    @property
    def memory_key(self) -> tuple[str, int]:
        """Its number."""
        return "cuda", self.ordinal

    @property
    def largest_piece(self) -> int:
        """One piece may be as large as the memory."""
        return self.memory

    @property
    def free(self) -> int:
        """What all processes leave, as the driver says now."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    @property
    def room(self) -> str:
        """What is free."""
        return f"{self.free:,} of the device's {self.memory:,} are free"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, the driver's calls of this thread are for this GPU."""
        call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            created("cuCtxPopCurrent_v2")

    def check_process(self) -> None:
        """RunError in a process that was forked from the one that began to use the GPU."""
        _check_process(self.process)

    def release(self, function: str, handle: int) -> None:
        """Give something back. At the end of the process the driver may be gone before."""
        if os.getpid() == self.process:
            with suppress(CudaError), self.current():
                call(function, handle)

    # -- memory ------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Owned:
        """So many bytes of the GPU's memory, which nobody counts."""
        with self.current():
            return Owned(self, created("cuMemAlloc_v2", size), "cuMemFree_v2")

    def pinned(self, size: int) -> Array:
        """So many bytes of the host's memory, which the GPU reads and writes while the processor does other things."""
        with self.current():
            owned = Owned(self, created("cuMemHostAlloc", size, _PORTABLE), "cuMemFreeHost")
        return np.asarray(Shown(owned, owned.handle, (size,), "uint8"))

    # -- order -------------------------------------------------------------------------------------------

    def stream(self) -> Owned:
        """A row of calls of its own, each of which waits for the one before."""
        with self.current():
            return Owned(self, created("cuStreamCreate", _NON_BLOCKING), "cuStreamDestroy_v2")

    def event(self, timed: bool = False) -> Owned:
        """A mark in a stream."""
        with self.current():
            return Owned(self, created("cuEventCreate", 0 if timed else _UNTIMED), "cuEventDestroy_v2")

    def arrival_stream(self) -> int:
        """The stream that other libraries are told to have their arrays written for. It is there as long as the process."""
        if not self.arrivals:
            with self.current():
                self.arrivals.append(created("cuStreamCreate", _NON_BLOCKING))
        return self.arrivals[0]

    # -- code --------------------------------------------------------------------------------------------

    def loaded(self, binaries: Sequence[bytes], kernels: Mapping[str, int]) -> dict[str, Kernel]:
        """The kernels of these names out of machine code, each with the bytes that its blocks share besides what it states."""
        with self.current():
            modules = [Owned(self, created("cuModuleLoadData", binary), "cuModuleUnload") for binary in binaries]
            return {name: self._kernel(modules, name, shared) for name, shared in kernels.items()}

    @staticmethod
    def _kernel(modules: Sequence[Owned], name: str, shared: int) -> Kernel:
        for module in modules:
            try:
                function = created("cuModuleGetFunction", module.handle, name.encode())
            except CudaError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                if shared > USUAL_SHARED:
                    call("cuFuncSetAttribute", function, _SHARED_SIZE, shared)
                return Kernel(function, module)
        raise RunError(f"its machine code holds no kernel {name!r}", remedy="Compile the model again")


@attrs.frozen(slots=True)
class Kernel:
    """A kernel that may be launched."""

    handle: int
    module: Owned
    """The code that it is a part of."""


class DevicePieces:
    """Pieces of a GPU's memory, counted as held as long as they last; RunError where there is no room for them."""

    def __init__(self, driver: CudaDriver, sizes: Sequence[int]) -> None:
        driver.hold(self, sizes)
        self._owned = [driver.allocate(size) for size in sizes]
        self.addresses = tuple(owned.handle for owned in self._owned)
        """Where each begins."""


def _check_process(own: int) -> None:
    if os.getpid() != own:
        cause = "NVIDIA's driver does not work in a forked process, and the process that it was forked from uses it"
        raise RunError(cause, where="device 'cuda'", remedy="Start processes by spawn, or compile in the child alone")


def driver_of(ordinal: int) -> CudaDriver | None:
    """The GPU of this number; None where there is none. RunError where its driver lets nobody use it now."""
    if not 0 <= ordinal < gpus():
        return None
    try:
        return _driver(ordinal)
    except CudaError as error:
        _check_process(_process())
        remedy = "Does nvidia-smi show it as usable?"
        raise RunError(f"the CUDA driver failed: {error}", where=f"GPU {ordinal}", remedy=remedy) from error


@cache
def gpus() -> int:
    """The number of GPUs here: none without a driver, or where it finds none."""
    if library() is None:
        return 0
    try:
        _process()
        call("cuInit", 0)
        return number("cuDeviceGetCount")
    except CudaError:
        return 0


@cache
def _process() -> int:
    """The process that began to use the driver's library."""
    return os.getpid()


@cache
def arch_of(ordinal: int) -> str:
    """The architecture of a GPU that is here."""
    device = number("cuDeviceGet", ordinal)
    return f"sm_{number('cuDeviceGetAttribute', _MAJOR, device)}{number('cuDeviceGetAttribute', _MINOR, device)}"


@cache
def _driver(ordinal: int) -> CudaDriver:
    device, name, memory = number("cuDeviceGet", ordinal), ctypes.create_string_buffer(256), ctypes.c_size_t()
    call("cuDeviceGetName", name, len(name), device)
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    context = created("cuDevicePrimaryCtxRetain", device)
    return CudaDriver(ordinal, name.value.decode(), arch_of(ordinal), memory.value, context, _process())
