"""Asynchronous calls: a bounded queue, a few threads, and a time limit for each call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any
from weakref import WeakSet

from partita.accelerators.errors import QueueFull, RequestTimeout, RunError
from partita.accelerators.process.exit_barrier import at_a_device, before_the_door_closes
from partita.accelerators.process.forking import renewed_in_children
from partita.graph.formatting import counted

LINGER = 1.0
"""Seconds that an idle thread waits for the next call before it ends."""


class QueuedRequest(Future[Any]):
    """A started call: `result(timeout)` waits for its outputs, `cancel()` withdraws it while it waits in the queue."""

    def __init__(self, queue: RequestQueue, call: Callable[[], Any], deadline: float) -> None:
        super().__init__()
        self._queue = queue
        self.deadline = deadline
        """The time of its timeout, by `time.monotonic()`."""
        self.call: Callable[[], Any] | None = call
        """The call that it runs; None once it is over, so that a future that is kept alive holds no inputs."""

    def cancel(self) -> bool:
        """True if it was still waiting: then it never runs, and its place in the queue is free at once."""
        cancelled = super().cancel()
        if cancelled and self._queue.withdrawn(self):
            self.set_running_or_notify_cancel()
        return cancelled

    def run(self) -> None:
        """Runs the call, and stores its result or error unless the request has timed out."""
        assert self.call is not None
        try:
            value = self.call()
        except BaseException as error:  # noqa: BLE001  the future's result raises it
            self.settle(partial(self.set_exception, error))
        else:
            self.settle(partial(self.set_result, value))

    def settle(self, action: Callable[[], None]) -> None:
        """Ends the request with this action, unless it has already ended."""
        with contextlib.suppress(InvalidStateError):
            action()
        self.call = None


class RequestQueue:
    """At most `running` calls at once and at most `waiting` more; further `submit` calls wait for room, or raise QueueFull.

    With a limit, a request that is not done after that many seconds ends with RequestTimeout, whether it waited or
    ran. A device cannot be stopped: its thread goes on, and counts as running until it returns."""

    def __init__(self, running: int, waiting: int, limit: float | None = None, refuses: bool = False) -> None:
        self._most_running = running
        self._most_waiting = waiting
        self._limit = limit
        self._refuses = refuses
        self._closed = False
        self._watched = False
        self._forget_all()
        renewed_in_children(self)
        _queues.add(self)

    def _forget_all(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[QueuedRequest] = deque()
        self._running: set[QueuedRequest] = set()
        self._threads = self._idle = 0

    def submit(self, call: Callable[[], Any], placed: Callable[[], None] | None = None) -> Future[Any]:
        """A future of the call's result. `placed` is called when the call has its place in the queue, before the next one has."""
        deadline = time.monotonic() + (self._limit or threading.TIMEOUT_MAX)
        with self._changed:
            if not self._has_room() and self._refuses:
                raise QueueFull(
                    f"the queue is full: {counted(self._most_running, 'request')} may run and {self._most_waiting} wait",
                    where="start",
                    remedy="Try again later, raise QUEUE_SIZE, or let start wait for room: QUEUE_FULL='wait'",
                )
            if not self._changed.wait_for(self._has_room, self._limit):
                raise RequestTimeout(f"there was no room in the queue for {self._limit:g} s", where="start", remedy=_LATER)
            if self._closed:
                raise RunError("the model is closed", where="start", remedy="Compile it again")
            self._start_threads()
            request = QueuedRequest(self, call, deadline)
            self._waiting.append(request)
            if placed is not None:
                placed()
            self._changed.notify_all()
        return request

    def _has_room(self) -> bool:
        return self._closed or len(self._waiting) + len(self._running) < self._most_running + self._most_waiting

    def _start_threads(self) -> None:
        """Starts a worker if none is idle for the new call, and the thread that enforces the time limit."""
        try:
            if len(self._waiting) >= self._idle and self._threads < self._most_running:
                threading.Thread(target=self._work, name="partita-request", daemon=True).start()
                self._threads += 1
            if self._limit is not None and not self._watched:
                threading.Thread(target=self._watch, name="partita-request-limit", daemon=True).start()
                self._watched = True
        except RuntimeError as error:
            raise RunError(f"no thread can be started for it: {error}", where="start") from error

    def withdrawn(self, request: QueuedRequest) -> bool:
        """Removes the request from the queue; True if it was still waiting."""
        with self._changed:
            waited = request in self._waiting
            if waited:
                self._waiting.remove(request)
            self._changed.notify_all()
        return waited

    def _work(self) -> None:
        """The worker thread: runs calls until none has come for a while."""
        while (request := self._next()) is not None:
            with at_a_device():  # a call may hold the last reference to its model
                request.run()
                with self._changed:
                    self._running.discard(request)
                    self._changed.notify_all()
                del request

    def _next(self) -> QueuedRequest | None:
        with self._changed:
            while True:
                self._idle += 1
                came = self._changed.wait_for(lambda: self._waiting, LINGER)
                self._idle -= 1
                if not came:
                    self._threads -= 1
                    return None
                request = self._waiting.popleft()
                if request.set_running_or_notify_cancel():
                    self._running.add(request)
                    return request

    def _watch(self) -> None:
        """The thread that ends requests past their time limit, until there are none left."""
        while True:
            with self._changed:
                alive = [request for request in (*self._waiting, *self._running) if not request.done()]
                if not alive:
                    self._watched = False
                    return
                now = time.monotonic()
                late = [(request, request in self._running) for request in alive if request.deadline <= now]
                self._waiting = deque(request for request in self._waiting if (request, False) not in late)
                if not late:
                    self._changed.wait(min(request.deadline for request in alive) - now)
            for request, ran in late:
                self._end(request, ran)

    def _end(self, request: QueuedRequest, ran: bool) -> None:
        """Ends a request past its time limit; a waiting one leaves the queue."""
        doing = "ran" if ran else "waited"
        error = RequestTimeout(f"it still {doing} after {self._limit:g} s", where="start", remedy=_LATER)
        request.settle(partial(request.set_exception, error))
        if not ran and request.cancelled():
            request.set_running_or_notify_cancel()
        with self._changed:
            self._changed.notify_all()

    def renew(self) -> None:
        """Resets the queue in a forked process, which has none of the threads or their work."""
        self._watched = False
        self._forget_all()

    def close(self) -> None:
        """Drops waiting requests, and waits for running ones, at most until their time limit."""
        with self._changed:
            self._closed = True
            dropped = list(self._waiting)
            self._changed.notify_all()
        for request in dropped:
            request.cancel()
        self.wait()

    def wait(self) -> None:
        """Waits until all requests have ended."""
        with self._changed:
            self._changed.wait_for(lambda: all(request.done() for request in (*self._waiting, *self._running)))


_LATER = "Ask less at once, or give it more time: REQUEST_SECONDS"

_queues: WeakSet[RequestQueue] = WeakSet()


def _finish() -> None:
    """Finishes started requests at interpreter exit."""
    for queue in list(_queues):
        queue.wait()


before_the_door_closes(_finish)
