"""The workers of `map_batches` on this machine: processes that are restarted if they end early."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, NotSupported, RunError
from partita.accelerators.process.child import Child, Ended
from partita.accelerators.process.forking import Guard
from partita.accelerators.process.memory import Packing, described
from partita.graph.errors import PartitaError
from partita.graph.formatting import first_line
from partita.graph.logs import logger
from partita.mapping.bursts import Array, Burst, bytes_of, read_ahead
from partita.passes.python_child import module_command

Result = dict[str, Array] | BaseException
"""Outputs of a call by name, or its error."""

ATTEMPTS = 3
"""Number of workers that may end on an input before the input counts as the reason."""

PATIENCE = 0.5
"""Seconds to wait at the end for a data set that is being read."""


@attrs.frozen
class Answers:
    """Results of several calls."""

    results: dict[int, Result]
    seconds: float = 0.0
    """Seconds of computation in the process."""


class Worker:
    """One process, used by a single thread of the caller."""

    def __init__(self, path: str, key: bytes | None = None) -> None:
        self._path, self._key = path, key
        self._child: Child | None = None
        self._is_ready = False
        """True if the process has imported the model."""
        self._ending = Guard()
        self._is_over = False

    @property
    def pid(self) -> int | None:
        """Id of the process; None if there is none."""
        return None if self._child is None else self._child.number

    def call(self, calls: Mapping[int, Mapping[str, Array]]) -> Answers | None:
        """Results of the calls, which are sent together; None if the process ended before it answered all."""
        where = f"input {next(iter(calls))}"
        if not self._is_ready and not self._start(where):
            return None
        results: dict[int, Result] = {}
        packing, sent = Packing(), dict[int, Any]()
        for number, arrays in calls.items():
            try:
                sent[number] = packed(arrays, packing)
            except AcceleratorError as error:
                results[number] = error
        child = self._running()
        try:
            answers = child.ask({"calls": list(sent.values())}, packing)
        except Ended as end:
            self._ended(where, end)
            return None
        for number, answer in zip(sent, answers, strict=True):
            results[number] = RunError(answer["error"], where=f"input {number}") if "error" in answer else _copied(answer, child)
        child.replies.shrink()
        return Answers(results, sum(answer.get("seconds", 0.0) for answer in answers))

    def start_again(self) -> None:
        """Start a process in place of the one that ended, and wait until it accepts inputs. Errors are left to the next call."""
        with contextlib.suppress(RunError):
            self._start("map_batches")

    def close(self) -> None:
        """Kill the process; the thread that uses it closes what it shares with it."""
        self._is_over = True
        with self._ending.lock:
            if self._child is not None:
                self._child.kill()

    def _start(self, where: str) -> bool:
        """Start the process and wait until it has imported the model; False if it ended before."""
        child = self._running()
        try:
            child.ask({"model": self._path, "key": None if self._key is None else self._key.hex()})
        except Ended as end:
            self._ended(where, end)
            return False
        except PartitaError as error:
            self.end()
            raise RunError(f"no worker can import the model: {error}", where=where) from None
        self._is_ready = True
        return True

    def _running(self) -> Child:
        with self._ending.lock:
            if self._is_over:
                raise RunError("the work was given up", where="map_batches")
            if self._child is None:
                try:
                    self._child = Child(module_command("partita.mapping.worker"), name=self._path)
                except OSError as error:
                    cause = f"no worker can be started: {first_line(error)}"
                    remedy = "Take fewer workers, or raise the system's limits"
                    raise RunError(cause, where="map_batches", remedy=remedy) from error
            return self._child

    def _ended(self, where: str, end: Ended) -> None:
        """Log that the process ended by itself."""
        self.end()
        if not self._is_over:
            logger("map").warning("%s: a worker ended (%s) and is started again", where, end)

    def end(self) -> None:
        """End the process, if there is one."""
        with self._ending.lock:
            child, self._child, self._is_ready = self._child, None, False
        if child is not None:
            child.end()


def packed(arrays: Mapping[str, Array], packing: Packing) -> dict[str, Any]:
    """The descriptions of the arrays; an error for what is not an array."""
    for name, value in arrays.items():
        if not isinstance(value, (np.ndarray, np.generic)):
            cause = f"a {type(value).__name__} cannot be sent to another process"
            raise NotSupported(cause, where=f"value {name!r}", remedy="Use executor='serial'")
    return {name: packing.describe(value) for name, value in arrays.items()}


def _copied(answer: Mapping[str, Any], child: Child) -> dict[str, Array]:
    """The outputs of a call, in memory of this process."""
    return {name: np.array(described(value, child.replies)) for name, value in answer["outputs"].items()}


@attrs.define(slots=True, eq=False)
class _SentTask:
    """An input on its way to a worker."""

    number: int
    arrays: Mapping[str, Array]
    attempts: int = 0
    """Number of workers that ended on it, or on others in the same call."""


class WorkerCrew:
    """Several workers, each with a thread; they take inputs in order, and results are returned in that order too.

    An input on which a worker ended is taken, alone, by the next free worker, without waiting for the restart or for the other
    inputs of the failed call."""

    def __init__(self, path: str, count: int, ahead: int | None, key: bytes | None = None) -> None:
        self.workers = [Worker(path, key) for _ in range(count)]
        self._limit = ahead
        """Maximum number of inputs taken ahead of the fetched results; None for twice what all workers get at once."""
        self._burst = Burst()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        """Condition for workers. The caller takes the bare lock: an interrupt inside a condition may leave it inconsistent."""
        self._arrived: queue.SimpleQueue[Mapping[int, Result]] = queue.SimpleQueue()
        """Results for the caller; an empty mapping when there are no more inputs."""
        self._taken = self._given = 0
        self._open = 0
        """Number of inputs taken that have no result yet."""
        self._handed_back: list[_SentTask] = []
        """Inputs on which a worker ended."""
        self._results: dict[int, Result] = {}
        """Results that have arrived; used only by the caller."""
        self._reader: threading.Thread | None = None
        """The thread that reads inputs, without the lock, since a data set may take its time."""
        self._is_over = False
        """True if no more inputs are read."""
        self._is_closed = False
        """True if no more results are wanted."""

    def results(self, inputs: Iterator[Mapping[str, Array]]) -> Iterator[dict[str, Array]]:
        """The outputs for each of the inputs, in order. The workers end with the iterator."""
        threads = [threading.Thread(target=self._work, args=(worker, inputs), daemon=True) for worker in self.workers]
        try:
            for thread in threads:
                thread.start()
            while (result := self._next(threads)) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            with self._lock:
                self._is_over = self._is_closed = True
                reader = self._reader
                self._room.notify_all()
            for worker in self.workers:
                worker.close()
            for thread in threads:
                thread.join(PATIENCE if thread is reader else None)

    def _next(self, threads: list[threading.Thread]) -> Result | None:
        while self._given not in self._results:
            with self._lock:
                if self._given == self._taken and (self._is_over or not any(thread.is_alive() for thread in threads)):
                    return None
            with contextlib.suppress(queue.Empty):
                self._results.update(self._arrived.get(timeout=0.1))
        result = self._results.pop(self._given)
        with self._lock:
            self._given += 1
            if self._is_room():
                self._room.notify_all()
        return result

    def _work(self, worker: Worker, inputs: Iterator[Mapping[str, Array]]) -> None:
        """Thread of a worker: processes inputs until there are no more or one fails."""
        try:
            self._serve(worker, inputs)
        finally:
            worker.end()

    def _serve(self, worker: Worker, inputs: Iterator[Mapping[str, Array]]) -> None:
        while tasks := self._take(inputs):
            calls = {task.number: task.arrays for task in tasks}
            try:
                answers = worker.call(calls)
            except BaseException as error:  # noqa: BLE001  raised when its result is fetched
                answers = Answers(dict.fromkeys(calls, error))
            if answers is None:
                self._hand_back(tasks)
                worker.start_again()
                continue
            self._keep(answers.results)
            if answers.seconds:
                outputs = [result for result in answers.results.values() if not isinstance(result, BaseException)]
                self._burst.learn(len(calls), answers.seconds, bytes_of(*calls.values(), *outputs))

    def _hand_back(self, tasks: list[_SentTask]) -> None:
        """Return inputs on which a worker ended to the queue; after ATTEMPTS workers an input becomes an error."""
        for task in tasks:
            task.attempts += 1
        remedy = "Look at this input, and at their stderr"
        lost = {
            task.number: RunError(f"{ATTEMPTS} workers ended on it", where=f"input {task.number}", remedy=remedy)
            for task in tasks
            if task.attempts == ATTEMPTS
        }
        with self._room:
            self._handed_back += [task for task in tasks if task.number not in lost]
            self._room.notify_all()
        self._keep(lost)

    def _keep(self, results: Mapping[int, Result]) -> None:
        """Store results of inputs."""
        with self._room:
            self._open -= len(results)
            self._is_over = self._is_over or any(isinstance(result, BaseException) for result in results.values())
            if self._is_over:
                self._room.notify_all()
        self._arrived.put(results)

    def _take(self, inputs: Iterator[Mapping[str, Array]]) -> list[_SentTask]:
        """An input that was handed back, or else the next ones, once there is room for their results. Empty when all have
        results."""
        while True:
            with self._room:
                self._room.wait_for(self._is_next)
                if self._is_closed:
                    return []
                if self._handed_back:
                    return [self._handed_back.pop(0)]
                if self._is_over:
                    return []
                self._reader, size = threading.current_thread(), self._size()
            taken, error = read_ahead(inputs, size)
            if tasks := self._booked(taken, error):
                return tasks

    def _booked(self, taken: list[Mapping[str, Array]], error: BaseException | None) -> list[_SentTask]:
        """Tasks for the inputs that were read; empty if no more are wanted. An error takes the place of the next input."""
        with self._room:
            self._reader = None
            self._room.notify_all()
            if self._is_over:
                return []
            tasks = [_SentTask(number, arrays) for number, arrays in enumerate(taken, self._taken)]
            self._taken += len(tasks)
            self._open += len(tasks)
            if error is not None:
                self._is_over = True
                is_end = isinstance(error, StopIteration)
                self._arrived.put({} if is_end else {self._taken: error})
                self._taken += not is_end
            return tasks

    def _is_next(self) -> bool:
        """True if a thread need not wait any longer."""
        if self._is_closed or self._handed_back:
            return True
        return self._open == 0 if self._is_over else self._reader is None and self._is_room()

    def _is_room(self) -> bool:
        """True if there is room for the results of the next inputs of a worker."""
        size = self._size()
        limit = 2 * len(self.workers) * size if self._limit is None else self._limit
        return self._taken - self._given + size <= limit

    def _size(self) -> int:
        """Number of inputs that a worker gets at once; `ahead` is at least twice that for each worker."""
        if self._limit is None:
            return self._burst.size
        return max(1, min(self._burst.size, self._limit // (2 * len(self.workers))))
