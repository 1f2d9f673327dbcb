"""The functions of NVIDIA's driver, called by their names. Its library comes with the driver: no CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

NOT_FOUND = 500
"""The driver's number for a name that is not there."""

NO_MEMORY = 2
"""The driver's number for memory that is used up."""

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_TYPES = {"i": ctypes.c_int, "u": ctypes.c_uint, "n": ctypes.c_size_t, "p": ctypes.c_void_p, "s": ctypes.c_char_p}
"""An argument's type by its letter: whole numbers, an address or a number of bytes, a pointer or handle of the host's, a text."""

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
"""The types of each function's arguments, as the driver's header states them."""


class CudaError(Exception):
    """The driver refused a call."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} failed: {_said('cuGetErrorName', status)} ({_said('cuGetErrorString', status)})")
        self.status = status
        """The driver's number for it."""


@cache
def library() -> Any:
    """The driver's library; None where it does not load."""
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
    """Call one of the driver's functions; CudaError where it does not succeed, or where the driver is too old to have it."""
    try:
        function = _function(name)
    except AttributeError:
        raise CudaError(name, NOT_FOUND) from None
    status = function(*arguments)
    if status:
        raise CudaError(name, status)


def created(name: str, *arguments: Any) -> int:
    """The handle or address that a function of the driver's writes to its first argument."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle.value or 0


def number(name: str, *arguments: Any) -> int:
    """The whole number that a function of the driver's writes to its first argument."""
    value = ctypes.c_int()
    call(name, ctypes.byref(value), *arguments)
    return value.value


def _said(function: str, status: int) -> str:
    """The driver's word for a status."""
    text = ctypes.c_char_p()
    known = _function(function)(status, ctypes.byref(text)) == 0 and text.value is not None
    return text.value.decode("utf-8", "replace") if known and text.value else str(status)
