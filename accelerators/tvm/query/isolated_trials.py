"""Trying bodies in a child process first, so that a crash or a hang of TVM's compiler is a refusal or a CompileError, no more."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs

from accelerators.errors import CompileError
from accelerators.tvm import extensions
from accelerators.tvm.bodies.body import Body
from accelerators.tvm.code.building import is_built
from accelerators.tvm.machine.machine import Machine
from graph.graph import Graph

STARTING = 60.0
"""Seconds that the child has to import TVM."""

COMMAND = [sys.executable, "-P", "-m", "accelerators.tvm.query.trial_child"]
"""The command that starts the child."""


class Isolation:
    """A child that compiles bodies on trial; it is started when first needed, and again when one has killed it."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        self.machine = machine
        self.seconds = seconds
        """The seconds that one body may take once the child is there."""
        self._child: subprocess.Popen[str] | None = None

    def check(self, body: Body) -> None:
        """CompileError if TVM refuses the body, crashes on it, or takes too long.

        A body that was built before is not tried again; nor is a custom op, whose function cannot be sent to another process."""
        if is_built(body, self.machine) or any(extensions.find(node) is not None for node in body.ops):
            return
        answer = self._ask(body.graph, key=body.key, kind=body.kind)
        if answer is not None:
            raise CompileError(answer)

    def trial(self, graph: Graph) -> tuple[bool | str, bool]:
        """Does TVM take the one op of the graph? True or why not, and whether that is the compiler's own word: if not, it crashed
        or took too long, which may be otherwise next time."""
        answer = self._ask(graph)
        return (True if answer is None else answer), self._child is not None

    def _ask(self, graph: Graph, **more: str) -> str | None:
        from graph.writers.onnx.model import to_model

        if self._child is None:
            self._child = _started()
            wrong = self._answer(STARTING, " to start")
            if wrong is not None:
                return wrong
        assert self._child.stdin is not None
        request: dict[str, Any] = {
            "model": base64.b64encode(to_model(graph).SerializeToString()).decode(),
            "machine": attrs.asdict(self.machine),
            **more,
        }
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._answer(self.seconds)

    def _answer(self, seconds: float, doing: str = "") -> str | None:
        """The reason that the child gives, or how the child ended; None if all is well."""
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
        return f"TVM's compiler died ({f'signal {-code}' if code < 0 else f'exit status {code}'})"

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def __enter__(self) -> Isolation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()


_asking: ContextVar[Isolation | None] = ContextVar("isolation of trials", default=None)


def trial_elsewhere(graph: Graph) -> tuple[bool | str, bool] | None:
    """The answer of a child process about the one op of the graph; None where trials are made in this process."""
    isolation = _asking.get()
    return None if isolation is None else isolation.trial(graph)


@contextmanager
def isolated_trials(machine: Machine, seconds: float) -> Iterator[None]:
    """Inside, this thread's trials are made in a child process, which is started for the first."""
    if _asking.get() is not None:
        yield
        return
    with Isolation(machine, seconds) as isolation:
        token = _asking.set(isolation)
        try:
            yield
        finally:
            _asking.reset(token)


def _started() -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
