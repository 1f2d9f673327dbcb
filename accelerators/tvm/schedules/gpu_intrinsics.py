"""TVM's intrinsics for tensor cores, which its schedules import when a kernel first needs one, without the wait for sources.

The import declares some 500 kernels. For each of them TVM reads the source of every function that is being called at that
moment, which takes 17 seconds in all. It uses the lines only of kernels that stand inside a class, and none of these does."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

from partita.accelerators.tvm.machine.library import part


@contextmanager
def declared_without_sources() -> Iterator[None]:
    """Inside, the kernels that this thread has TVM declare are declared without the sources of their callers."""
    entry = part("tirx.script.parser.entry")
    whole, entry.inspect = entry.inspect, _Inspect(threading.get_ident())
    try:
        yield
    finally:
        entry.inspect = whole


class _Inspect:
    """The module `inspect` as TVM's decorator of kernels uses it; on one thread it tells the calls without their sources."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def stack(self, context: int = 1) -> list[inspect.FrameInfo]:
        """The calls that led here, as `inspect.stack` tells them."""
        caller = sys._getframe(1)
        if threading.get_ident() != self._thread:
            return inspect.getouterframes(caller, context)
        return [
            inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
            for frame, line in walk_stack(caller)
        ]
