"""NVIDIA's driver: its functions, called by name, and the GPUs with their memory, their streams, and the code that runs on them.
The library comes with the driver: no CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import RunError
from partita.accelerators.tvm.run.device_memory import DeviceMemory
from partita.graph.types import Array

NOT_FOUND = 500
"""Driver status: name not found."""

NO_MEMORY = 2
"""Driver status: out of memory."""

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_TYPES = {"i": ctypes.c_int, "u": ctypes.c_uint, "n": ctypes.c_size_t, "p": ctypes.c_void_p, "s": ctypes.c_char_p}
"""Argument types by letter: signed and unsigned integers, an address or size, a pointer or handle, a string."""

_ARGUMENTS = {
    "cuInit": "u", "cuGetErrorName": "ip", "cuGetErrorString": "ip",
    "cuDeviceGetCount": "p", "cuDeviceGet": "pi", "cuDeviceGetName": "pii", "cuDeviceGetAttribute": "pii",
    "cuDeviceTotalMem_v2": "pi", "cuDevicePrimaryCtxRetain": "pi", "cuCtxPushCurrent_v2": "p", "cuCtxPopCurrent_v2": "p",
    "cuMemGetInfo_v2": "pp", "cuMemAlloc_v2": "pn", "cuMemFree_v2": "n", "cuMemHostAlloc": "pnu", "cuMemFreeHost": "p",
    "cuMemcpyHtoDAsync_v2": "npnp", "cuMemcpyDtoHAsync_v2": "pnnp", "cuMemcpyDtoDAsync_v2": "nnnp",
    "cuStreamCreate": "pu", "cuStreamDestroy_v2": "p", "cuStreamSynchronize": "p", "cuStreamWaitEvent": "ppu",
    "cuEventCreate": "pu", "cuEventRecord": "pp", "cuEventDestroy_v2": "p", "cuEventElapsedTime": "ppp",
    "cuModuleLoadData": "pp", "cuModuleUnload": "p", "cuModuleGetFunction": "pps", "cuFuncSetAttribute": "pii",
    "cuLaunchKernel": "puuuuuuuppp",
    "cuStreamBeginCapture_v2": "pi", "cuStreamEndCapture": "pp", "cuGraphInstantiateWithFlags": "ppn", "cuGraphDestroy": "p",
    "cuGraphLaunch": "pp", "cuGraphExecDestroy": "p",
}
"""Argument types of each function, as in the driver's header."""


class CudaError(Exception):
    """An error of a driver call."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} failed: {_said('cuGetErrorName', status)} ({_said('cuGetErrorString', status)})")
        self.status = status
        """Status code of the driver."""


@cache
def library() -> Any:
    """The driver's library; None if it does not load."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


@cache
def _function(name: str) -> Any:
    function = getattr(library(), name)
    function.argtypes, function.restype = [_TYPES[letter] for letter in _ARGUMENTS[name]], ctypes.c_int
    return function


def call(name: str, *arguments: Any) -> None:
    """Call a driver function; CudaError if it fails, or if the driver is too old to have it."""
    try:
        function = _function(name)
    except AttributeError:
        raise CudaError(name, NOT_FOUND) from None
    status = function(*arguments)
    if status:
        raise CudaError(name, status)


def created(name: str, *arguments: Any) -> int:
    """Handle or address that a driver function writes to its first argument."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle.value or 0


def number(name: str, *arguments: Any) -> int:
    """Integer that a driver function writes to its first argument."""
    value = ctypes.c_int()
    call(name, ctypes.byref(value), *arguments)
    return value.value


def _said(function: str, status: int) -> str:
    """The driver's text for a status."""
    text = ctypes.c_char_p()
    known = _function(function)(status, ctypes.byref(text)) == 0 and text.value is not None
    return text.value.decode("utf-8", "replace") if known and text.value else str(status)


_MAJOR, _MINOR = 75, 76
"""Driver attributes of the two parts of a GPU's architecture version."""

_PORTABLE = 1
"""Flag: host memory that all contexts treat as pinned."""

_NON_BLOCKING = 1
"""Flag: a stream that does not synchronize with the default stream."""

_UNTIMED = 2
"""Flag: an event without timing."""

_SHARED_SIZE = 8
"""Kernel attribute: maximum dynamic shared memory."""

USUAL_SHARED = 49152
"""Bytes of shared memory that a block may use without setting the attribute."""

RELAXED = 2
"""Capture mode: other calls of the process are not captured, and no error."""


class Owned:
    """A driver object that is released with its last reference."""

    def __init__(self, driver: CudaDriver, handle: int, release: str) -> None:
        self.handle = handle
        """The driver's handle, or an address."""
        weakref.finalize(self, driver.release, release, handle)


