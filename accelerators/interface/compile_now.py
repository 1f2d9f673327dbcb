"""Transforms and compiles a subgraph without the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.layout import HOST, is_laid_out, laid_out
from partita.accelerators.errors import DeviceMistake
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.query import with_own_nodes
from partita.graph.graph import Graph


def compile_now(accelerator: Accelerator, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
    """The subgraph, ready to run; a result of another type, or a changed number of inputs or outputs, is an error."""
    compiled = accelerator.compile(_transformed(accelerator, graph, config), config)
    if not isinstance(compiled, CompiledSubgraph):
        raise DeviceMistake(f"its compile returned {type(compiled).__name__}, not a CompiledSubgraph")
    return compiled


def _transformed(accelerator: Accelerator, graph: Graph, config: Mapping[str, Any]) -> Graph:
    """The subgraph after the device's `transform`. Nothing else holds this graph, so the device may drop its weights."""
    shown = accelerator.configured(config).transform(with_own_nodes(graph))
    if _border(shown) != _border(graph):
        raise DeviceMistake("its transform changed the number of inputs or outputs of the subgraph")
    return shown


def _border(graph: Graph) -> tuple[int, int]:
    return len(graph.inputs), len(graph.outputs)


def run_laid_out(compiled: CompiledSubgraph, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
    """Runs the subgraph; inputs with another layout or alignment are copied."""
    if compiled.memory == HOST:
        alignment = compiled.alignment
        for value in inputs:
            if type(value) is np.ndarray and not is_laid_out(value, alignment):
                inputs = [laid_out(value, alignment) for value in inputs]
                break
    return compiled.run(inputs, out)
