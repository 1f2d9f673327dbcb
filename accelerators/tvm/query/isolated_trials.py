"""Trials of bodies in a child process, so that a crash or hang of TVM's compiler is only a refusal or a CompileError."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import is_built
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.query.trial_process import TRIALS
from partita.graph.graph import Graph


@attrs.frozen(slots=True)
class Isolation:
    """Compiles bodies for this machine in the child process."""

    machine: Machine
    seconds: float
    """Time limit for one body in seconds, once the child has started."""

    def check(self, body: Body) -> None:
        """CompileError if TVM refuses the body, crashes on it, or takes too long.

        A body that was built before is not tried again; nor is a custom op, whose function cannot be sent to another process."""
        if is_built(body, self.machine) or any(extensions.find(node) is not None for node in body.ops):
            return
        answer, _ = self._ask(body.graph, values=body.values, key=body.key, kind=body.kind)
        if answer is not None:
            raise CompileError(answer)

    def trial(self, graph: Graph) -> tuple[bool | str, bool]:
        """True if TVM takes the one op of the graph, otherwise the reason. The second value is True if the compiler answered; if
        not, it crashed or timed out, and the next trial may differ."""
        answer, lasting = self._ask(graph)
        return (True if answer is None else answer), lasting

    def _ask(self, graph: Graph, **more: str | int) -> tuple[str | None, bool]:
        from partita.graph.writers.onnx.model import to_model

        model = base64.b64encode(to_model(graph).SerializeToString()).decode()
        return TRIALS.ask({"model": model, "machine": attrs.asdict(self.machine), **more}, self.seconds)


_asking: ContextVar[Isolation | None] = ContextVar("isolation of trials", default=None)


def trial_elsewhere(graph: Graph) -> tuple[bool | str, bool] | None:
    """Answer of the child process for the one op of the graph; None if trials run in this process."""
    isolation = _asking.get()
    return None if isolation is None else isolation.trial(graph)


@contextmanager
def isolated_trials(machine: Machine, seconds: float) -> Iterator[None]:
    """Inside, this thread's trials run in a child process."""
    token = _asking.set(_asking.get() or Isolation(machine, seconds))
    try:
        yield
    finally:
        _asking.reset(token)