class Shown:
    """Memory as numpy's array interface. The owner lives as long as an array on it."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        """Object that keeps the memory alive."""
        self.__array_interface__ = {
            "shape": shape, "typestr": np.dtype(dtype).str, "data": (address, False), "version": 3,
        }


@attrs.frozen(slots=True, eq=False)
class CudaDriver(DeviceMemory):
    """One GPU, in the context that all libraries of a process share."""

    ordinal: int
    """Index of the GPU."""
    title: str
    """Name given by the manufacturer."""
    arch: str
    """Architecture, as "sm_90"."""
    memory: int
    """Total memory in bytes."""
    context: int
    process: int
    """The process that first used it."""
    arrivals: list[int] = attrs.field(factory=list)
    """The stream that waits for writes of other libraries, once it exists."""

    @property
    def name(self) -> str:
        """Name and index."""
        return f"{self.title} (GPU {self.ordinal})"

    @property
    def memory_key(self) -> tuple[str, int]:
        """Kind and index of the GPU."""
        return "cuda", self.ordinal

    @property
    def largest_piece(self) -> int:
        """The whole memory: a block may be as large."""
        return self.memory

    @property
    def free(self) -> int:
        """Bytes free of all processes, as the driver reports them now."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    @property
    def room(self) -> str:
        """Free and total memory, in words."""
        return f"{self.free:,} of the device's {self.memory:,} are free"

    @contextmanager
    def current(self) -> Iterator[None]:
        """A context in which this thread's driver calls are for this GPU."""
        call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            created("cuCtxPopCurrent_v2")

    def check_process(self) -> None:
        """RunError in a process forked from the one that first used the GPU."""
        _check_process(self.process)

    def release(self, function: str, handle: int) -> None:
        """Release an object. At the end of the process the driver may be gone already."""
        if os.getpid() == self.process:
            with suppress(CudaError), self.current():
                call(function, handle)

    # -- memory ------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Owned:
        """Memory of the GPU of this many bytes, not counted as held."""
        with self.current():
            return Owned(self, created("cuMemAlloc_v2", size), "cuMemFree_v2")

    def pinned(self, size: int) -> Array:
        """Pinned host memory of this many bytes, which the GPU accesses asynchronously."""
        with self.current():
            owned = Owned(self, created("cuMemHostAlloc", size, _PORTABLE), "cuMemFreeHost")
        return np.asarray(Shown(owned, owned.handle, (size,), "uint8"))

    # -- order -------------------------------------------------------------------------------------------

    def stream(self) -> Owned:
        """A new stream, which executes calls in order."""
        with self.current():
            return Owned(self, created("cuStreamCreate", _NON_BLOCKING), "cuStreamDestroy_v2")

    def event(self, timed: bool = False) -> Owned:
        """A mark in a stream."""
        with self.current():
            return Owned(self, created("cuEventCreate", 0 if timed else _UNTIMED), "cuEventDestroy_v2")

    def arrival_stream(self) -> int:
        """The stream on which other libraries make their arrays available. It lives as long as the process."""
        if not self.arrivals:
            with self.current():
                self.arrivals.append(created("cuStreamCreate", _NON_BLOCKING))
        return self.arrivals[0]

    # -- code --------------------------------------------------------------------------------------------

    def loaded(self, binaries: Sequence[bytes], kernels: Mapping[str, int]) -> dict[str, LoadedKernel]:
        """Kernels of these names from machine code, each with its bytes of dynamic shared memory."""
        with self.current():
            modules = [Owned(self, created("cuModuleLoadData", binary), "cuModuleUnload") for binary in binaries]
            return {name: self._kernel(modules, name, shared) for name, shared in kernels.items()}

    @staticmethod
    def _kernel(modules: Sequence[Owned], name: str, shared: int) -> LoadedKernel:
        for module in modules:
            try:
                function = created("cuModuleGetFunction", module.handle, name.encode())
            except CudaError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                if shared > USUAL_SHARED:
                    call("cuFuncSetAttribute", function, _SHARED_SIZE, shared)
                return LoadedKernel(function, module)
        raise RunError(f"its machine code holds no kernel {name!r}", remedy="Compile the model again")


@attrs.frozen(slots=True)
class LoadedKernel:
    """A kernel that can be launched."""

    handle: int
    module: Owned
    """The module that contains it."""


class DevicePieces:
    """Memory blocks on a GPU, counted as held during their lifetime; RunError if memory is short."""

    def __init__(self, driver: CudaDriver, sizes: Sequence[int]) -> None:
        driver.hold(self, sizes)
        self._owned = [driver.allocate(size) for size in sizes]
        self.addresses = tuple(owned.handle for owned in self._owned)
        """Address of each block."""


def _check_process(own: int) -> None:
    if os.getpid() != own:
        cause = "NVIDIA's driver does not work in a forked process, and the process that it was forked from uses it"
        raise RunError(cause, where="device 'cuda'", remedy="Start processes by spawn, or compile in the child alone")


def driver_of(ordinal: int) -> CudaDriver | None:
    """The GPU of this index; None if there is none. RunError if its driver does not allow its use now."""
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
    """Number of GPUs; 0 without a driver."""
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
    """The process that first used the driver's library."""
    return os.getpid()


@cache
def arch_of(ordinal: int) -> str:
    """Architecture of a GPU of this machine."""
    device = number("cuDeviceGet", ordinal)
    return f"sm_{number('cuDeviceGetAttribute', _MAJOR, device)}{number('cuDeviceGetAttribute', _MINOR, device)}"


@cache
def _driver(ordinal: int) -> CudaDriver:
    device, name, memory = number("cuDeviceGet", ordinal), ctypes.create_string_buffer(256), ctypes.c_size_t()
    call("cuDeviceGetName", name, len(name), device)
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    context = created("cuDevicePrimaryCtxRetain", device)
    return CudaDriver(ordinal, name.value.decode(), arch_of(ordinal), memory.value, context, _process())
