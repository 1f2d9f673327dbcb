"""Trials of bodies in a child process, so that a crash or hang of TVM's compiler is only a refusal or a CompileError."""

from __future__ import annotations

import atexit
import base64
import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.process.descriptors import pipe
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import is_built
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph
from partita.passes.python_child import environment, module_command

STARTING = 60.0
"""Seconds that the child may take to import TVM."""

COMMAND = module_command("partita.accelerators.tvm.query.trial_child")
"""Command that starts the child."""


RETIRED = "TVM's compiler ended without an answer"
"""The child was idle and ended by itself while the request was on its way."""


class TrialProcess:
    """Sends requests to the child and receives its answers."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._child: subprocess.Popen[str] | None = None
        self._alive = -1
        """This process's end of a pipe that nobody writes to: the child ends when it closes."""
        self._command: list[str] = []
        renewed_in_children(self)

    def renew(self) -> None:
        """In a forked process: forget the child, which serves the parent."""
        self._child = None
        self._end_signal()

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[str | None, bool]:
        """Error message of the trial, None if it succeeded; and whether the child gave this answer. If not, it crashed, timed
        out, or did not start."""
        with self._guard.lock:
            try:
                wrong = self._ready() or self._answer_to(request, seconds)
                if wrong == RETIRED:
                    wrong = self._ready() or self._answer_to(request, seconds)
            except BaseException:
                self._stop()  # Otherwise its late answer would be read as that to the next request.
                raise
            return wrong, self._child is not None

    def stop(self) -> None:
        """End the child, if there is one."""
        with self._guard.lock:
            self._stop()

    def _ready(self) -> str | None:
        """Start the child unless it runs; the reason if it does not start."""
        if self._child is not None and (self._child.poll() is not None or self._command != COMMAND):
            self._stop()
        if self._child is not None:
            return None
        self._command = COMMAND
        try:
            self._child, self._alive = _started(COMMAND)
        except OSError as error:
            return f"no process can be started to try it in ({error}); with ISOLATE: False it is compiled in this one"
        return self._answer(STARTING, " to start")

    def _answer_to(self, request: Mapping[str, Any], seconds: float) -> str | None:
        assert self._child is not None and self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._answer(seconds)

    def _answer(self, seconds: float, doing: str = "") -> str | None:
        """Error message of the child, or how the child ended; None on success."""
        assert self._child is not None and self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], seconds)
        if not ready:
            self._stop()
            return f"TVM's compiler took more than {seconds:g} s{doing}"
        line = self._child.stdout.readline()
        return json.loads(line)["error"] if line else self._died()

    def _died(self) -> str:
        assert self._child is not None
        code = self._child.wait()
        self._stop()
        if code == 0:
            return RETIRED
        return f"TVM's compiler died ({f'signal {-code}' if code < 0 else f'exit status {code}'})"

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None
            self._end_signal()

    def _end_signal(self) -> None:
        """Close this end of the pipe."""
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def _started(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    """The child, and this end of a pipe whose closing ends the child. The child gets the descriptor of the other end."""
    watched, alive = pipe()
    try:
        child = subprocess.Popen(
            [*command, str(watched)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
            pass_fds=[watched],
            process_group=0,  # Ctrl-C is for the parent, which ends the child itself; its priority counts only in its session.
        )
    except OSError:
        os.close(alive)
        raise
    finally:
        os.close(watched)
    return child, alive


TRIALS = TrialProcess()
"""The child process of this process."""

atexit.register(TRIALS.stop)


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
