"""Fast import of TVM's tensor-core intrinsics, which its schedules import when a kernel first needs one.

The import declares some 500 kernels. For each of them TVM reads the source of every function on the call stack, which takes 17
seconds in all. It uses these lines only for kernels inside a class, and none of these is."""

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
    """Inside, kernels that this thread declares with TVM are declared without the sources of their callers."""
    entry = part("tirx.script.parser.entry")
    whole, entry.inspect = entry.inspect, _Inspect(threading.get_ident())
    try:
        yield
    finally:
        entry.inspect = whole


class _Inspect:
    """The module `inspect` for TVM's decorator of kernels; on one thread its stack has no source lines."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def stack(self, context: int = 1) -> list[inspect.FrameInfo]:
        """The call stack, like `inspect.stack`."""
        caller = sys._getframe(1)
        if threading.get_ident() != self._thread:
            return inspect.getouterframes(caller, context)
        return [
            inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
            for frame, line in walk_stack(caller)
        ]
