"""Trials of bodies in a child process, so that a crash or hang of TVM's compiler is only a refusal or a CompileError."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.process.child import QUIET, Child, Ended, KeptChild
from partita.accelerators.process.memory import Packing, describe_graph
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import is_built
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.passes.python_child import module_command

STARTING = 60.0
"""Seconds that the child may take to import TVM."""

COMMAND = module_command("partita.accelerators.tvm.query.trial_child")
"""Command that starts the child."""

RETIRED = "TVM's compiler ended without an answer"
"""The child was idle and ended by itself while the request was on its way."""


class _NoAnswer(Exception):
    """The child crashed, timed out, or did not start; the message says so."""


class TrialProcess(KeptChild[Child]):
    """Sends requests to the child and receives its answers."""

    def ask(self, request: Mapping[str, Any], packing: Packing, seconds: float) -> tuple[str | None, bool]:
        """Error message of the trial, None if it succeeded; and whether the child gave this answer. If not, it crashed, timed
        out, or did not start."""
        try:
            try:
                return self._answer(request, packing, seconds), True
            except _NoAnswer as none:
                if str(none) != RETIRED:
                    raise
            return self._answer(request, packing, seconds), True
        except _NoAnswer as none:
            return str(none), False

    def new_child(self) -> Child:
        try:
            return Child(COMMAND, output=QUIET)
        except OSError as error:
            cause = f"no process can be started to try it in ({error}); with ISOLATE: False it is compiled in this one"
            raise _NoAnswer(cause) from None

    def prepare(self, child: Child) -> None:
        """Imports TVM in the child."""
        _asked(child, {}, None, STARTING, " to start")

    def _answer(self, request: Mapping[str, Any], packing: Packing, seconds: float) -> str | None:
        with self.child() as child:
            return _asked(child, request, packing, seconds)


def _asked(child: Child, request: Mapping[str, Any], packing: Packing | None, seconds: float, doing: str = "") -> str | None:
    """The child's answer; `_NoAnswer` if there is none."""
    try:
        answer: str | None = child.ask(request, packing, seconds)
    except TimeoutError:
        raise _NoAnswer(f"TVM's compiler took more than {seconds:g} s{doing}") from None
    except Ended as end:
        raise _NoAnswer(f"TVM's compiler died ({end})" if end.code else RETIRED) from None
    except PartitaError as error:
        raise _NoAnswer(f"TVM's compiler failed: {error.cause}") from None
    return answer


TRIALS = TrialProcess()
"""The child process of this process."""

atexit.register(TRIALS.end)


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
        packing = Packing()
        request = {"graph": describe_graph(graph, packing), "machine": attrs.asdict(self.machine), **more}
        return TRIALS.ask(request, packing, self.seconds)


_asking: ContextVar[Isolation | None] = ContextVar("isolation of trials", default=None)


def trial_elsewhere(graph: Graph) -> tuple[bool | str, bool] | None:
    """Answer of the child process for the one op of the graph; None if trials run in this process."""
    isolation = _asking.get()
    return None if isolation is None else isolation.trial(graph)


@contextmanager
def isolated_trials(machine: Machine, seconds: float) -> Iterator[None]:
    """A context in which this thread's trials run in a child process."""
    token = _asking.set(_asking.get() or Isolation(machine, seconds))
    try:
        yield
    finally:
        _asking.reset(token)
