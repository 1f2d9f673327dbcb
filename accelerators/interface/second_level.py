"""The kernels that a device fused inside a subgraph, and the refused fusions with reasons, like the report of a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from partita.graph.errors import GraphError, did_you_mean
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node


@attrs.frozen(slots=True)
class FusedKernel:
    """The ops that become one kernel."""

    name: str
    """The kernel's second-level call."""
    property: str
    """The kind of kernel: the property that selected the ops."""
    nodes: tuple[str, ...]
    """The ops, by the user's names."""


@attrs.frozen(slots=True)
class RefusedFusion:
    """Two ops, one of which reads the other, that are in different kernels."""

    producer: str
    """The op that computes the value."""
    consumer: str
    """The op that reads it."""
    rule: str
    """The kind of reason, as for a border of the first level."""
    reason: str
    """The reason in words."""

    def __str__(self) -> str:
        return f"{self.producer} and {self.consumer} are apart ({self.rule}): {self.reason}"


@attrs.frozen(slots=True)
class SecondLevel:
    """The kernels of one subgraph."""

    kernels: tuple[FusedKernel, ...]
    """The kernels in order."""
    refused: tuple[RefusedFusion, ...]
    """The edges between kernels, and why they were not fused."""
    free: tuple[str, ...] = ()
    """The ops that need no kernel, since they move nothing."""

    @property
    def fused(self) -> tuple[FusedKernel, ...]:
        """The kernels of several ops."""
        return tuple(kernel for kernel in self.kernels if len(kernel.nodes) > 1)

    def explain(self, node: str) -> str:
        """The kernel that computes an op, and each neighbour outside it, with the reason."""
        homes = [kernel for kernel in self.kernels if node in kernel.nodes]
        if not homes and node not in self.free:
            known = [name for kernel in self.kernels for name in kernel.nodes]
            raise GraphError(f"no kernel computes {node!r}", where="explain", remedy=did_you_mean(node, known) or "Name an op")
        lines = [f"{node} is in kernel {home.name} ({', '.join(home.nodes)})" for home in homes]
        lines += [f"{node} needs no kernel: it moves nothing"] if not homes else []
        return "\n".join([*lines, *(f"  {one}" for one in self.refused if node in (one.producer, one.consumer))])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return attrs.asdict(self)

    def __str__(self) -> str:
        ops = {name for kernel in self.kernels for name in kernel.nodes} | set(self.free)
        lines = [f"{counted(len(ops), 'op')} in {counted(len(self.kernels), 'kernel')}"]
        lines += [f"  {kernel.name}: {', '.join(kernel.nodes)}" for kernel in self.fused]
        return "\n".join([*lines, *(f"  {one}" for one in self.refused)])


def second_level_of(cut: Graph, origins: Callable[[Node], Sequence[str]]) -> SecondLevel:
    """The kernels and refused fusions of a partitioned subgraph; `origins` returns the user's ops behind a node. Linear."""
    report = cut.attrs["partition_report"]
    named = {node.name: tuple(origins(node)) for node in _ops(cut)}
    named |= {node.name: tuple(origins(node)) for call in _ops(cut) if call.subgraph is not None for node in _ops(call.subgraph)}
    kernels = tuple(
        FusedKernel(call, group.property, tuple(dict.fromkeys(name for node in group.nodes for name in named.get(node, (node,)))))
        for call, group in zip(report.calls, report.groups, strict=True)
    )
    refused: dict[tuple[str, str], RefusedFusion] = {}
    for border in report.borders:
        producer, consumer = (named[name][-1] if name in named else None for name in (border.producer, border.consumer))
        if producer is not None and consumer is not None and producer != consumer:
            refused.setdefault((producer, consumer), RefusedFusion(producer, consumer, border.rule, border.text))
    inside = {name for kernel in kernels for name in kernel.nodes}
    free = [name for node in _ops(cut) if not node.is_call for name in named[node.name] if name not in inside]
    return SecondLevel(kernels, tuple(refused.values()), tuple(dict.fromkeys(free)))


def _ops(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.is_op]
