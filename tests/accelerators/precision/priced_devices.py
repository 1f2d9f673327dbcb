"""Devices that compute as ONNX's reference does and say that each op took what a price list has: no clock is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

import partita as pt
from partita.graph.inline import inline_calls
from partita.graph.interpret import evaluate_node
from partita.graph.node import NodeEntry


@attrs.frozen
class Prices:
    """What ops cost on a device, in microseconds."""

    plain: Mapping[str, float]
    """In float32, by op; other ops take one microsecond."""
    lowered: Mapping[str, float] = attrs.field(factory=dict)
    """Of integers, or in a narrow type, where that is something else."""
    refused: Mapping[str, str] = attrs.field(factory=dict)
    """The reason for each op that the device does not run."""
    fused: bool = False
    """Does the device tell a single time for each subgraph?"""

    def of(self, node: pt.Node) -> float:
        """The microseconds of one op."""
        if node.op in ("QuantizeLinear", "DequantizeLinear", "Cast"):
            return 0.0
        read = [entry for entry in node.inputs if entry is not None]
        narrow = any(entry.node.op == "DequantizeLinear" or _dtype(entry) in ("bfloat16", "float16") for entry in read)
        price = self.lowered.get(str(node.op)) if narrow else None
        return self.plain.get(str(node.op), 1.0) if price is None else price


def _dtype(entry: NodeEntry) -> str | None:
    return getattr(entry.type, "dtype", None)


class Clock:
    """Goes on by what priced devices say."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """The time now."""
        return self.seconds


class Priced(pt.CompiledSubgraph):
    """One subgraph, evaluated op by op."""

    def __init__(self, graph: pt.Graph, prices: Prices, clock: Clock) -> None:
        self.graph, self.prices, self.clock = inline_calls(graph), prices, clock

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        values: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(self.graph.inputs, inputs, strict=True)}
        for node in self.graph.nodes:
            if not node.is_variable:
                read = [None if entry is None else values[entry] for entry in node.inputs]
                values.update(zip(node.outputs, evaluate_node(node, read, self.graph.opsets), strict=True))
        self.clock.seconds += 20e-6 + 1e-6 * sum(self.prices.of(node) for node in self.graph.nodes if node.is_op)
        return [values[entry] for entry in self.graph.outputs]

    def profile_rows(self) -> list[pt.ProfileRow]:
        ops = [node for node in self.graph.nodes if node.is_op]
        if self.prices.fused:
            return []
        return [pt.ProfileRow(node.name, str(node.op), "EXECUTED", self.prices.of(node), 0.0, "priced") for node in ops]


@contextmanager
def priced(monkeypatch: pytest.MonkeyPatch, **devices: Prices) -> Iterator[str]:
    """Devices of these names and prices; -> the string that asks for all of them."""
    clock = Clock()
    monkeypatch.setattr("partita.accelerators.precision.op_costs.perf_counter", clock)

    def register(label: str, prices: Prices) -> None:
        class Device(pt.Accelerator):
            name = label

            def supports(self, node: pt.Node, graph: pt.Graph) -> bool | str:
                return prices.refused.get(str(node.op), True)

            def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
                return Priced(graph, prices, clock)

        pt.register_accelerator(Device)

    for label, prices in devices.items():
        register(label, prices)
    try:
        yield f"HETERO:{','.join(devices)}"
    finally:
        for label in devices:
            pt.unregister_accelerator(label)
