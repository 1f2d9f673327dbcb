"""`compile_many`: several models at once, each compiled by a process of its own that leaves what it compiled in the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from accelerators.compiling import compile as compiled
from accelerators.errors import BadConfig, CompileError
from accelerators.running.compiled_model import CompiledModel
from graph.graph import Graph
from graph.readers import load
from graph.writers import save

EXECUTORS = ("processes", "serial")

SHOWN = 2000
"""Characters of what a process said before it ended."""


def compile_many(
    models: Sequence[Graph | str | os.PathLike[str]],
    device: str | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    executor: str = "processes",
    workers: int | None = None,
) -> list[CompiledModel]:
    """The models, each as `compile` makes it, in their order.

    With "processes" so many `workers` (by default as many as processors) compile the distinct ones at once, and what they compile
    reaches this process by the cache; devices that keep nothing there compile here. `config` holds values that JSON can say."""
    if executor not in EXECUTORS:
        raise BadConfig(f"there is no executor {executor!r}", where="compile_many", remedy=f"Use one of {', '.join(EXECUTORS)}")
    if workers is not None and workers < 1:
        raise BadConfig("workers is a number above zero", where="compile_many")
    graphs = [model if isinstance(model, Graph) else load(model) for model in models]
    if executor == "processes":
        _fill_cache(graphs, device, config, workers or len(os.sched_getaffinity(0)))
    return [compiled(graph, device, config) for graph in graphs]


def _fill_cache(
    graphs: Sequence[Graph], device: str | Sequence[str] | None, config: Mapping[str, Any] | None, workers: int
) -> None:
    """Have each distinct model compiled by a process of its own, so many at once."""
    try:
        question = json.dumps({"device": device if device is None or isinstance(device, str) else list(device), "config": config})
    except TypeError as error:
        remedy = "Use executor='serial', or values that JSON can say"
        raise BadConfig(f"it cannot be told to another process: {error}", where="compile_many: config", remedy=remedy) from error
    with tempfile.TemporaryDirectory(prefix="partita-many-") as folder:
        paths: dict[str, Path] = {}
        for number, graph in enumerate(graphs):
            path = Path(folder) / f"{number}.onnx"
            save(graph, path)
            paths.setdefault(sha256(path.read_bytes()).hexdigest(), path)
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(lambda path: _compile_elsewhere(path, question, graphs[int(path.stem)].name), paths.values()))


def _compile_elsewhere(path: Path, question: str, name: str) -> None:
    """Compile one model in a process; what it says is wrong with it, this process says again when it compiles it."""
    command = [sys.executable, "-m", "partita.mapping.compiler", str(path)]
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=False)
    if done.returncode:
        cause = f"the process that compiled it ended ({done.returncode}): {done.stderr.strip()[-SHOWN:]}"
        raise CompileError(cause, where=f"model {name!r}", remedy="Compile it alone: pt.compile")
