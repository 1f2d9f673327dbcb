"""The side of a child process: it answers the requests of `process/child.py`.

If what it works with crashes or hangs, only this process does; and it ends with its parent, whatever it is doing."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process import messages
from partita.accelerators.process.descriptors import end_with
from partita.accelerators.process.memory import SharedMemory

Answer = Callable[[Mapping[str, Any]], Any]
"""Answers a request, in JSON; arrays are written to the memory for replies."""


def serve(server: Callable[[SharedMemory, SharedMemory], Answer], idle: float | None = None) -> None:
    """Serves until the parent is gone, or no request has come for `idle` seconds. The server gets the memory of requests and
    that of replies; what it raises is an error of the request. What libraries print goes where the parent says."""
    talk, life, requests, replies = map(int, sys.argv[-4:])
    end_with(life)
    with socket.socket(fileno=talk) as stream:
        answer = server(SharedMemory(requests), SharedMemory(replies))
        while select.select([stream], [], [], idle)[0]:
            try:
                request = messages.receive(stream)
            except EOFError:
                return
            told = _told(answer, request)
            try:
                messages.send(stream, told)
            except (TypeError, ValueError) as error:
                messages.send(stream, {"error": messages.error_told(AcceleratorError(f"its answer is of no use: {error}"))})


def _told(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": answer(request)}
    except (Exception, SystemExit) as error:  # noqa: BLE001  the parent is told of any
        return {"error": messages.error_told(error)}
