"""Models compiled by Ray tasks for `compile_many`: each task returns the entries of its own cache."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.cache.folder import chosen_folder
from partita.accelerators.cache.store import Store
from partita.accelerators.errors import CompileError
from partita.graph.formatting import first_line
from partita.graph.logs import logger
from partita.mapping.on_ray import RESTARTS, call_by_name, connected, folders_of_ray
from partita.passes.python_child import environment, module_command

CACHE_DIR = ("CACHE_DIR", "KEY_CACHE_DIR")
"""Spellings of the key that names a folder: workers do not share it."""

SHOWN = 2000
"""Maximum number of characters shown of a failed process's stderr."""


@attrs.frozen(eq=False)
class Entry:
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


def compiled_entries(model: bytes, question: str) -> list[Entry] | str:
    """Run by a worker: the entries, or the error message of a failed process."""
    with tempfile.TemporaryDirectory(prefix="partita-many-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        command, variables = module_command("partita.mapping.compiler", str(path)), environment(XDG_CACHE_HOME=folder)
        done = subprocess.run(command, input=question, capture_output=True, text=True, check=False, env=variables)
        if done.returncode:
            return f"the process that compiled it ended ({done.returncode}): {done.stderr.strip()[-SHOWN:]}"
        return _entries(Path(folder) / "partita")


def _entries(folder: Path) -> list[Entry]:
    """All entries of a cache, with copies of their weights."""
    store, entries = Store(folder), []
    for key in store.names():
        stored = store.read(key)
        if stored is not None:
            entries.append(Entry(key, stored.meta, stored.code, tuple(np.array(weight) for weight in stored.weights)))
    return entries


def _keep(entries: Sequence[Entry], config: Mapping[str, Any]) -> None:
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
