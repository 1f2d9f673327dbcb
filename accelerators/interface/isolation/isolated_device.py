"""A device in a child process, and the subgraphs compiled there."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from partita.accelerators.errors import AcceleratorError, CompileError, RunError
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph, ProfileRow
from partita.accelerators.interface.isolation.process import ChildTask, DeviceChild, DeviceProcess, Limit, process_of
from partita.accelerators.process.memory import Packing, describe_graph, described
from partita.accelerators.process.messages import config_told
from partita.graph.graph import Graph


def isolated(accelerator: Accelerator) -> Accelerator:
    """The accelerator with its configuration; its queries, compilations and runs happen in a child."""
    kind: Any = type(accelerator)
    copied = copy.copy(accelerator)
    copied.__class__ = _class(kind)
    assert isinstance(copied, Isolated)
    copied.process = process_of(copied.name, type(accelerator))
    return copied


@cache
def _class(kind: Any) -> type[Accelerator]:
    """The device's class with its work moved to a child; the rest (name, keys, metrics) is inherited."""
    return type(f"Isolated{kind.__name__}", (Isolated, kind), {"device_class": kind})


class Isolated(Accelerator):
    """A device whose work is done in the child."""

    device_class: ClassVar[type[Accelerator]]
    """The device's own class."""
    process: DeviceProcess
    """The process in which the work is done."""

    def transform(self, graph: Graph) -> Graph:
        """Returns the graph unchanged, because the child transforms it."""
        return graph

    def stages(self, graph: Graph) -> Iterable[Graph]:
        """Returns the graph unchanged, because the child transforms it."""
        return (graph,)

    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """Queries the device in the child."""
        packing, values = Packing(), config_told(self._config, self._where)
        question = {"do": "query", "graph": describe_graph(graph, packing), "config": values}
        with self.process.child() as child:
            task = ChildTask("in query", self._limit(self._config), AcceleratorError)
            answers: dict[str, bool | str] = child.asked(question, packing, task)
        return answers

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Compiles the graph in the child."""
        return IsolatedSubgraph(self.process, Order(graph, config, self._where), self._limit(config))

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """Imports in the child what was exported before."""
        return IsolatedSubgraph(self.process, Order(graph, config, self._where, data, weights), self._limit(config))

    @property
    def _where(self) -> str:
        return f"config of device {self.name!r}"

    def _limit(self, config: Mapping[str, Any]) -> Limit:
        """The time limit of each of its tasks."""
        return Limit(config["ISOLATE_SECONDS"])


class Order:
    """The request that creates the subgraph in a child; it is sent to each new child."""

    def __init__(
        self, graph: Graph, config: Mapping[str, Any], where: str, data: bytes | None = None, weights: Sequence[Any] = ()
    ) -> None:
        self._graph = graph
        self._config = config_told(config, where)
        self._data = data
        self._weights = weights

    def question(self, packing: Packing) -> dict[str, Any]:
        """The request, with its arrays in the packing."""
        order = {"graph": describe_graph(self._graph, packing), "config": self._config}
        if self._data is None:
            return {"do": "compile", **order}
        return {"do": "import", **order, "data": packing.describe(self._data), "weights": packing.describe(list(self._weights))}


class IsolatedSubgraph(CompiledSubgraph):
    """A subgraph compiled in a child process. If that has ended, it is compiled again in the next one."""

    def __init__(self, process: DeviceProcess, order: Order, limit: Limit) -> None:
        self._process = process
        self._order = order
        self._limit = limit
        self._names: dict[str, str] = {}
        self._rows: tuple[ProfileRow, ...] = ()
        self._child: weakref.ref[DeviceChild] | None = None
        self._number = -1
        with process.child() as child:
            self._numbered(child)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, copied from the child's shared memory."""
        packing = Packing()
        question = {"do": "run", "inputs": [packing.describe(value) for value in inputs]}
        with self._process.child() as child:
            answer = self._ask(child, question, packing, "while it ran", RunError)
            values = [described(value, child.replies) for value in answer["outputs"]]
            results = [_kept(value, None if out is None or i >= len(out) else out[i]) for i, value in enumerate(values)]
            del values
            child.replies.shrink()
        self._rows = tuple(ProfileRow(**row) for row in answer["rows"])
        return results

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of the last run."""
        return self._rows

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        """Renames nodes in the child, and in later ones."""
        self._names = {**{old: names.get(new, new) for old, new in self._names.items()}, **names}
        with self._process.child() as child:
            self._ask(child, {"do": "rename", "names": dict(names)}, Packing(), "while it was exported", AcceleratorError)

    def export(self) -> bytes:
        """Exports the subgraph in the child."""
        exported: bytes = self.exported()[0]
        return exported

    def export_weights(self) -> Sequence[Any]:
        """The exported weights."""
        weights: list[Any] = self.exported()[1]
        return weights

    def exported(self) -> tuple[bytes, list[Any]]:
        """The compiled form and its weights."""
        with self._process.child() as child:
            answer = self._ask(child, {"do": "export"}, Packing(), "while it was exported", AcceleratorError)
            weights = [_kept(value, None) for value in described(answer["weights"], child.replies)]
            return described(answer["data"], child.replies), weights

    def _ask(
        self, child: DeviceChild, question: Mapping[str, Any], packing: Packing, doing: str, error: type[AcceleratorError]
    ) -> Any:
        number = self._numbered(child)
        return child.asked({**question, "subgraph": number}, packing, ChildTask(doing, self._limit, error))

    def _numbered(self, child: DeviceChild) -> int:
        """The child's number of the subgraph, which is sent to the child first if needed."""
        if self._child is None or self._child() is not child:
            packing = Packing()
            task = ChildTask("while it compiled", self._limit, CompileError)
            self._number = child.asked({**self._order.question(packing), "names": self._names}, packing, task)
            self._child = weakref.ref(child)
            weakref.finalize(self, child.dropped.append, self._number).atexit = False
        return self._number


def _kept(value: Any, out: Any) -> Any:
    """A copy of the value in memory of this process, in `out` if it fits."""
    if isinstance(value, list):
        return [_kept(item, None) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(out, np.ndarray) and out.dtype == value.dtype and out.shape == value.shape:
        out[...] = value
        return out
    return np.array(value)
