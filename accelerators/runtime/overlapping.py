"""Runs subgraphs of asynchronous devices while the processor does other work.

A call starts such a device as soon as all inputs of a subgraph are available, and waits for it at the first read of its outputs.
An input that is available earlier, before a subgraph of the processor has run, is sent at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import attrs
import numpy as np

from partita.accelerators.building.units import Unit
from partita.accelerators.interface.accelerator import Turn
from partita.accelerators.process.exit_barrier import door
from partita.accelerators.runtime.steps import RunPlan, RunStep, Step, Values


class Does(Enum):
    """The kinds of acts."""

    RUN = "run a step to its end"
    SEND = "send one input to the step's device"
    BEGIN = "let the step's device begin"
    FINISH = "wait for the step's outputs"


@attrs.frozen(slots=True)
class Act:
    """One act of a call."""

    does: Does
    step: int
    """The number of the step."""
    number: int = 0
    """The number of the input to send."""


class Overlap:
    """The acts of a call in order.

    A call that would have to wait for another's turn first ends its own turns, so that no two calls wait for each other."""

    def __init__(self, plan: RunPlan) -> None:
        self._steps = plan.steps
        self.acts = tuple(_acts(plan))
        """The acts of a call, in order."""

    @property
    def gains(self) -> bool:
        """True if a device computes, or gets inputs, while something else runs."""
        pairs = zip(self.acts, self.acts[1:])
        return any(act.does is Does.SEND or (act.does is Does.BEGIN and after.does is not Does.FINISH) for act, after in pairs)

    def run(self, values: Values, buffers: Sequence[Any], block: np.ndarray[Any, Any] | None) -> None:
        """Run all steps."""
        call = _OverlappedCall(self._steps, values, buffers, block)
        try:
            for act in self.acts:
                call.do(act)
        finally:
            call.give_up()


@attrs.define(slots=True, eq=False)
class _OverlappedCall:
    """One call: its values so far, and the turns that it holds."""

    steps: Sequence[Step]
    values: Values
    buffers: Sequence[Any]
    block: np.ndarray[Any, Any] | None
    turns: dict[int, UnitTurn] = attrs.field(factory=dict)
    """By the number of the step."""

    def do(self, act: Act) -> None:
        """Performs one act. Slots that nobody reads after a step are freed when the step begins."""
        step = self.steps[act.step]
        if act.does is Does.RUN:
            step.run(self.values, self.buffers[act.step], self.block)
        elif act.does is Does.SEND:
            self.send(act.step, act.number)
        elif act.does is Does.BEGIN:
            turn = self.turns.get(act.step) or turn_of(step.unit, waits=False) or self.waited_for(step.unit)
            self.turns[act.step] = turn
            turn.begin([self.values[slot] for slot in step.reads], self.buffers[act.step])
        elif act.step in self.turns:
            self.finish(act.step)
        if act.does in (Does.RUN, Does.BEGIN):
            for slot in step.frees:
                self.values[slot] = None

    def send(self, number: int, position: int) -> None:
        """Sends an input, unless another call holds the turn with the subgraph: then `begin` passes it with the rest."""
        step = self.steps[number]
        value = self.values[step.reads[position]]
        if isinstance(value, np.ndarray):
            turn = self.turns.get(number) or turn_of(step.unit, waits=False)
            if turn is not None:
                self.turns[number] = turn
                turn.send(position, value)

    def finish(self, number: int) -> None:
        """Waits for a step's outputs."""
        step = self.steps[number]
        assert isinstance(step, RunStep)
        step.store(self.turns.pop(number).finish(), self.values, self.buffers[number], self.block)

    def waited_for(self, unit: Unit) -> UnitTurn:
        """The turn with a subgraph that another call is running; ends this call's own turns first."""
        for number, turn in list(self.turns.items()):
            if turn.has_begun:
                self.finish(number)
        self.give_up()
        waited_for = turn_of(unit)
        assert waited_for is not None
        return waited_for

    def give_up(self) -> None:
        """Ends the turns that are not over."""
        while self.turns:
            self.turns.popitem()[1].give_up()


def _acts(plan: RunPlan) -> list[Act]:
    """The steps in order: overlapping ones begin in place, and finish at their deadline."""
    ends = plan.ends
    acts: list[Act] = []
    waiting: dict[int, list[int]] = {}
    for i in range(len(plan.steps)):
        acts += [Act(Does.FINISH, earlier) for earlier in waiting.pop(i, ())]
        if i in ends:
            acts.append(Act(Does.BEGIN, i))
            waiting.setdefault(ends[i], []).append(i)
        else:
            acts.append(Act(Does.RUN, i))
    acts += [Act(Does.FINISH, i) for i in waiting.pop(len(plan.steps), ())]
    return _with_sends(plan, acts)


def _with_sends(plan: RunPlan, acts: Sequence[Act]) -> list[Act]:
    """The acts, with a SEND for each available input that its device reads only after a subgraph of the processor has run."""
    there: dict[int, int] = {}
    runs = [0]
    sends: dict[int, list[Act]] = {}
    for position, act in enumerate(acts):
        step = plan.steps[act.step]
        if act.does is Does.BEGIN:
            for number, slot in enumerate(step.reads):
                since = there.get(slot, 0)
                if runs[position] > runs[since] and slot not in step.reads[:number]:
                    sends.setdefault(since, []).append(Act(Does.SEND, act.step, number))
        else:
            there.update(dict.fromkeys(step.makes, position + 1))
        runs.append(runs[-1] + (act.does is Does.RUN))
    return [one for position, act in enumerate(acts) for one in (*sends.get(position, ()), act)]


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
