"""One run of a GPU's subgraph, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from partita.accelerators.interface.async_steps import Turn

if TYPE_CHECKING:
    from partita.accelerators.tvm.compiled.stepwise import CompiledSteps, Session


class StepsTurn(Turn):
    """A turn whose creator holds the subgraph's lock; `release` releases it at the end of the turn."""

    def __init__(self, compiled: CompiledSteps, release: Callable[[], None]) -> None:
        self._compiled = compiled
        self._release: Callable[[], None] | None = release
        self._inputs: Sequence[Any] = ()

    def send(self, number: int, array: Any) -> None:
        """Queue the copy of one input."""
        with self._working() as session:
            session.send(number, array)

    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Queue everything else of the run."""
        with self._working(inputs) as session:
            session.begin(self._compiled.with_weights(inputs), self._compiled.targets(out))
        self._inputs = inputs

    def finish(self) -> Sequence[Any]:
        """Wait for the queue and return the outputs."""
        with self._working() as session:
            results = session.finish()
            self._compiled.note_times(session)
        self._end()
        return self._compiled.outputs(results, self._inputs)

    def give_up(self) -> None:
        """Wait for the queue and ignore errors."""
        if self._release is not None:
            with suppress(Exception), self._working() as session:
                session.wait()
            self._end()

    @contextmanager
    def _working(self, inputs: Sequence[Any] | None = None) -> Iterator[Session]:
        """Session of the subgraph. An error ends the turn."""
        try:
            with self._compiled.working(inputs) as session:
                yield session
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            self._compiled.run_is_over()
            release()
