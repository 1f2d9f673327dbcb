"""A run of a subgraph that is asked for part by part, so that its device and others work at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class Turn(ABC):
    """One run, from the first that is asked for until it is finished or given up. Nobody else runs the subgraph meanwhile.

    It is over behind an error."""

    @abstractmethod
    def send(self, number: int, array: Any) -> None:
        """Let the device have the input of this number now. What the array holds may change only once the turn is over."""

    @abstractmethod
    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Let the device begin with all inputs. They and the arrays of `out`, as those of a run, are its own until it is over."""

    @abstractmethod
    def finish(self) -> Sequence[Any]:
        """The outputs, once the device has computed them."""

    @abstractmethod
    def give_up(self) -> None:
        """End it without a result, once the device works on it no more. It may be over already."""
