"""A device that breaks where its configuration says, and counts in files what it did: both processes see those."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.interface.keys import Key, text


def breaking(config: Mapping[str, Any], stage: str) -> None:
    """Does what "stage:how" says, at that stage; with a file behind it ("stage:how:path"), only where that file is."""
    result, how, *path = (*str(config["BREAKS"]).split(":"), "")
    if result != stage or (path[0] and not os.path.exists(path[0])):
        return
    if how == "abort":
        os.abort()
    if how == "fork":
        helper = os.fork()
        if helper == 0:
            time.sleep(600)
        Path(path[0]).write_text(str(helper))
        os._exit(3)
    if how == "exit":
        os._exit(3)
    if how == "sleep":
        time.sleep(600)
    if how == "hang":
        ctypes.PyDLL(None).pause()  # Holds the interpreter's lock.
    if how == "raise":
        raise ZeroDivisionError("by design")
    if how == "mute":
        raise MuteError
    if how == "path":
        raise pt.AcceleratorError("by design", where=Path("/nowhere"))  # type: ignore[arg-type]


class MuteError(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise ZeroDivisionError


class CompiledFragile(pt.CompiledSubgraph):
    """Adds 1, or says which process runs it."""

    def __init__(self, graph: pt.Graph, config: Mapping[str, Any]) -> None:
        self.graph = graph
        self.config = config

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        breaking(self.config, "run")
        if self.config["BREAKS"] == "who":
            return [np.full_like(value, os.getpid()) for value in inputs]
        if out is not None and out[0] is not None and self.config["BREAKS"] == "out":
            np.add(inputs[0], 1, out=out[0])
            return [out[0]]
        return [value + np.ones((), value.dtype) if value.dtype != object else value for value in inputs]

    def profile_rows(self) -> Sequence[pt.ProfileRow]:
        real: Any = np.float32(1.5) if self.config["BREAKS"] == "numpy" else object() if self.config["BREAKS"] == "rows" else 1.5
        return [pt.ProfileRow(n.name, str(n.op), "EXECUTED", real, 1.0, "plus one") for n in self.graph.nodes if n.is_op]

    def export(self) -> bytes:
        return b"fragile\0" + self.graph.name.encode()

    def export_weights(self) -> Sequence[Any]:
        return [np.arange(3, dtype="float32")]


class Fragile(pt.Accelerator):
    """Takes every op but Tanh."""

    name = "fragile"
    config_keys = {"BREAKS": Key("", text), "ANY": None}

    def supports(self, node: Any, graph: pt.Graph, config: Mapping[str, Any]) -> bool | str:
        breaking(config, "query")
        return "it has no Tanh" if node.op == "Tanh" else True

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        breaking(config, "compile")
        return CompiledFragile(graph, config)

    def import_(self, data: bytes, graph: pt.Graph, config: Mapping[str, Any], weights: Sequence[Any]) -> pt.CompiledSubgraph:
        assert data.startswith(b"fragile\0") and weights[0].tolist() == [0, 1, 2]
        breaking(config, "import")
        return CompiledFragile(graph, config)


class FragileStart(Fragile):
    """Breaks where it is made, though only in a child: its constructor is called in this process too."""

    name = "fragile-start"

    def __init__(self) -> None:
        super().__init__()
        if threading.current_thread() is threading.main_thread() and os.environ.get("PARTITA_TEST_PARENT") != str(os.getpid()):
            os.abort()


class OwnQuery(Fragile):
    """Answers by a `query` of its own."""

    name = "fragile-own"

    def query(self, graph: pt.Graph) -> Mapping[str, bool | str]:
        breaking(self._config, "query")
        return {node.name: True for node in graph.nodes if node.is_op}
