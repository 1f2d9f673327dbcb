"""Child process that tries bodies and single ops: python -m partita.accelerators.tvm.query.trial_child [pipe]

It prints a line of JSON once TVM is imported, then answers each request line with a line: whether TVM compiles it. If TVM crashes
or hangs, only this process does. It ends with its parent, or when idle.

The pipe is an open file descriptor. Its other end is the parent's, which closes whenever and however the parent ends."""

from __future__ import annotations

import base64
import json
import os
import select
import sys

from partita.accelerators.process.descriptors import end_with
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import compile_kernels
from partita.accelerators.tvm.lower.lowering import lower
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.query.support import import_trial
from partita.graph.errors import PartitaError
from partita.graph.readers.onnx import load_onnx

IDLE = 60.0
"""Seconds without a request after which it ends."""


def main() -> None:
    """Serve until the input ends or no request comes. TVM's own output goes to stderr, so that answers stay parsable."""
    for number in map(int, sys.argv[1:]):
        end_with(number)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tvm()
    print(json.dumps({"error": None}), file=answers)
    while select.select([sys.stdin], [], [], IDLE)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        print(json.dumps({"error": _tried(json.loads(line))}), file=answers)


def _tried(request: dict[str, object]) -> str | None:
    """Why the body cannot be compiled, or why TVM does not take the op; None if it can."""
    text, machine = str(request["model"]), request["machine"]
    assert isinstance(machine, dict)
    graph = load_onnx(base64.b64decode(text))
    instructions = tuple(Used(**used) for used in machine.pop("instructions"))
    hidden, features = (tuple(machine.pop(key)) for key in ("hidden", "features"))
    target_machine = Machine(**machine, instructions=instructions, hidden=hidden, features=features)
    if "key" not in request:
        answer = import_trial(graph, target_machine)
        return None if answer is True else str(answer)
    values = request["values"]
    assert isinstance(values, int)
    body = Body(graph, values, (), str(request["key"]), str(request["kind"]))
    try:
        compile_kernels(lower(body, target_machine).kernels(), target_machine.target)
    except PartitaError as error:
        return error.cause
    return None


if __name__ == "__main__":
    main()
