"""Arrays in the memory of one of NVIDIA's GPUs: our own, and those of other libraries (torch, cupy) by DLPack."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray, read_by
from partita.accelerators.errors import RunError
from partita.accelerators.tvm.run.cuda_driver import CudaDriver, DevicePieces, Shown, driver_of
from partita.accelerators.tvm.run.cuda_library import CudaError, call
from partita.graph.types import Array, numpy_dtype

CUDA = 2
"""The memory of NVIDIA's GPUs, by DLPack's number."""

BFLOAT = (4, 16)
"""The type that numpy by itself does not have."""

_CODES = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
          (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", BFLOAT: "bfloat16",
          (6, 8): "bool"}
"""The element types by DLPack's kind and number of bits."""

_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_size_t), ("device", ctypes.c_int32), ("ordinal", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]


@attrs.frozen(slots=True, eq=False, repr=False)
class CudaArray(DeviceArray):
    """An array in one piece of a GPU's memory, in C order."""

    driver: CudaDriver
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    """What keeps the memory."""
    given: Any = None

    def numpy(self) -> Array:
        """A copy in the host's memory."""
        array = np.empty(self.shape, self.dtype)
        self._copy("cuMemcpyDtoHAsync_v2", array.ctypes.data, self.address)
        return array

    def _fill(self, array: Array) -> None:
        source = np.asarray(array, order="C")
        self._copy("cuMemcpyHtoDAsync_v2", self.address, source.ctypes.data)

    def copied(self) -> CudaArray:
        """A copy in the GPU's memory."""
        copy = empty(self.driver, self.shape, self.dtype)
        self._copy("cuMemcpyDtoDAsync_v2", copy.address, self.address)
        return copy

    def shares(self, other: Any) -> bool:
        """Do they lie in each other's bytes on one GPU?"""
        if not isinstance(other, CudaArray) or other.driver.ordinal != self.driver.ordinal:
            return False
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        """The GPU, as DLPack names it."""
        return CUDA, self.driver.ordinal

    def __dlpack__(self, stream: Any = None, dl_device: Any = None, copy: bool | None = None, **_: Any) -> Any:
        """The array for another library, without a copy. Nothing is written to it any more, whatever the stream."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("an array on a GPU is given where it is and without a copy; its numpy() is a copy on the host")
        is_narrow = self.dtype.name == _CODES[BFLOAT]
        # numpy describes it as if it were the host's; nobody reads it before the description says where it is.
        capsule = np.asarray(Shown(self, self.address, self.shape, "uint16" if is_narrow else self.dtype.str)).__dlpack__()
        tensor = _tensor(capsule)
        tensor.device, tensor.ordinal = CUDA, self.driver.ordinal
        if is_narrow:
            tensor.code = BFLOAT[0]
        return capsule

    def _copy(self, function: str, target: int, source: int) -> None:
        """On the stream that waits for what other libraries write, and until it is done."""
        self.driver.check_process()
        try:
            with self.driver.current():
                stream = self.driver.arrival_stream()
                if self.nbytes:
                    call(function, target, source, self.nbytes, stream)
                call("cuStreamSynchronize", stream)
        except CudaError as error:
            raise RunError(f"the CUDA driver failed: {error}", where="a copy of an array on device 'cuda'") from error


def empty(driver: CudaDriver, shape: tuple[int, ...], dtype: np.dtype[Any]) -> CudaArray:
    """An array in the GPU's memory that nobody has written to; RunError where that has no room for it."""
    driver.check_process()
    try:
        memory = DevicePieces(driver, [max(1, math.prod(shape) * dtype.itemsize)])
    except CudaError as error:
        raise RunError(f"the CUDA driver failed: {error}", where=f"device {driver.name}") from error
    (address,) = memory.addresses
    return CudaArray(driver, address, shape, dtype, memory)


def put(driver: CudaDriver, array: Array) -> CudaArray:
    """A copy of the array in the GPU's memory; RunError where that has no room for it."""
    copy = empty(driver, array.shape, array.dtype)
    copy.fill(array)
    return copy


def _tensor(capsule: Any) -> _Tensor:
    """The description that a capsule of DLPack's holds."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return _Tensor.from_address(pointer(capsule, _NAME))


def _by_dlpack(value: Any) -> CudaArray | None:
    """An array of another library's that lies on a GPU. What that library still writes to it, a stream of ours waits for."""
    where = getattr(value, "__dlpack_device__", None)
    if where is None or isinstance(value, np.ndarray):
        return None
    kind, ordinal = where()
    driver = driver_of(int(ordinal)) if int(kind) == CUDA else None
    if driver is None:
        return None
    capsule = value.__dlpack__(stream=driver.arrival_stream())
    tensor = _tensor(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    name = _CODES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise ValueError("its element type is not known")
    if tensor.strides and not _in_one_row(shape, tensor.strides[: tensor.ndim]):
        raise ValueError("it is no array in one piece: call its contiguous()")
    return CudaArray(driver, tensor.data + tensor.offset, shape, numpy_dtype(name), capsule, value)


def _in_one_row(shape: tuple[int, ...], strides: list[int]) -> bool:
    """Do the elements follow each other in C order?"""
    sizes = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return 0 in shape or all(size == 1 or own == wanted for size, own, wanted in zip(shape, strides, sizes, strict=True))


read_by(_by_dlpack)
