"""Small accelerators of numpy for the tests: what they support, how they fail, and where their memory is, can be chosen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators import Accelerator, CompiledSubgraph, ProfileRow, register_accelerator, unregister_accelerator
from partita.graph.interpret import interpret


class Ran(CompiledSubgraph):
    """Interprets the body, and remembers what it was given."""

    def __init__(self, graph, perf_count=False):
        self.graph = graph
        self.perf_count = perf_count
        self.inside = 0
        self.seen = []

    def run(self, inputs: Sequence[Any], out=None):
        self.inside += 1
        assert self.inside == 1 or self.concurrent, "two threads are in one subgraph"
        self.seen.append([x.__array_interface__["data"][0] for x in inputs if isinstance(x, np.ndarray)])
        outputs = interpret(self.graph, inputs)
        self.inside -= 1
        return outputs

    def profile_rows(self):
        if not self.perf_count:
            return ()
        node = next(node for node in self.graph.nodes if node.is_op)
        return (ProfileRow(node.name, node.op, "EXECUTED", 5.0, 4.0, "numpy"),)


class OnDevice:
    """A value in the memory of a device."""

    def __init__(self, array):
        self.array = array


class RanOnDevice(CompiledSubgraph):
    """Has a memory of its own."""

    memory = "toy"

    def __init__(self, graph):
        self.graph = graph

    def run(self, inputs, out=None):
        assert all(isinstance(x, OnDevice) for x in inputs) and (out is None or not any(o is not None for o in out))
        return [OnDevice(x) for x in interpret(self.graph, [x.array for x in inputs])]

    def upload(self, array):
        assert isinstance(array, np.ndarray)
        return OnDevice(array.copy())

    def download(self, value):
        return value.array.copy()


class Small(Accelerator):
    """Supports the ops in `ops` (None: all); fails to compile bodies that hold an op of `breaks`."""

    ops: frozenset[str] | None = None
    breaks: frozenset[str] = frozenset()
    subgraph_type: type[CompiledSubgraph] = Ran
    config_keys = {"LEVEL": 1}

    def __init__(self):
        super().__init__()
        self.compiled = []
        self.configs = []
        self.lock = threading.Lock()

    def supports(self, node, graph):
        return self.ops is None or node.op in self.ops or f"{self.name} has no {node.op}"

    def compile(self, graph, config: Mapping[str, Any]):
        with self.lock:
            self.compiled.append(graph)
            self.configs.append(dict(config))
        for node in graph.nodes:
            if node.op in self.breaks:
                raise ValueError(f"cannot compile {node.op}")
        return self.subgraph_type(graph, config["PERF_COUNT"]) if self.subgraph_type is Ran else self.subgraph_type(graph)


@contextlib.contextmanager
def device(name: str, ops: str | None = None, breaks: str = "", **members: Any) -> Iterator[Small]:
    """A registered accelerator for the time of a test; -> its one instance."""
    from partita.accelerators.interface.registry import accelerator

    wanted = None if ops is None else frozenset(ops.split())
    cls = type("Made", (Small,), {"name": name, "ops": wanted, "breaks": frozenset(breaks.split()), **members})
    register_accelerator(cls)
    try:
        yield accelerator(name)
    finally:
        unregister_accelerator(name)
