"""A run of a subgraph in separate steps, so that its device and others work at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class Turn(ABC):
    """One run, from `send` or `begin` until it is finished or given up. Nobody else runs the subgraph meanwhile.

    An error ends it."""

    @abstractmethod
    def send(self, number: int, array: Any) -> None:
        """Sends the input of this number to the device. The array's contents may change only once the turn is over."""

    @abstractmethod
    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Starts the device with all inputs. The inputs and the arrays of `out` must not be changed until the turn is over."""

    @abstractmethod
    def finish(self) -> Sequence[Any]:
        """Waits for the device and returns the outputs."""

    @abstractmethod
    def give_up(self) -> None:
        """Ends the turn without a result, once the device has stopped. The turn may be over already."""
