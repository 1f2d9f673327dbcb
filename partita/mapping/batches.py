"""`map_batches`: a model over a data set, run by processes of this machine, by Ray, or by one call after another."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from partita.accelerators.api import import_model
from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.errors import BadConfig, InputError
from partita.accelerators.interface.keys import Key, callback, optional, positive
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.mapping.on_ray import ray_results
from partita.mapping.processes import WorkerCrew

Array = np.ndarray[Any, Any]

EXECUTORS = ("processes", "ray", "serial")

NUMBER = Key(None, optional(positive))
"""Validator of `workers` and `ahead`."""


def map_batches(
    dataset: Iterable[Any],
    model: CompiledModel | str | os.PathLike[str],
    *,
    executor: str = "processes",
    workers: int | None = None,
    ahead: int | None = None,
    progress: Callable[[int], None] | None = None,
    key: bytes | None = None,
) -> Iterator[dict[str, Array]]:
    """The outputs of a model, by name, for each item of a data set, in its order.

    An item is one call's input: an array, a sequence of them, or a mapping by name. The model is compiled, or a file that its
    `export` wrote. With "processes", `workers` processes (by default as many as processors) import it and are restarted if they
    end; with "ray", the workers are actors of the cluster that Ray is connected to. A worker gets several items at once if the
    model is fast. Items are read as results are fetched, at most `ahead` of them in advance (by default twice what all workers
    get at once). `progress` is called with the number of results so far. With a `key` each worker verifies the signature of the
    file."""
    if executor not in EXECUTORS:
        raise BadConfig(f"there is no executor {executor!r}", where="map_batches", remedy=f"Use one of {', '.join(EXECUTORS)}")
    count = NUMBER.read("workers", workers, "map_batches") or len(os.sched_getaffinity(0))
    ahead = NUMBER.read("ahead", ahead, "map_batches")
    progress = Key(None, callback).read("progress", progress, "map_batches") or (lambda number: None)
    if not isinstance(model, (CompiledModel, str, os.PathLike)):
        cause = f"a model is one that was compiled, or a file that its export wrote, not {type(model).__name__}"
        raise BadConfig(cause, where="map_batches", remedy="Compile it first: pt.compile")
    try:
        items = iter(dataset)
    except TypeError as error:
        remedy = "Give what can be iterated over, such as a list of arrays"
        raise BadConfig(f"{type(dataset).__name__} is not a data set", where="map_batches", remedy=remedy) from error
    return _results(items, model, executor, count, ahead, progress, key)


def _results(
    items: Iterator[Any], model: CompiledModel | str | os.PathLike[str], executor: str, count: int, ahead: int | None,
    progress: Callable[[int], None], key: bytes | None,
) -> Iterator[dict[str, Array]]:
    with contextlib.ExitStack() as stack:
        if isinstance(model, CompiledModel):
            own, path = model, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="partita-map-"))) / "model.partita"
            if executor != "serial":
                own.export(path, key=key)
        else:
            path = Path(model)
            own = import_model(path, key=key)
        checker = InputChecker(own.graph)
        inputs = (_by_name(item, checker, number) for number, item in enumerate(items))
        if executor == "processes":
            results: Iterator[dict[str, Array]] = WorkerCrew(str(path), count, ahead, key).results(inputs)
        elif executor == "ray":
            results = ray_results(path.read_bytes(), count, ahead, inputs, key)
        else:
            results = (dict(zip(own.graph.output_names, own(arrays), strict=True)) for arrays in inputs)
        stack.enter_context(contextlib.closing(results))  # type: ignore[type-var]
        for number, result in enumerate(results, 1):
            progress(number)
            yield result


def _by_name(item: Any, checker: InputChecker, number: int) -> dict[str, Any]:
    """Values of one call by the names of the inputs, checked as a call of the model checks them."""
    try:
        arrays = checker.arrays(item if isinstance(item, (list, tuple)) else (item,), {})
    except InputError as error:
        raise InputError(error.cause, where=f"input {number}, {error.where}", remedy=error.remedy) from error
    return dict(zip((spec.name for spec in checker.specs), arrays, strict=True))
