"""`compile_many`: several models at once, each compiled by a process of its own that leaves the result in the cache."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.compiling import compile as compiled
from partita.accelerators.errors import BadConfig, CompileError
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.keys import Key, optional, positive
from partita.accelerators.process.child import Child, Ended
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.store.folder import chosen_folder
from partita.accelerators.store.store import Store
from partita.graph.errors import PartitaError
from partita.graph.formatting import first_line
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.readers import load
from partita.graph.writers import save
from partita.mapping.on_ray import RESTARTS, call_by_name, connected, folders_of_ray
from partita.passes.python_child import module_command

EXECUTORS = ("processes", "ray", "serial")


def compile_many(
    models: Sequence[Graph | str | os.PathLike[str]],
    device: str | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    executor: str = "processes",
    workers: int | None = None,
) -> list[CompiledModel]:
    """The models, each as compiled by `compile`, in their order.

    With "processes", `workers` processes (by default as many as processors) compile the distinct models in parallel, and the
    results reach this process through the cache; devices without a cache compile here. With "ray", tasks of the cluster that Ray
    is connected to compile them, at most `workers` at once. The values of `config` must be representable in JSON."""
    if executor not in EXECUTORS:
        raise BadConfig(f"there is no executor {executor!r}", where="compile_many", remedy=f"Use one of {', '.join(EXECUTORS)}")
    workers = Key(None, optional(positive)).read("workers", workers, "compile_many")
    if not isinstance(models, Iterable) or isinstance(models, (str, bytes, Graph)):
        raise BadConfig(f"models are a list, not {type(models).__name__}", where="compile_many", remedy="Write [model]")
    asked_devices(device)
    graphs = [model if isinstance(model, Graph) else load(model) for model in models]
    if executor != "serial":
        _fill_cache(graphs, device, config or {}, executor, workers)
    return [compiled(graph, device, config) for graph in graphs]


def _fill_cache(
    graphs: Sequence[Graph], device: str | Sequence[str] | None, config: Mapping[str, Any], executor: str, workers: int | None
) -> None:
    """Have each distinct model compiled elsewhere, `workers` at once."""
    with tempfile.TemporaryDirectory(prefix="partita-many-") as folder:
        paths: dict[str, Path] = {}
        for number, graph in enumerate(graphs):
            path = Path(folder) / f"{number}.onnx"
            save(graph, path)
            paths.setdefault(sha256(path.read_bytes()).hexdigest(), path)
        if executor == "ray":
            models = {f"{graphs[int(path.stem)].name} ({path.stem})": path.read_bytes() for path in paths.values()}
            compile_on_ray(models, _question(device, config, folders=False), config, workers)
            return
        question = _question(device, config)
        with Pool(workers or len(os.sched_getaffinity(0))) as threads:
            list(threads.map(lambda path: _compile_elsewhere(path, question, graphs[int(path.stem)].name), paths.values()))


def _question(device: str | Sequence[str] | None, config: Mapping[str, Any], folders: bool = True) -> str:
    """The message to another process, with or without folders of this machine."""
    devices = device if device is None or isinstance(device, str) else list(device)
    try:
        return json.dumps({"device": devices, "config": config if folders else without_folders(config)})
    except (TypeError, ValueError, RecursionError) as error:
        remedy = "Use executor='serial', or values that JSON can say"
        raise BadConfig(f"it cannot be told to another process: {error}", where="compile_many: config", remedy=remedy) from error


def _compile_elsewhere(path: Path, question: str, name: str) -> None:
    """Compile one model in a process. Errors of the model are not raised here, but again when this process compiles it."""
    failure = _failure(path, question)
    if failure is not None:
        raise CompileError(failure, where=f"model {name!r}", remedy="Compile it alone: pt.compile")


def _failure(path: Path, question: str, **variables: str) -> str | None:
    """Compile one model in a process; None if it has done so, or met an error of the model, which is raised again where this
    process compiles it."""
    with tempfile.TemporaryFile() as output:
        child = Child(module_command("partita.mapping.worker"), output=output.fileno(), variables=variables)
        try:
            child.ask({"compile": str(path), **json.loads(question)})
        except Ended as end:
            output.seek(0)
            return f"the process that compiled it ended ({end}): {output.read().decode(errors='replace').strip()[-SHOWN:]}"
        except PartitaError as error:
            logger("map").info("%s", error)
        finally:
            child.end()
    return None


CACHE_DIR = ("CACHE_DIR", "KEY_CACHE_DIR")
"""Spellings of the key that names a folder: workers do not share it."""

SHOWN = 2000
"""Maximum number of characters shown of a failed process's stderr."""


@attrs.frozen(eq=False)
class SentEntry:
    """A serializable cache entry."""

    key: str
    meta: Mapping[str, Any]
    code: bytes
    weights: tuple[np.ndarray[Any, Any], ...]


def compile_on_ray(models: Mapping[str, bytes], question: str, config: Mapping[str, Any], workers: int | None) -> None:
    """Have each model, an ONNX file by name, compiled by a task, and add the resulting entries to our caches."""
    ray = connected("compile_many(executor='ray')")
    task, last = ray.remote(max_retries=RESTARTS, num_cpus=1)(call_by_name), folders_of_ray()
    running: dict[Any, str] = {}
    waiting = list(models.items())
    while waiting or running:
        while waiting and (workers is None or len(running) < workers):
            name, model = waiting.pop(0)
            running[task.remote(last, __name__, compiled_entries.__name__, model, question)] = name
        (done,), _ = ray.wait(list(running), num_returns=1)
        name = running.pop(done)
        try:
            result = ray.get(done)
        except ray.exceptions.RayError as error:
            raise CompileError(f"Ray could not compile it: {first_line(error)}", where=f"model {name!r}") from error
        if isinstance(result, str):
            raise CompileError(result, where=f"model {name!r}", remedy="Compile it alone: pt.compile")
        _keep(result, config)
        logger("map").info("%s: %d subgraphs came from the cluster", name, len(result))


def without_folders(config: Any) -> Any:
    """The configuration without folders of this machine."""
    if not isinstance(config, Mapping):
        return config
    return {key: without_folders(value) for key, value in config.items() if str(key).upper() not in CACHE_DIR}


def compiled_entries(model: bytes, question: str) -> list[SentEntry] | str:
    """Run by a worker: the entries, or the error message of a failed process."""
    with tempfile.TemporaryDirectory(prefix="partita-many-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        failure = _failure(path, question, XDG_CACHE_HOME=folder)
        if failure is not None:
            return failure
        return _entries(Path(folder) / "partita")


def _entries(folder: Path) -> list[SentEntry]:
    """All entries of a cache, with copies of their weights."""
    store, entries = Store(folder), []
    for key in store.names():
        stored = store.read(key)
        if stored is not None:
            entries.append(SentEntry(key, stored.meta, stored.code, tuple(np.array(weight) for weight in stored.weights)))
    return entries


def _keep(entries: Sequence[SentEntry], config: Mapping[str, Any]) -> None:
    """Add the entries to the caches that their devices use here; for a device without a cache the model is compiled again."""
    for entry in entries:
        folder = chosen_folder(_setting(config, str(entry.meta["key"]["device"])))
        if folder is not None:
            Store(folder).write(entry.key, entry.meta, entry.code, entry.weights)


def _setting(config: Mapping[str, Any], device: str) -> Any:
    """Cache setting of a device in a configuration that is flat or by device."""
    own = config.get(device)
    settings = own if isinstance(own, Mapping) else config
    return next((settings[key] for key in CACHE_DIR if key in settings), None)
