"""Small graphs for the tests of devices, and a short way to run one on a device."""

from __future__ import annotations

from typing import Any

from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.interface.registry import accelerator
from partita.graph.graph import Graph
from partita.passes.infer import infer


def compiled(device: str, graph: Graph, **config: Any) -> CompiledSubgraph:
    result = accelerator(device)
    return result.compile(infer(graph), result.full_config(config))


def run(device: str, graph: Graph, *inputs: Any, **config: Any) -> list[Any]:
    return list(compiled(device, graph, **config).run(list(inputs)))


def answer(device: str, graph: Graph, name: str = "n") -> bool | str:
    return accelerator(device).query(graph)[name]
