"""The workers of `map_batches` as actors of Ray's: each imports the model once, and another is started where one ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import attrs
import numpy as np

from accelerators.errors import RunError
from graph.errors import MissingDependency
from graph.words import first_line

Array = np.ndarray[Any, Any]

RESTARTS = 3
"""So often an input is given to another worker where one ended on it."""


class _Actor:
    """A process of the cluster that holds the model."""

    def __init__(self, package: bytes) -> None:
        import tempfile
        from pathlib import Path

        import partita as pt

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.partita"
            path.write_bytes(package)
            self.model = pt.import_model(path)

    def ready(self) -> None:
        """Do nothing: that it is done shows that the model was imported."""

    def call(self, arrays: dict[str, Array]) -> dict[str, Array] | str:
        """The outputs by name; what went wrong in words, which any process can read."""
        import partita as pt

        try:
            return dict(zip(self.model.graph.output_names, self.model(arrays), strict=True))
        except pt.PartitaError as error:
            return str(error)


def connected(purpose: str) -> Any:
    """The package ray, connected to a cluster: to the one that the caller named, or else to one on this machine."""
    if find_spec("ray") is None:
        raise MissingDependency("ray", "ray", purpose)
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return ray


@attrs.define(slots=True, eq=False)
class _Call:
    """An input that an actor was given."""

    number: int
    arrays: dict[str, Array]
    actor: Any
    reference: Any
    """Ray's name for the result to come."""
    restarts: int = 0
    """How many actors ended on it."""


class _Crew:
    """Several actors. In place of one that ends another is started, and is given inputs once it is ready."""

    def __init__(self, ray: Any, package: bytes, count: int) -> None:
        self._ray = ray
        self._package = ray.put(package)
        self._kind = ray.remote(num_cpus=1)(_Actor)
        self._here = [self._kind.remote(self._package) for _ in range(count)]
        self._coming: dict[Any, Any] = {}
        """Those that are started, by Ray's name for what they say when they are ready."""
        self._turn = 0

    def give(self, number: int, arrays: dict[str, Array]) -> _Call:
        """Give an input to one of the actors, in turn."""
        actor = self._next()
        return _Call(number, arrays, actor, actor.call.remote(arrays))

    def give_again(self, call: _Call) -> None:
        """Give the input of an actor that ended to another one."""
        call.actor = self._next()
        call.reference = call.actor.call.remote(call.arrays)

    def replace(self, actor: Any) -> None:
        """Start another in place of an actor that ended."""
        if actor in self._here:
            self._here.remove(actor)
            new = self._kind.remote(self._package)
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


def ray_results(package: bytes, count: int, ahead: int, inputs: Iterator[Mapping[str, Array]]) -> Iterator[dict[str, Array]]:
    """The outputs for each of the inputs, in order, by so many actors; Ray is started here where it is not connected."""
    ray = connected("executor='ray'")
    crew = _Crew(ray, package, count)
    waiting: deque[_Call] = deque()
    try:
        for number, arrays in enumerate(inputs):
            waiting.append(crew.give(number, dict(arrays)))
            if len(waiting) >= ahead:
                yield _fetched(ray, crew, waiting)
        while waiting:
            yield _fetched(ray, crew, waiting)
    finally:
        crew.close()


def _fetched(ray: Any, crew: _Crew, waiting: deque[_Call]) -> dict[str, Array]:
    """The result of the first input that waits. Where its actor ended on it, others get all that it was given."""
    first = waiting[0]
    while True:
        try:
            result = ray.get(first.reference)
            break
        except ray.exceptions.RayError as error:
            if first.restarts == RESTARTS or not isinstance(error, ray.exceptions.RayActorError):
                raise RunError(f"Ray could not run it: {first_line(error)}", where=f"input {first.number}") from error
            ended = first.actor
            first.restarts += 1
            crew.replace(ended)
            for call in waiting:
                if call.actor is ended:
                    crew.give_again(call)
    waiting.popleft()
    if isinstance(result, str):
        raise RunError(result, where=f"input {first.number}")
    # Ray lends its memory; what a caller gets is the caller's own.
    return {name: np.array(array) for name, array in result.items()}
