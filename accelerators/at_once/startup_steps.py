"""The steps that make the model of a file, while the session with the file answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from partita.accelerators.process.background import behind
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.forking import Guard

if TYPE_CHECKING:
    from partita.accelerators.starting import Beginning

Steps = Sequence[Callable[[Any], Any]]
"""The steps: each takes the result of the one before, the first None. The last one returns a Beginning."""


class Making:
    """Runs each step once. It does not reference the model, so that dropping the model frees it at once."""

    def __init__(self, steps: Steps) -> None:
        self._left: tuple[Steps, Any] = (steps, None)
        """The remaining steps, and the result of the one before them."""
        self._guard = Guard(threading.RLock)
        self._beginning: Beginning | None = None
        self.error: Exception | None = None
        """The error, if no model can be made of the file."""
        self.is_given_up = False
        """True if the model was closed, or dropped."""

    @property
    def is_over(self) -> bool:
        """True if there will be no model."""
        return self.is_given_up or self.error is not None

    def begun(self, *, answers_meanwhile: bool = False) -> Beginning:
        """The Beginning of the file's model, made now unless it exists. With `answers_meanwhile`, calls take precedence."""
        with self._guard.lock:
            if self.error is not None:
                raise self.error.with_traceback(None)  # else the traceback would grow with each call
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
        """Runs the remaining steps, and returns the last result: none runs twice, even if Ctrl-C or a fork interrupts."""
        while self._left[0]:
            (step, *others), before = self._left
            with self.open():
                work = partial(step, before)
                self._left = others, behind(work) if answers_meanwhile else work()
        return self._left[1]

    @contextmanager
    def open(self) -> Iterator[None]:
        """A context that delays the end of the interpreter; raises if the model was given up."""
        if self.is_given_up:
            raise closed()
        with at_a_device():
            yield

    def give_up(self) -> None:
        """Starts no further step, and stops a running compilation."""
        self.is_given_up = True
        if self._beginning is not None:
            self._beginning.give_up()


def closed() -> Exception:
    """The error for a model that was given up."""
    from partita.accelerators.errors import RunError

    return RunError("the model is closed", where="a model that starts", remedy="Compile it again")
