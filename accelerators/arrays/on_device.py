"""Arrays in a device's memory. A model on that device reads and writes them in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from partita.graph.types import Array


class DeviceArray(ABC):
    """An array in a device's memory. Other readers (`np.asarray`, another device) get a copy."""

    shape: tuple[int, ...]
    """Its sizes."""
    dtype: np.dtype[Any]
    """The type of its elements."""
    given: Any = None
    """The library's own array that it wraps."""

    @abstractmethod
    def numpy(self) -> Array:
        """A copy in the host's memory."""

    def fill(self, array: Array) -> None:
        """Copies a host array of the same sizes and dtype to it; ValueError for any other."""
        if array.shape != self.shape or array.dtype != self.dtype:
            given, own = (f"{a.dtype.name}{list(a.shape)}" for a in (array, self))
            raise ValueError(f"an array {own} in a device's memory takes no {given}")
        self._fill(array)

    @abstractmethod
    def _fill(self, array: Array) -> None: ...

    @abstractmethod
    def copied(self) -> DeviceArray:
        """A copy in the memory of the same device."""

    @abstractmethod
    def shares(self, other: Any) -> bool:
        """True if the other value may share its memory."""

    @property
    def known_as(self) -> Any:
        """The object that the caller passed for it."""
        return self if self.given is None else self.given

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of its elements in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array in a device's memory is read by a copy")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)}>"


class Destination(Enum):
    """The place of an output for which no array was passed."""

    ON_DEVICE = "device"
    """In a new array in the memory of the device that computes it."""


ON_DEVICE = Destination.ON_DEVICE

Target = Array | DeviceArray
"""An array that an output is written to."""

Wanted = Target | Destination
"""The caller's request for an output: an array to write to, or a place."""

Reader = Callable[[Any], "DeviceArray | Array | None"]
"""Converts a library's own array: to a device array, or a copy if kernels cannot read its layout; None for other values."""

_readers: list[Reader] = []


def read_by(reader: Reader) -> None:
    """Registers a reader of a library's arrays."""
    _readers.append(reader)


def on_device(value: Any) -> DeviceArray | Array | None:
    """The value as a device array (or a copy, see Reader); None if it is of no known kind."""
    if isinstance(value, DeviceArray):
        return value
    return next((array for reader in _readers if (array := reader(value)) is not None), None)


def at_home(values: Sequence[Any]) -> list[Any]:
    """The values, with device arrays copied to the host."""
    return [value.numpy() if isinstance(value, DeviceArray) else value for value in values]
