"""Arrays that lie in a device's memory. A model on that device reads them, and writes results to them, where they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from partita.graph.types import Array


class DeviceArray(ABC):
    """An array in a device's memory. All else that reads it (`np.asarray`, another device) gets a copy of it."""

    shape: tuple[int, ...]
    """Its sizes."""
    dtype: np.dtype[Any]
    """The type of its elements."""
    given: Any = None
    """The array of a library's own that it stands for."""

    @abstractmethod
    def numpy(self) -> Array:
        """A copy in the host's memory."""

    def fill(self, array: Array) -> None:
        """Copy an array of the host's to it, of the same sizes and type; ValueError for any other."""
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
        """May the other value lie in the same memory?"""

    @property
    def known_as(self) -> Any:
        """The object that the caller has of it."""
        return self if self.given is None else self.given

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that its elements take."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array in a device's memory is read by a copy")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)}>"


class Destination(Enum):
    """Where an output is to be that has no array yet."""

    ON_DEVICE = "device"
    """In the memory of the device that computes it, in a new array."""


ON_DEVICE = Destination.ON_DEVICE

Target = Array | DeviceArray
"""An array that an output is written to."""

Wanted = Target | Destination
"""What a caller asks for an output: an array that it is written to, or where it is to be."""

Reader = Callable[[Any], "DeviceArray | Array | None"]
"""Makes an array of a library's own: one on the device, or a copy where kernels cannot read it as it lies; None for others."""

_readers: list[Reader] = []


def read_by(reader: Reader) -> None:
    """From now on models take what the reader knows."""
    _readers.append(reader)


def on_device(value: Any) -> DeviceArray | Array | None:
    """The value where it is an array on a device; None where it is none that is known."""
    if isinstance(value, DeviceArray):
        return value
    return next((array for reader in _readers if (array := reader(value)) is not None), None)


def at_home(values: Sequence[Any]) -> list[Any]:
    """The values, those on devices copied to the host."""
    return [value.numpy() if isinstance(value, DeviceArray) else value for value in values]
