"""The time of each op of a model, from profiles of the compiled model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from partita.accelerators.running.compiled_model import CompiledModel
from partita.accelerators.running.profile import Row
from partita.graph.flops import count_flops
from partita.graph.graph import Graph

ROUNDS = 5
"""Number of profiles of a model; the minimum time of each op counts."""


def times_of(
    model: CompiledModel,
    graph: Graph,
    batch: Mapping[str, Any],
    names: Collection[str],
    products: Collection[str],
    label: str | None,
) -> dict[str, float]:
    """The microseconds of each of these ops on the device, or on any; ops that did not run there have none.

    `graph` is the compiled graph. A kernel's time is divided among its products, or else among its ops in `names`, or else it
    counts for the ops that read its result: so casts and roundings count for the op that they were added for.
    The time of rows without such an op, as that of a whole subgraph, is divided by FLOPs among the ops that have none."""
    sharing = _Sharing(model, graph, names, products)
    there = [name for unit in model.units if label in (None, unit.device.label) for name in unit.ops if name in sharing.names]
    rounds = [sharing.times(model.profile(dict(batch)).rows, label) for _ in range(ROUNDS)]
    return {name: min(times.get(name, 0.0) for times in rounds) for name in there}


class _Sharing:
    """Divides the time of rows among ops."""

    def __init__(self, model: CompiledModel, graph: Graph, names: Collection[str], products: Collection[str]) -> None:
        self.names, self.products = frozenset(names), frozenset(products)
        self.held = {(kernel.symbol, kernel.nodes[0]): tuple(kernel.nodes) for kernel in model.kernels()}
        self.units = {unit.name: unit.ops for unit in model.units}
        self.work = count_flops(graph).by_node
        self.owners: dict[str, str] = {}
        for node in reversed(graph.nodes):
            readers = (self.owners.get(reader.name) for reader in graph.consumers(node))
            owner = node.name if node.name in self.names else next(filter(None, readers), None)
            if owner is not None:
                self.owners[node.name] = owner

    def times(self, rows: Collection[Row], label: str | None) -> dict[str, float]:
        """The microseconds of one profile."""
        times: dict[str, float] = {}
        unknown: dict[str, float] = {}
        for row in rows:
            if label in (None, row.device):
                sharing = self._sharing(self.held.get((row.exec_type, row.node), (row.node,)))
                for name in sharing:
                    times[name] = times.get(name, 0.0) + row.real_us / len(sharing)
                if not sharing and row.subgraph in self.units:
                    unknown[row.subgraph] = unknown.get(row.subgraph, 0.0) + row.real_us
        for unit, us in unknown.items():
            sharing = self._sharing([name for name in self.units[unit] if not times.get(name)]) or self._sharing(self.units[unit])
            work = [self.work.get(name, 0) + 1 for name in sharing]
            for name, own in zip(sharing, work, strict=True):
                times[name] = times.get(name, 0.0) + us * own / sum(work)
        return times

    def _sharing(self, held: Collection[str]) -> list[str]:
        products = [name for name in held if name in self.products]
        ops = products or [name for name in held if name in self.names]
        return ops or list(dict.fromkeys(self.owners[name] for name in held if name in self.owners))
