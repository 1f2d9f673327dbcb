"""Functions of NVIDIA's driver, called by name. The library comes with the driver: no CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

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
