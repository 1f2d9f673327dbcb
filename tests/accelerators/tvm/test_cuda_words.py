"""Errors of NVIDIA's driver, without a driver: the status in its words, or the number where it has none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from partita.accelerators.tvm.run import cuda_arrays, cuda_driver
from partita.accelerators.tvm.run.cuda_driver import NOT_FOUND, CudaError, call, created, number
from partita.graph.types import numpy_dtype

WORDS = {"cuGetErrorName": {2: b"CUDA_ERROR_OUT_OF_MEMORY"}, "cuGetErrorString": {2: b"out of memory", 3: None}}


def words(function: str) -> Callable[..., int]:
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
    def said(status: int, text: Any) -> int:
        if status not in WORDS[function]:
            return 1
        text[0] = WORDS[function][status]
        return 0

    return said


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)
def create_stream(handle: int, flags: int) -> int:
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 0 if flags == 3 else 4711
    return 2 if flags == 2 else 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def count_devices(count: int) -> int:
    ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = 3
    return 0


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    functions = {name: words(name) for name in WORDS}
    library = SimpleNamespace(**functions, cuStreamCreate=create_stream, cuDeviceGetCount=count_devices)
    monkeypatch.setattr(cuda_driver, "library", lambda: library)
    cuda_driver._function.cache_clear()
    yield
    cuda_driver._function.cache_clear()


@pytest.mark.parametrize(
    ("status", "said"),
    [(2, "cuInit failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"), (3, "cuInit failed: 3 (3)"), (9, "cuInit failed: 9 (9)")],
)
def test_a_status_in_words(status: int, said: str) -> None:
    error = CudaError("cuInit", status)
    assert (str(error), error.status) == (said, status)


def test_handles_and_numbers_that_are_written() -> None:
    assert created("cuStreamCreate", 1) == 4711
    assert created("cuStreamCreate", 3) == 0
    assert number("cuDeviceGetCount") == 3


def test_a_call_that_fails_and_one_that_the_driver_does_not_have() -> None:
    with pytest.raises(CudaError, match="cuStreamCreate failed: CUDA_ERROR_OUT_OF_MEMORY") as failed:
        created("cuStreamCreate", 2)
    assert failed.value.status == 2
    with pytest.raises(CudaError, match=r"cuGraphLaunch failed: 500 \(500\)") as absent:
        call("cuGraphLaunch", 0, 0)
    assert absent.value.status == NOT_FOUND


def test_codes_of_elements_are_dlpacks() -> None:
    for (code, bits), name in cuda_arrays._CODES.items():
        dtype = numpy_dtype(name)
        assert 8 * dtype.itemsize == bits
        assert {"i": 0, "u": 1, "f": 2, "b": 6}.get(dtype.kind, 4) == code
