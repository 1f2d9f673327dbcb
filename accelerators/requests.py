"""Asynchronous calls: a bounded queue before a few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from accelerators.errors import RunError


class RequestQueue:
    """At most `running` calls at once, at most `waiting` more; `submit` waits while there is no room."""

    def __init__(self, running: int, waiting: int) -> None:
        self._room = threading.BoundedSemaphore(running + waiting)
        self._threads = ThreadPoolExecutor(running, "partita-request")

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """A future of what the call returns."""
        self._room.acquire()
        try:
            future = self._threads.submit(call)
        except RuntimeError as error:
            self._room.release()
            raise RunError("the model is closed", where="start", remedy="Compile it again") from error
        future.add_done_callback(lambda done: self._room.release())
        return future

    def close(self) -> None:
        """Wait for what is running; drop what is waiting."""
        self._threads.shutdown(cancel_futures=True)
