"""Arrays in an OpenCL device's memory: our own, and those of pyopencl."""

from __future__ import annotations

import math
import sys
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray, read_by
from partita.accelerators.errors import RunError
from partita.accelerators.tvm.run.opencl_driver import Driver, drivers, opencl, told
from partita.graph.types import Array


@attrs.frozen(slots=True, eq=False, repr=False)
class OpenClArray(DeviceArray):
    """A contiguous array at the beginning of an OpenCL buffer, in C order."""

    buffer: Any
    """The pyopencl.Buffer."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    given: Any = None

    def numpy(self) -> Array:
        """A copy in the host's memory."""
        array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            self._copy(as_bytes(array), self.buffer)
        return array

    def _fill(self, array: Array) -> None:
        if array.nbytes:
            self._copy(self.buffer, as_bytes(np.asarray(array, order="C")))

    def copied(self) -> OpenClArray:
        """A copy in another buffer of the same context, which must be that of one of our devices."""
        driver = next(driver for driver in drivers() if driver.context == self.buffer.context)
        copy = empty(driver, self.shape, self.dtype)
        if self.nbytes:
            self._copy(copy.buffer, self.buffer)
        return copy

    def shares(self, other: Any) -> bool:
        """True if both are the same buffer, or parts of one buffer, or one is a part of the other."""
        return isinstance(other, OpenClArray) and bool({*_handles(self.buffer)} & {*_handles(other.buffer)})

    def _copy(self, target: Any, source: Any) -> None:
        cl = opencl()
        try:
            with cl.CommandQueue(self.buffer.context) as queue:
                cl.enqueue_copy(queue, target, source)  # Blocks if one of them is host memory.
                queue.finish()
        except cl.Error as error:
            raise RunError(f"the OpenCL driver failed: {told(error)}", where="a copy of an array on device 'opencl'") from error


def empty(driver: Driver, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OpenClArray:
    """An uninitialized array in the device's memory; RunError if memory is short."""
    driver.check_process()
    cl, size = opencl(), max(1, math.prod(shape) * dtype.itemsize)
    try:
        array = OpenClArray(cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, size), shape, dtype)
    except cl.Error as error:
        raise RunError(f"the OpenCL driver failed: {told(error)}", where=f"device {driver.name}") from error
    driver.hold(array, [size])
    return array


def put(driver: Driver, array: Array) -> OpenClArray:
    """A copy of the array in the device's memory; RunError if memory is short."""
    copy = empty(driver, array.shape, array.dtype)
    copy.fill(array)
    return copy


def _handles(buffer: Any) -> list[int]:
    """OpenCL handles of the buffer, and of the buffer that it is a part of."""
    parent = buffer.get_info(opencl().mem_info.ASSOCIATED_MEMOBJECT)
    return [buffer.int_ptr] if parent is None else [buffer.int_ptr, parent.int_ptr]


def as_bytes(array: Array) -> Array:
    """The array's memory as bytes."""
    return array.reshape(-1).view(np.uint8)


def _of_pyopencl(value: Any) -> OpenClArray | Array | None:
    """An array of pyopencl's, after waiting for its pending operations."""
    module = sys.modules.get("pyopencl.array")
    if module is None or not isinstance(value, module.Array):
        return None
    if not value.flags.forc:
        raise ValueError("it is not contiguous")
    value.finish()
    plain = isinstance(value.base_data, opencl().Buffer) and value.offset == 0 and value.flags.c_contiguous
    if not plain or value.base_data.size < math.prod(value.shape) * value.dtype.itemsize:
        return np.asarray(value.get())
    return OpenClArray(value.base_data, tuple(value.shape), np.dtype(value.dtype), value)


read_by(_of_pyopencl)
