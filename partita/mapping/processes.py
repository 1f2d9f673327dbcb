"""The workers of `map_batches` on this machine: processes that are started again where one ends before its time."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from accelerators.errors import RunError
from accelerators.process.forking import Guard
from graph.logs import logger
from partita.mapping.frames import read_frame, write_frame

Array = np.ndarray[Any, Any]

ATTEMPTS = 3
"""So often an input is given to a worker that then ends, before it is taken to be the reason."""


class Worker:
    """One process, with a thread of the caller's to itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = Guard()
        self._is_over = False

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def call(self, arrays: Mapping[str, Array], where: str) -> dict[str, Array]:
        """The outputs by name; the process is started, again if need be."""
        for _ in range(ATTEMPTS):
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                write_frame(process.stdin, {}, arrays)  # type: ignore[arg-type]
                reply = read_frame(process.stdout)  # type: ignore[arg-type]
            except BrokenPipeError:
                # What it says of itself, if anything, can be read still.
                reply = read_frame(process.stdout)  # type: ignore[arg-type]
            if reply is None:
                code = self._end()
                if self._is_over:
                    break
                logger("map").warning("%s: a worker ended (%s) and is started again", where, code)
                continue
            words, outputs = reply
            if "unready" in words:
                raise RunError(f"no worker can import the model: {words['unready']}", where=where)
            if "error" in words:
                raise RunError(words["error"], where=where)
            return outputs
        raise RunError(f"{ATTEMPTS} workers ended on it", where=where, remedy="Look at this input, and at their stderr")

    def close(self) -> None:
        """End the process, whatever it does."""
        self._is_over = True
        self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._ending.lock:
            if self._is_over:
                raise RunError("the work was given up", where="map_batches")
            if self._process is None:
                command = [sys.executable, "-m", "partita.mapping.worker", self._path]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return self._process

    def _end(self) -> int | None:
        with self._ending.lock:
            process, self._process = self._process, None
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


class Crew:
    """Several workers, each with a thread; they take inputs in order, and results are given in that order too."""

    def __init__(self, path: str, count: int, ahead: int) -> None:
        self.workers = [Worker(path) for _ in range(count)]
        self._ahead = ahead
        """How many inputs may be taken before the result of the first of them is fetched."""
        self._changed = threading.Condition()
        self._taken = self._given = 0
        self._results: dict[int, dict[str, Array] | BaseException] = {}
        self._is_over = False

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
                self._is_over = True
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
        while (taken := self._take(inputs)) is not None:
            number, arrays = taken
            try:
                result: dict[str, Array] | BaseException = (
                    arrays if isinstance(arrays, BaseException) else worker.call(arrays, f"input {number}")
                )
            except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
                result = error
            with self._changed:
                self._results[number] = result
                self._is_over = self._is_over or isinstance(result, BaseException)
                self._changed.notify_all()

    def _take(self, inputs: Iterator[Mapping[str, Array]]) -> tuple[int, Mapping[str, Array] | BaseException] | None:
        """The next input and its number, once there is room for its result; an error in place of one that cannot be read."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._taken - self._given < self._ahead)
            if self._is_over:
                return None
            try:
                arrays: Mapping[str, Array] | BaseException = next(inputs)
            except StopIteration:
                self._is_over = True
                return None
            except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
                arrays = error
            self._taken += 1
            return self._taken - 1, arrays
