"""What is done to make the model of a file, step by step, behind the answers of the session that has the file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from partita.accelerators.process.behind import behind
from partita.accelerators.process.ending import at_a_device
from partita.accelerators.process.forking import Guard

if TYPE_CHECKING:
    from partita.accelerators.starting import Beginning

Steps = Sequence[Callable[[Any], Any]]
"""What makes the model: each step is given what the one before returned, the first None. The last one returns a Beginning."""


class Making:
    """The steps, each done once. The model is not held: while one is done, whoever drops the model frees it at once."""

    def __init__(self, steps: Steps) -> None:
        self._left: tuple[Steps, Any] = (steps, None)
        """The steps that are left, and what the one before them returned."""
        self._guard = Guard(threading.RLock)
        self._beginning: Beginning | None = None
        self.error: Exception | None = None
        """Why no model can be made of the file."""
        self.is_given_up = False
        """Has the model been closed, or dropped?"""

    @property
    def is_over(self) -> bool:
        """Will there be no model?"""
        return self.is_given_up or self.error is not None

    def begun(self, *, answers_meanwhile: bool = False) -> Beginning:
        """What the file's model begins with, made now unless it is there. Calls that are answered meanwhile go first."""
        with self._guard.lock:
            if self.error is not None:
                raise self.error.with_traceback(None)  # else it would grow with each call
            if self._beginning is None:
                try:
                    self._beginning = self._through_all_steps(answers_meanwhile)
                except Exception as error:
                    self.error, self._left = error, ((), None)
                    raise
                self._left = (), None
                if self.is_given_up:
                    self._beginning.give_up()
            return self._beginning

    def _through_all_steps(self, answers_meanwhile: bool) -> Any:
        """What the last step returns, by those that are left: none is done twice, though Ctrl-C or a fork came between two."""
        while self._left[0]:
            (step, *others), before = self._left
            with self.open():
                work = partial(step, before)
                self._left = others, behind(work) if answers_meanwhile else work()
        return self._left[1]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, the end of the interpreter waits; the model was not given up before."""
        if self.is_given_up:
            raise closed()
        with at_a_device():
            yield

    def give_up(self) -> None:
        """Do no further step, and end what is being compiled."""
        self.is_given_up = True
        if self._beginning is not None:
            self._beginning.give_up()


def closed() -> Exception:
    """The error of a model that was given up."""
    from partita.accelerators.errors import RunError

    return RunError("the model is closed", where="a model that starts", remedy="Compile it again")
