"""Arrays in an NVIDIA GPU's memory: our own, and those of other libraries (torch, cupy) through DLPack."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray, read_by
from partita.accelerators.errors import RunError
from partita.accelerators.tvm.run.cuda_driver import CudaDriver, CudaError, DevicePieces, Shown, call, driver_of
from partita.graph.types import ELEMENT_TYPES, Array, numpy_dtype

CUDA = 2
"""DLPack's device type of NVIDIA GPUs."""

BFLOAT = (4, 16)
"""DLPack's code and bits of bfloat16, which numpy itself lacks."""

_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
"""DLPack's codes of numpy's own element types, by kind."""

_PLAIN = [row for row in ELEMENT_TYPES.values() if row.kind in _KINDS and not row.is_extension]

_CODES = {BFLOAT: "bfloat16", **{(_KINDS[row.kind], row.bits): row.name for row in _PLAIN}}
"""Element types by DLPack's code and number of bits."""

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
    """A contiguous array in a GPU's memory, in C order."""

    driver: CudaDriver
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    """Object that keeps the memory alive."""
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
        """True if both overlap in the memory of one GPU."""
        if not isinstance(other, CudaArray) or other.driver.ordinal != self.driver.ordinal:
            return False
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        """The GPU, in DLPack's terms."""
        return CUDA, self.driver.ordinal

    def __dlpack__(self, stream: Any = None, dl_device: Any = None, copy: bool | None = None, **_: Any) -> Any:
        """The array for another library, without a copy. The stream is ignored, because the array is no longer written to."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("an array on a GPU is given where it is and without a copy; its numpy() is a copy on the host")
        is_narrow = self.dtype.name == _CODES[BFLOAT]
        # numpy describes it as host memory; nobody reads it before the description is corrected.
        capsule = np.asarray(Shown(self, self.address, self.shape, "uint16" if is_narrow else self.dtype.str)).__dlpack__()
        tensor = _tensor(capsule)
        tensor.device, tensor.ordinal = CUDA, self.driver.ordinal
        if is_narrow:
            tensor.code = BFLOAT[0]
        return capsule

    def _copy(self, function: str, target: int, source: int) -> None:
        """Copy on the stream that waits for writes of other libraries, and wait for the copy."""
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
    """An uninitialized array in the GPU's memory; RunError if memory is short."""
    driver.check_process()
    try:
        memory = DevicePieces(driver, [max(1, math.prod(shape) * dtype.itemsize)])
    except CudaError as error:
        raise RunError(f"the CUDA driver failed: {error}", where=f"device {driver.name}") from error
    (address,) = memory.addresses
    return CudaArray(driver, address, shape, dtype, memory)


def put(driver: CudaDriver, array: Array) -> CudaArray:
    """A copy of the array in the GPU's memory; RunError if memory is short."""
    copy = empty(driver, array.shape, array.dtype)
    copy.fill(array)
    return copy


def _tensor(capsule: Any) -> _Tensor:
    """The DLTensor in a DLPack capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return _Tensor.from_address(pointer(capsule, _NAME))


def _by_dlpack(value: Any) -> CudaArray | None:
    """A GPU array of another library. Our stream waits until that library has written it."""
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
        raise ValueError("its element type is not supported")
    if tensor.strides and not _in_one_row(shape, tensor.strides[: tensor.ndim]):
        raise ValueError("it is not contiguous: call its contiguous()")
    return CudaArray(driver, tensor.data + tensor.offset, shape, numpy_dtype(name), capsule, value)


def _in_one_row(shape: tuple[int, ...], strides: list[int]) -> bool:
    """True if the elements are contiguous in C order."""
    sizes = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return 0 in shape or all(size == 1 or own == wanted for size, own, wanted in zip(shape, strides, sizes, strict=True))


read_by(_by_dlpack)
