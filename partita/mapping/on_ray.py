"""The workers of `map_batches` as actors of Ray's: each imports the model once, and is started again by Ray where it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from accelerators.errors import RunError
from graph.errors import MissingDependency
from graph.words import first_line

Array = np.ndarray[Any, Any]

RESTARTS = 3
"""So often Ray starts an actor again, and gives it an input again."""


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


def ray_results(package: bytes, count: int, ahead: int, inputs: Iterator[Mapping[str, Array]]) -> Iterator[dict[str, Array]]:
    """The outputs for each of the inputs, in order, by so many actors; Ray is started here where it is not connected."""
    ray = connected("executor='ray'")
    shared = ray.put(package)
    actor = ray.remote(max_restarts=RESTARTS, max_task_retries=RESTARTS, num_cpus=1)(_Actor)
    actors = [actor.remote(shared) for _ in range(count)]
    waiting: deque[Any] = deque()
    try:
        for number, arrays in enumerate(inputs):
            waiting.append((number, actors[number % count].call.remote(dict(arrays))))
            if len(waiting) >= ahead:
                yield _fetched(ray, *waiting.popleft())
        while waiting:
            yield _fetched(ray, *waiting.popleft())
    finally:
        for one in actors:
            ray.kill(one)


def _fetched(ray: Any, number: int, reference: Any) -> dict[str, Array]:
    try:
        result = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise RunError(f"Ray could not run it: {first_line(error)}", where=f"input {number}") from error
    if isinstance(result, str):
        raise RunError(result, where=f"input {number}")
    # Ray lends its memory; what a caller gets is the caller's own.
    return {name: np.array(array) for name, array in result.items()}
