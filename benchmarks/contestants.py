"""The engines of the latency tables, ready to take turns: some in this process, some each in one of its own."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import attrs
import numpy as np

from benchmarks.models import FROM_TORCH, Model, cache_folder
from benchmarks.processes import CutOff, Failed, end, module_command
from benchmarks.timing import clocked
from benchmarks.venvs import ROOT, TORCH, Environment, python_of

T = TypeVar("T")


@attrs.frozen
class Engine:
    """An engine that runs the models."""

    module: str
    """The engine's module in `benchmarks.peers`."""
    alone: bool = False
    """In a process of its own: it may have to be ended, or its environment is another."""
    environment: Environment | None = None
    """The environment whose Python runs it; None for this process's own."""
    only: tuple[str, ...] = ()
    """The models that it has; none means all."""
    is_slow: bool = False
    """Is it so slow that it takes no turns?

    It is then measured in one process, after the others, on the one thread that it uses.
    """

    def runs(self, model: str, threads: int) -> bool:
        """Does the engine take part with this model and these threads?"""
        return (not self.only or model in self.only) and not (self.is_slow and threads != 1)


ENGINES = {
    "partita": Engine("partita"),
    "onnxruntime": Engine("onnxruntime"),
    "openvino": Engine("openvino"),
    "torch": Engine("torch_eager", True, TORCH, FROM_TORCH),
    "torch.compile": Engine("torch_compile", True, TORCH, FROM_TORCH),
    "tvm": Engine("tvm_default", True, is_slow=True),
}
"""The engines by their names in the tables."""


class Contestant(Protocol):
    """A loaded engine."""

    def outputs(self) -> Sequence[np.ndarray]:
        """The outputs that it computes from the inputs."""

    def seconds(self, count: int) -> list[float]:
        """The seconds that each of `count` calls takes."""

    def close(self) -> None:
        """Free the engine, which is not needed any more."""


class Inside:
    """An engine in this process."""

    def __init__(self, engine: Engine, model: Model, threads: int, inputs: Mapping[str, np.ndarray]) -> None:
        load = importlib.import_module(f"benchmarks.peers.{engine.module}").load
        call = load(str(model.path), (model.name, model.batch), threads)
        self.outputs = lambda: [np.array(array) for array in call(inputs)]
        self.seconds = clocked(lambda: call(inputs))

    def close(self) -> None:
        """Nothing to do."""


class Apart:
    """An engine in a process of its own that is ended where it takes too long."""

    def __init__(self, engine: Engine, model: Model, threads: int, inputs: Mapping[str, np.ndarray], limit: float) -> None:
        python = python_of(engine.environment) if engine.environment else sys.executable
        self.limit = limit if engine.is_slow else LOADING
        self._folder = tempfile.TemporaryDirectory(prefix="partita-bench-")
        np.savez(Path(self._folder.name) / "inputs.npz", **dict[str, Any](inputs))
        words = [engine.module, str(model.path), model.name, str(model.batch), str(threads), self._folder.name]
        words += ["--outputs"] * (not engine.is_slow)
        self._has_outputs = not engine.is_slow
        variables = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache_folder() / "inductor")}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by `close`
        self._process = subprocess.Popen(
            module_command("benchmarks.peers.worker", words, python),
            cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )

    def wait(self) -> None:
        """Until it is loaded and, unless it is slow, called once, which happens while others load."""
        self._answer(LOADING)

    def outputs(self) -> Sequence[np.ndarray]:
        """Through a file, in which they are from the beginning unless it is slow."""
        if not self._has_outputs:
            self._ask("outputs")
        with np.load(Path(self._folder.name) / "outputs.npz") as held:
            return [held[name] for name in held]

    def seconds(self, count: int) -> list[float]:
        """The seconds of each call, by the engine's own clock."""
        return self._ask(str(count))

    def close(self) -> None:
        """End the engine's process."""
        end(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        print(question, file=self._process.stdin, flush=True)
        return self._answer(self.limit)

    def _answer(self, limit: float) -> Any:
        pipe = self._process.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(limit):
                raise CutOff(f"over {limit:.0f} s")
        line = pipe.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            raise Failed(self._errors.read(), code)
        return json.loads(line)


def reason(error: Exception) -> str:
    """The error's message on one line."""
    name = "" if isinstance(error, (CutOff, Failed)) else f"{type(error).__name__}: "
    return f"{name}{error}".splitlines()[0][:200]


LOADING = 180.0
"""Seconds that an engine may take to load a model, or for its first call, in which some compile."""


class Contest:
    """The engines that could be loaded, and the reasons for those that could not. It closes them at its end."""

    def __init__(
        self, engines: Mapping[str, Engine], model: Model, threads: int, inputs: Mapping[str, np.ndarray], limit: float
    ) -> None:
        self.engines = {name: engine for name, engine in engines.items() if engine.runs(model.name, threads)}
        self.model, self.threads, self.inputs, self.limit = model, threads, inputs, limit
        self.loaded: dict[str, Contestant] = {}
        self.missing: dict[str, str] = {}

    def load(self) -> None:
        """Load all engines, those with processes of their own at the same time as the rest."""
        apart = [name for name, engine in self.engines.items() if engine.alone]
        for name in apart:
            self.attempt(name, partial(self._start, name))
        for name in self.engines.keys() - apart:
            self.attempt(name, partial(self._load, name))
        for name in apart:
            contestant = self.loaded.get(name)
            if isinstance(contestant, Apart):
                self.attempt(name, contestant.wait)

    def _start(self, name: str) -> None:
        self.loaded[name] = Apart(self.engines[name], self.model, self.threads, self.inputs, self.limit)

    def _load(self, name: str) -> None:
        self.loaded[name] = Inside(self.engines[name], self.model, self.threads, self.inputs)

    def attempt(self, name: str, work: Callable[[], T]) -> T | None:
        """Do something for an engine.

        If it fails, the reason is noted and the other engines go on without this one.
        """
        try:
            return work()
        except Exception as error:  # noqa: BLE001  any engine may fail in any way
            self.missing[name] = reason(error)
            if name in self.loaded:
                self.loaded.pop(name).close()
            return None

    def __enter__(self) -> Contest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for contestant in self.loaded.values():
            contestant.close()
