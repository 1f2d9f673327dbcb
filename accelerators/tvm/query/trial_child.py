"""A child process, started by `isolated_trials`, that tries to compile bodies and single ops. It ends when idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.process.memory import SharedMemory, described_graph
from partita.accelerators.process.serving import Answer, serve
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import compile_kernels
from partita.accelerators.tvm.lower.lowering import lower
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.query.support import import_trial
from partita.graph.errors import PartitaError

IDLE = 60.0
"""Seconds without a request after which it ends."""


def trials(requests: SharedMemory, replies: SharedMemory) -> Answer:
    """A function that tries the body or op of a request; an empty request only imports TVM."""

    def answer(request: Mapping[str, Any]) -> str | None:
        tvm()
        return _tried(request, requests) if request else None

    return answer


def _tried(request: Mapping[str, Any], requests: SharedMemory) -> str | None:
    """The reason why the body cannot be compiled, or why TVM does not take the op; None if it can."""
    graph, machine = described_graph(request["graph"], requests), dict(request["machine"])
    instructions = tuple(Used(**used) for used in machine.pop("instructions"))
    hidden, features = (tuple(machine.pop(key)) for key in ("hidden", "features"))
    target_machine = Machine(**machine, instructions=instructions, hidden=hidden, features=features)
    if "key" not in request:
        answer = import_trial(graph, target_machine)
        return None if answer is True else str(answer)
    body = Body(graph, request["values"], (), request["key"], request["kind"])
    try:
        compile_kernels(lower(body, target_machine).kernels(), target_machine.target)
    except PartitaError as error:
        return error.cause
    return None


if __name__ == "__main__":
    serve(trials, IDLE)
