"""One run of a unit's subgraph that is asked for part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from partita.accelerators.building.units import Unit
from partita.accelerators.interface.turns import Turn
from partita.accelerators.process.ending import door


class UnitTurn:
    """A turn whose errors say which subgraph it is of. Until it is over, the end of the interpreter waits for it."""

    def __init__(self, unit: Unit, turn: Turn) -> None:
        self._unit, self._turn = unit, turn
        self._inputs: Sequence[Any] = ()
        self._is_over = False
        self.has_begun = False
        """Is its device at work on it?"""
        door.enter()

    def send(self, number: int, array: Any) -> None:
        """Let the device have one input now."""
        with self._failures():
            self._turn.send(number, array)

    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Let the device begin."""
        self._inputs = inputs
        with self._failures():
            self._turn.begin(inputs, out)
        self.has_begun = True

    def finish(self) -> Sequence[Any]:
        """The outputs, checked, once the device is done."""
        with self._failures():
            outputs = self._turn.finish()
        self._end()
        return self._unit.looked_at(outputs, self._inputs)

    def give_up(self) -> None:
        """End it without a result."""
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
    """The next turn to run the unit's subgraph; None if another call has its turn and that is not to be waited for."""
    turn = unit.compiled.turn(waits)
    return None if turn is None else UnitTurn(unit, turn)
