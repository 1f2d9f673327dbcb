"""`compile_many`: several models at once, each compiled by a process of its own that leaves the result in the cache."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from partita.accelerators.compiling import compile as compiled
from partita.accelerators.errors import BadConfig, CompileError
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.keys import Key, optional, positive
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.graph import Graph
from partita.graph.readers import load
from partita.graph.writers import save
from partita.mapping.compiling_on_ray import SHOWN, compile_on_ray, without_folders
from partita.passes.python_child import environment, module_command

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
    command = module_command("partita.mapping.compiler", str(path))
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        cause = f"the process that compiled it ended ({done.returncode}): {done.stderr.strip()[-SHOWN:]}"
        raise CompileError(cause, where=f"model {name!r}", remedy="Compile it alone: pt.compile")
