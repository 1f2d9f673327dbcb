"""Memory that this process holds on each GPU, to detect a shortage before the driver does."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from partita.accelerators.errors import AcceleratorError, CompileError, RunError
from partita.accelerators.process.forking import Guard


class DeviceMemory(ABC):
    """A device with memory of its own, as reported by its driver."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the device for error messages."""

    @property
    @abstractmethod
    def memory_key(self) -> Hashable:
        """Key that identifies its memory among devices."""

    @property
    @abstractmethod
    def largest_piece(self) -> int:
        """Maximum size in bytes of a memory block."""

    @property
    @abstractmethod
    def free(self) -> int:
        """Bytes that are free, as far as that is known."""

    @property
    @abstractmethod
    def room(self) -> str:
        """Description of its memory, as the end of a sentence about a shortage."""

    @property
    def held(self) -> int:
        """Bytes that this process holds in the device's memory."""
        return sum(_held.get(self.memory_key, {}).values())

    def hold(self, holder: Any, blocks: Sequence[int]) -> None:
        """Count blocks of these sizes as held until the holder is freed; RunError if the device has no room for them.

        Of two concurrent holders the second one gets what the first one left."""
        with _holding.lock:
            self.check_memory(blocks, RunError)
            holders = _held.setdefault(self.memory_key, {})
            holders[id(holder)] = sum(blocks)
        weakref.finalize(holder, holders.pop, id(holder))

    def check_memory(self, blocks: Sequence[int], kind: type[AcceleratorError] = CompileError) -> None:
        """Raise an error of this kind if a block is larger than the device allows, or all of them are larger than the free
        memory. Most drivers allocate memory only on first use, and some end the process then."""
        largest, whole, held = max(blocks, default=0), sum(blocks), self.held
        if largest > self.largest_piece:
            cause = f"one of its values takes {largest:,} bytes, and the device takes {self.largest_piece:,} at most"
        elif whole > self.free:
            others = f", other models hold {held:,}" if held else ""
            cause = f"its values and weights take {whole:,} bytes{others}, and {self.room}"
        else:
            return
        remedy = "Close other models, or place a part of the model on another device" if held else _SMALLER
        raise kind(cause, where=f"device {self.name}", remedy=remedy)


_SMALLER = "Place a part of the model on another device"

_held: dict[Hashable, dict[int, int]] = {}
"""Bytes that this process holds in each device's memory, by device and holder."""

_holding = Guard()
"""Lock for checking and counting a new holder."""
