"""Subgraphs with dynamic sizes on devices that want static ones: compiled for each size on first use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from accelerators.interface import CompiledSubgraph, ProfileRow
from graph.graph import Graph
from graph.types import TensorType
from passes.infer import infer

KEPT = 8
"""So many sizes stay compiled; the one not used for longest goes."""

Shapes = tuple[tuple[int, ...], ...]
"""The sizes of all inputs."""


class SpecializedSubgraph(CompiledSubgraph):
    """Takes host arrays of any size, and hands them to the subgraph compiled for that size."""

    concurrent = True

    def __init__(self, graph: Graph, compile_static: Callable[[Graph], CompiledSubgraph]) -> None:
        self.graph = graph
        """The body with its dynamic sizes."""
        self._compile = compile_static
        self._lock = threading.Lock()
        self._kept: OrderedDict[Shapes, _Kept] = OrderedDict()
        self._rows = threading.local()

    @property
    def sizes(self) -> tuple[Shapes, ...]:
        """The sizes that are compiled now, the one used last at the end."""
        with self._lock:
            return tuple(self._kept)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run the subgraph of this size. Two threads that need a new size compile it once."""
        from accelerators.units import guarded_run

        kept = self._find(tuple([tuple(getattr(value, "shape", ())) for value in inputs]))
        made = kept.ready(self.graph, self._compile)
        there = made.memory == "host"
        read = inputs if there else [made.upload(value) for value in inputs]
        with kept.lock:
            results = guarded_run(made, read, out if there else None)
            self._rows.last = made.profile_rows()
        return results if there else [made.download(value) for value in results]

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of this thread's last run."""
        return tuple(getattr(self._rows, "last", ()))

    def _find(self, shapes: Shapes) -> _Kept:
        with self._lock:
            kept = self._kept.get(shapes)
            if kept is None:
                kept = self._kept[shapes] = _Kept(shapes)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(shapes)
            return kept


class _Kept:
    """One size, compiled when first asked for."""

    def __init__(self, shapes: Shapes) -> None:
        self.lock = threading.Lock()
        self._shapes = shapes
        self._made: CompiledSubgraph | None = None

    def ready(self, graph: Graph, compile_static: Callable[[Graph], CompiledSubgraph]) -> CompiledSubgraph:
        with self.lock:
            if self._made is None:
                given = dict(zip((node.name for node in graph.inputs), self._shapes, strict=True))
                self._made = compile_static(infer(graph, given, strict=False))
            return self._made


def is_static(graph: Graph) -> bool:
    """Are the sizes of all tensors that enter known?"""
    return all(not isinstance(node[0].type, TensorType) or node[0].type.is_static for node in graph.inputs)
