"""What this process holds in the memory of each GPU: one that has too little left says so before its driver does."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from partita.accelerators.errors import AcceleratorError, CompileError, RunError
from partita.accelerators.process.forking import Guard


class DeviceMemory(ABC):
    """A device with memory of its own, as its driver tells of it."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The device's name, as errors call it."""

    @property
    @abstractmethod
    def memory_key(self) -> Hashable:
        """What tells its memory from that of other devices."""

    @property
    @abstractmethod
    def largest_piece(self) -> int:
        """The bytes of the largest piece of memory that it takes."""

    @property
    @abstractmethod
    def free(self) -> int:
        """The bytes that are left, as far as that is known."""

    @property
    @abstractmethod
    def room(self) -> str:
        """What memory it has, as the end of a sentence about what it lacks."""

    @property
    def held(self) -> int:
        """The bytes that this process holds in the device's memory."""
        return sum(_held.get(self.memory_key, {}).values())

    def hold(self, holder: Any, blocks: Sequence[int]) -> None:
        """Count pieces of so many bytes as held until the holder goes; RunError if the device has no room for them.

        Of two holders that come at once, the second one gets what the first one left."""
        with _holding.lock:
            self.check_memory(blocks, RunError)
            holders = _held.setdefault(self.memory_key, {})
            holders[id(holder)] = sum(blocks)
        weakref.finalize(holder, holders.pop, id(holder))

    def check_memory(self, blocks: Sequence[int], kind: type[AcceleratorError] = CompileError) -> None:
        """An error of this kind if the device takes no piece as large as one of so many bytes, or has less memory for all of them
        than others leave. Most drivers find memory only when it is used, and some end the process then."""
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
"""The bytes that this process holds in each device's memory, by device and holder."""

_holding = Guard()
"""Held while one more is counted."""
