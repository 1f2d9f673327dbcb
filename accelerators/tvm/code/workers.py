"""Threads that generate machine code of several bodies at a time, while the kernels of the next ones are lowered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock
from time import perf_counter
from types import TracebackType

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import Built, Key, generated, keep, known, makes_objects
from partita.accelerators.tvm.code.codegen import expressions_if_large, is_written
from partita.accelerators.tvm.lower.lowering import Lowered, lower
from partita.accelerators.tvm.machine.machine import Machine

TOGETHER = 8
"""Maximum number of bodies whose kernels are generated together."""

_Job = tuple[Key, Lowered, float, "Future[Built]"]
"""A body's key, its kernels, the seconds spent on lowering, and the future of the machine code."""


class Workers:
    """Takes bodies one by one and returns futures of their machine code."""

    def __init__(
        self, machine: Machine, choices_of: Callable[[Body], Mapping[str, str]], check: Callable[[Body], None]
    ) -> None:
        self.machine = machine
        self.choices_of = choices_of
        """Candidates that tuning chose for a body, by the names of the choices."""
        self.check = check
        """Called with each body before TVM itself schedules its kernels; an error that it raises is the body's."""
        self._shares = makes_objects(machine) or machine.is_gpu
        self._threads = max(1, usable_cores())
        self._pool = Pool(self._threads, "partita-codegen")
        self._running: dict[str, Future[Built]] = {}
        self.fresh: set[str] = set()
        """Keys of the bodies whose machine code was not in the cache."""
        self._waiting: deque[_Job] = deque()
        self._lock = Lock()

    def build(self, body: Body) -> Future[Built]:
        """Future of the body's machine code; bodies of equal structure share it."""
        building = self._running.get(body.key)
        if building is None:
            building = self._running[body.key] = self._started(body)
        return building

    def _started(self, body: Body) -> Future[Built]:
        choices = tuple(sorted(self.choices_of(body).items()))
        key, future = (body.key, self.machine, choices), Future[Built]()
        built = known(key)
        if built is not None:
            future.set_result(built)
            return future
        start = perf_counter()
        lowered = lower(body, self.machine, dict(choices), check=self.check)
        self.fresh.add(body.key)
        with self._lock:
            self._waiting.append((key, lowered, perf_counter() - start, future))
        self._pool.submit(self._work)
        return future

    def _work(self) -> None:
        """Generate some of the waiting bodies. Another thread may have taken all of them."""
        batch = self._taken()
        if batch:
            self._finish(batch)

    def _finish(self, batch: list[_Job]) -> None:
        """Generate them together; if that fails, each alone, so that the error belongs to one body."""
        start = perf_counter()
        try:
            finished = generated([lowered for _, lowered, _, _ in batch], self.machine)
        except BaseException as error:  # noqa: BLE001  raised to those that wait for the body
            if len(batch) == 1:
                batch[0][3].set_exception(error)
            else:
                for job in batch:
                    self._finish([job])
            return
        share = (perf_counter() - start) / len(batch)
        for (key, _, lowering, future), built in zip(batch, finished, strict=True):
            built.seconds = lowering + share
            keep(key, built)
            future.set_result(built)

    def _taken(self) -> list[_Job]:
        """A share of the waiting bodies, smaller towards the end so that all threads finish together. Kernels that TVM scheduled
        need other passes than ours and are taken alone; so are large ones, for which LLVM uses another level."""
        with self._lock:
            most = min(TOGETHER, -(-len(self._waiting) // (2 * self._threads))) if self._shares else 1
            batch: list[_Job] = []
            while self._waiting and len(batch) < max(1, most):
                if batch and not (_goes_with_others(batch[0]) and _goes_with_others(self._waiting[0])):
                    break
                batch.append(self._waiting.popleft())
            return batch

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            with self._lock:
                self._waiting.clear()
        self._pool.shutdown(cancel_futures=error is not None)


def _goes_with_others(job: _Job) -> bool:
    kernels = job[1].kernels()
    return is_written(kernels) and not expressions_if_large(kernels)
