"""One run of a unit's subgraph in separate steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from partita.accelerators.building.units import Unit
from partita.accelerators.interface.async_steps import Turn
from partita.accelerators.process.exit_barrier import door


class UnitTurn:
    """A turn whose errors name its subgraph. The interpreter's exit waits until it is over."""

    def __init__(self, unit: Unit, turn: Turn) -> None:
        self._unit, self._turn = unit, turn
        self._inputs: Sequence[Any] = ()
        self._is_over = False
        self.has_begun = False
        """True if its device has begun."""
        door.enter()

    def send(self, number: int, array: Any) -> None:
        """Sends one input to the device."""
        with self._failures():
            self._turn.send(number, array)

    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Starts the device."""
        self._inputs = inputs
        with self._failures():
            self._turn.begin(inputs, out)
        self.has_begun = True

    def finish(self) -> Sequence[Any]:
        """Waits for the device, and returns the checked outputs."""
        with self._failures():
            outputs = self._turn.finish()
        self._end()
        return self._unit.looked_at(outputs, self._inputs)

    def give_up(self) -> None:
        """Ends the turn without a result."""
        self._turn.give_up()
        self._end()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._end()
            raise self._unit.kept(self._unit.failure(error), self._inputs) from error
        except BaseException:
            self.give_up()
            raise

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            door.leave()


def turn_of(unit: Unit, waits: bool = True) -> UnitTurn | None:
    """The next turn to run the unit's subgraph; None if another call has the turn and `waits` is False."""
    turn = unit.compiled.turn(waits)
    return None if turn is None else UnitTurn(unit, turn)
