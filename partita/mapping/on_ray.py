"""The workers of `map_batches` as Ray actors: each imports the model once, and is replaced if it ends."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import RunError
from partita.graph.errors import MissingDependency
from partita.graph.formatting import first_line
from partita.mapping.bursts import Array, Burst, bytes_of, read_ahead
from partita.passes.python_child import ROOT, search_path

RESTARTS = 3
"""Number of times that an input is given to another worker after one ended on it."""


class _Actor:
    """A process of the cluster that holds the model."""

    def __init__(self, package: bytes, last: list[str], key: bytes | None) -> None:
        import sys

        sys.path.sort(key=last.__contains__)

        import tempfile
        from pathlib import Path

        import partita as pt  # optional package

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.partita"
            path.write_bytes(package)
            self.model = pt.import_model(path, key=key)
        self.error = pt.PartitaError

    def ready(self) -> None:
        """No work: its completion shows that the model was imported."""

    def call(self, calls: list[Mapping[str, Array]]) -> tuple[list[dict[str, Array] | str], float]:
        """The outputs of each call by name, or its error message, which any process can read; and the seconds of all calls."""
        import time

        start = time.perf_counter()
        results = [self.one(arrays) for arrays in calls]
        return results, time.perf_counter() - start

    def one(self, arrays: Mapping[str, Array]) -> dict[str, Array] | str:
        """Result of one call."""
        try:
            return dict(zip(self.model.graph.output_names, self.model(arrays), strict=True))
        except self.error as error:
            return str(error)


def connected(purpose: str) -> Any:
    """The package ray, connected to the caller's cluster, or else to one on this machine."""
    if find_spec("ray") is None:
        raise MissingDependency("ray", "ray", purpose)
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    # A worker imports functions that are sent by name before any code of ours runs there.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray


def call_by_name(last: list[str], module: str, name: str, *arguments: Any) -> Any:
    """Result of a function of a module that is imported in this process of the cluster.

    Ray puts folders that the user did not name at the front of its processes' search path; here they are moved to the end."""
    import sys
    from importlib import import_module

    sys.path.sort(key=last.__contains__)
    return getattr(import_module(module), name)(*arguments)


def folders_of_ray() -> list[str]:
    """Folders that Ray adds to the search path of its processes, unless PYTHONPATH names them or our package is in them."""
    folders = {os.getcwd(), os.path.dirname(os.path.realpath(sys.argv[0]))}
    return sorted(folders - {*search_path(), str(ROOT)})


@attrs.define(slots=True, eq=False)
class _RayCall:
    """Inputs that an actor got at once."""

    number: int
    """Index of the first input."""
    inputs: list[Mapping[str, Array]]
    actor: Any
    reference: Any
    """Ray's reference to the results."""
    restarts: int = 0
    """Number of actors that ended on it."""


class _RayCrew:
    """Several actors. One that ends is replaced; the new one gets inputs once it is ready."""

    def __init__(self, ray: Any, package: bytes, count: int, key: bytes | None) -> None:
        self._ray = ray
        self._package = ray.put(package)
        self._last, self._key = folders_of_ray(), key
        self._kind = ray.remote(num_cpus=1)(_Actor)
        self._here = [self._kind.remote(self._package, self._last, self._key) for _ in range(count)]
        self._coming: dict[Any, Any] = {}
        """Actors that are starting, by Ray's reference to their `ready`."""
        self._turn = 0

    def give(self, number: int, inputs: list[Mapping[str, Array]], restarts: int = 0) -> _RayCall:
        """Give inputs to the next actor in turn."""
        actor = self._next()
        return _RayCall(number, inputs, actor, actor.call.remote(inputs), restarts)

    def replace(self, actor: Any) -> None:
        """Start a new actor in place of one that ended."""
        if actor in self._here:
            self._here.remove(actor)
            new = self._kind.remote(self._package, self._last, self._key)
            self._coming[new.ready.remote()] = new

    def close(self) -> None:
        """End all actors."""
        for actor in (*self._here, *self._coming.values()):
            self._ray.kill(actor)

    def _next(self) -> Any:
        if self._coming:
            ready, _ = self._ray.wait(list(self._coming), timeout=0 if self._here else None)
            self._here += [self._coming.pop(reference) for reference in ready]
        self._turn += 1
        return self._here[self._turn % len(self._here)]


def ray_results(
    package: bytes, count: int, ahead: int | None, inputs: Iterator[Mapping[str, Array]], key: bytes | None
) -> Iterator[dict[str, Array]]:
    """The outputs for each of the inputs, in order, by `count` actors; Ray is started here if it is not connected."""
    ray = connected("executor='ray'")
    crew = _RayCrew(ray, package, count, key)
    burst = Burst()
    waiting: deque[_RayCall] = deque()
    taken = given = 0
    end: BaseException | None = None
    try:
        while True:
            size = burst.size if ahead is None else max(1, min(burst.size, ahead // (2 * count)))
            while end is None and taken - given + size <= (2 * count * size if ahead is None else ahead):
                read, end = read_ahead(inputs, size)
                if isinstance(end, KeyboardInterrupt):
                    raise end
                if read:
                    waiting.append(crew.give(taken, read))
                taken += len(read)
            if not waiting:
                break
            for result in _fetched(ray, crew, waiting, burst):
                given += 1
                yield result
    finally:
        crew.close()
    if end is not None and not isinstance(end, StopIteration):
        raise end


def _fetched(ray: Any, crew: _RayCrew, waiting: deque[_RayCall], burst: Burst) -> Iterator[dict[str, Array]]:
    """The results of the first waiting call. If its actor ended, other actors get all its calls again, with each input of this
    one alone."""
    while True:
        first = waiting[0]
        try:
            results, seconds = ray.get(first.reference)
            break
        except ray.exceptions.RayError as error:
            if first.restarts == RESTARTS or not isinstance(error, ray.exceptions.RayActorError):
                raise RunError(f"Ray could not run it: {first_line(error)}", where=f"input {first.number}") from error
            crew.replace(first.actor)
            waiting.popleft()
            restarts = first.restarts + 1
            again = [crew.give(number, [arrays], restarts) for number, arrays in enumerate(first.inputs, first.number)]
            behind = [crew.give(call.number, call.inputs) if call.actor is first.actor else call for call in waiting]
            waiting.clear()
            waiting.extend([*again, *behind])
    waiting.popleft()
    # Ray owns its memory; the caller gets copies.
    outputs = [result if isinstance(result, str) else {name: np.array(result[name]) for name in result} for result in results]
    burst.learn(len(outputs), seconds, bytes_of(*first.inputs, *(result for result in outputs if not isinstance(result, str))))
    for number, output in enumerate(outputs, first.number):
        if isinstance(output, str):
            raise RunError(output, where=f"input {number}")
        yield output
