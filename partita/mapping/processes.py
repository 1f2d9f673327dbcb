"""The workers of `map_batches` on this machine: processes that are started again where one ends before its time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from accelerators.errors import RunError
from accelerators.process.forking import Guard
from graph.logs import logger
from graph.words import first_line
from partita.mapping.frames import read_frame, write_frame

Array = np.ndarray[Any, Any]

ATTEMPTS = 3
"""So often an input is given to a worker that then ends, before it is taken to be the reason."""


class Worker:
    """One process, with a thread of the caller's to itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        """Has the process said that it imported the model?"""
        self._ending = Guard()
        self._is_over = False

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def call(self, arrays: Mapping[str, Array], where: str) -> dict[str, Array] | None:
        """The outputs by name; None where the process ended before it gave them."""
        if not self._is_ready and not self._start(where):
            return None
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            write_frame(process.stdin, {}, arrays)  # type: ignore[arg-type]
        except BrokenPipeError:
            self._ended(where)
            return None
        reply = read_frame(process.stdout)  # type: ignore[arg-type]
        if reply is None:
            self._ended(where)
            return None
        words, outputs = reply
        if "error" in words:
            raise RunError(words["error"], where=where)
        return outputs

    def start_again(self) -> None:
        """Start a process in place of the one that ended, and wait until it can be given an input. The next call says what keeps
        it from that."""
        with contextlib.suppress(RunError, ValueError):  # ValueError: its pipe was closed meanwhile, by `close`.
            self._start("map_batches")

    def close(self) -> None:
        """End the process, whatever it does."""
        self._is_over = True
        self._end()

    def _start(self, where: str) -> bool:
        """Start the process and wait until it has imported the model; False where it ended before."""
        process = self._running()
        reply = read_frame(process.stdout)  # type: ignore[arg-type]
        if reply is None:
            self._ended(where)
            return False
        if "unready" in reply[0]:
            self._end()
            raise RunError(f"no worker can import the model: {reply[0]['unready']}", where=where)
        self._is_ready = True
        return True

    def _running(self) -> subprocess.Popen[bytes]:
        with self._ending.lock:
            if self._is_over:
                raise RunError("the work was given up", where="map_batches")
            if self._process is None:
                command = [sys.executable, "-m", "partita.mapping.worker", self._path]
                try:
                    self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                except OSError as error:
                    cause = f"no worker can be started: {first_line(error)}"
                    remedy = "Take fewer workers, or raise the system's limits"
                    raise RunError(cause, where="map_batches", remedy=remedy) from error
            return self._process

    def _ended(self, where: str) -> None:
        """Note that the process ended by itself."""
        code = self._end()
        if not self._is_over:
            logger("map").warning("%s: a worker ended (%s) and is started again", where, code)

    def _end(self) -> int | None:
        with self._ending.lock:
            process, self._process, self._is_ready = self._process, None, False
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    logger("map").debug("a worker ended before it read all")
        return process.wait()


@attrs.define(slots=True, eq=False)
class _Task:
    """An input on its way to a worker."""

    number: int
    arrays: Mapping[str, Array] | BaseException
    """An error in place of an input that could not be read."""
    attempts: int = 0
    """How many workers ended on it."""


class Crew:
    """Several workers, each with a thread; they take inputs in order, and results are given in that order too.

    An input on which a worker ended is taken by whoever is free next: it does not wait until that worker is started again."""

    def __init__(self, path: str, count: int, ahead: int) -> None:
        self.workers = [Worker(path) for _ in range(count)]
        self._ahead = ahead
        """How many inputs may be taken before the result of the first of them is fetched."""
        self._changed = threading.Condition()
        self._taken = self._given = 0
        self._open = 0
        """How many inputs were taken that have no result yet."""
        self._handed_back: list[_Task] = []
        """Inputs on which a worker ended."""
        self._results: dict[int, dict[str, Array] | BaseException] = {}
        self._is_over = False
        """Are no more inputs read?"""
        self._is_closed = False
        """Are no more results wanted?"""

    def results(self, inputs: Iterator[Mapping[str, Array]]) -> Iterator[dict[str, Array]]:
        """The outputs for each of the inputs, in order. The workers end with it."""
        threads = [threading.Thread(target=self._work, args=(worker, inputs), daemon=True) for worker in self.workers]
        try:
            for thread in threads:
                thread.start()
            while (result := self._next(threads)) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            with self._changed:
                self._is_over = self._is_closed = True
                self._changed.notify_all()
            for worker in self.workers:
                worker.close()
            for thread in threads:
                thread.join()

    def _next(self, threads: list[threading.Thread]) -> dict[str, Array] | BaseException | None:
        with self._changed:
            while self._given not in self._results:
                if self._given == self._taken and not any(thread.is_alive() for thread in threads):
                    return None
                self._changed.wait(0.1)
            result = self._results.pop(self._given)
            self._given += 1
            self._changed.notify_all()
            return result

    def _work(self, worker: Worker, inputs: Iterator[Mapping[str, Array]]) -> None:
        """A thread: one input after another, until there are none, or one of them is an error."""
        while (task := self._take(inputs)) is not None:
            result = self._result(worker, task)
            if result is None:
                with self._changed:
                    self._handed_back.append(task)
                    self._changed.notify_all()
                worker.start_again()
                continue
            with self._changed:
                self._results[task.number] = result
                self._open -= 1
                self._is_over = self._is_over or isinstance(result, BaseException)
                self._changed.notify_all()

    def _result(self, worker: Worker, task: _Task) -> dict[str, Array] | BaseException | None:
        """The outputs, or what went wrong; None where another worker is to try."""
        if isinstance(task.arrays, BaseException):
            return task.arrays
        where = f"input {task.number}"
        try:
            outputs = worker.call(task.arrays, where)
        except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
            return error
        if outputs is not None:
            return outputs
        task.attempts += 1
        if task.attempts < ATTEMPTS:
            return None
        return RunError(f"{ATTEMPTS} workers ended on it", where=where, remedy="Look at this input, and at their stderr")

    def _take(self, inputs: Iterator[Mapping[str, Array]]) -> _Task | None:
        """An input that was handed back, or else the next one, once there is room for its result; an error in place of one that
        cannot be read. None where all have results."""
        with self._changed:
            while self._changed.wait_for(self._is_next) and not self._is_closed:
                if self._handed_back:
                    return self._handed_back.pop(0)
                if self._is_over:
                    return None
                try:
                    arrays: Mapping[str, Array] | BaseException = next(inputs)
                except StopIteration:
                    self._is_over = True
                    self._changed.notify_all()
                    continue
                except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
                    arrays = error
                self._taken += 1
                self._open += 1
                return _Task(self._taken - 1, arrays)
            return None

    def _is_next(self) -> bool:
        """Need a thread wait no longer?"""
        if self._is_closed or self._handed_back:
            return True
        return self._open == 0 if self._is_over else self._taken - self._given < self._ahead
