"""The trusted run: the same graph on a device that is trusted, as a whole or subgraph by subgraph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.compiling import compile as compile_model
from partita.accelerators.interface.inlining import unplaced
from partita.graph.graph import Graph
from partita.graph.interpret import last_reads
from partita.graph.node import Node, NodeEntry


@attrs.frozen(slots=True)
class Trusted:
    """One or several devices whose results are taken as correct."""

    devices: str | Sequence[str] = "reference"
    """Devices, as `compile` takes them."""
    config: Mapping[str, Any] | None = None
    """Configuration of the devices."""

    def outputs(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Outputs of the graph for these inputs."""
        model = compile_model(unplaced(graph), self.devices, self.config)
        return list(model(dict(zip((node.name for node in graph.inputs), inputs, strict=True))))

    def values(self, graph: Graph, inputs: Sequence[Any]) -> dict[NodeEntry, Any]:
        """Every value that the graph's ops compute."""
        entries = [entry for node in graph.nodes if node.is_op for entry in node.outputs if entry.name]
        names = [f"value{i}" for i in range(len(entries))]
        seen = graph.evolve(outputs=entries, output_names=names)
        return dict(zip(entries, self.outputs(seen, inputs), strict=True))


def first_not_finite(graph: Graph, inputs: Sequence[Any], trusted: Trusted) -> str | None:
    """The first node that makes a NaN or an infinity in the trusted run of finite inputs, as a sentence."""
    if not all(map(is_finite, inputs)):
        return None
    values = trusted.values(graph, inputs)
    for entry, value in values.items():
        if not is_finite(value):
            word = "NaN" if np.isnan(np.asarray(value, np.float64)).any() else "infinity"
            return f"{entry.node.name} ({entry.node.op}) makes the first {word} of the trusted run"
    return None


def is_finite(value: Any) -> bool:
    """True if the value has no NaN and no infinity, or is not a float array."""
    if not isinstance(value, np.ndarray) or not (value.dtype.kind == "f" or "float" in value.dtype.name):
        return True
    return bool(np.isfinite(value.astype(np.float64)).all())


@attrs.frozen(slots=True, eq=False)
class _TrustedCall:
    """Inputs and outputs of one subgraph in the trusted run."""

    call: Node
    """Call of the subgraph."""
    given: list[Any]
    """Values of the subgraph's inputs."""
    expected: list[Any]
    """Values of its outputs."""


class TrustedWalk:
    """Runs subgraph after subgraph on the trusted devices. Values that no later subgraph reads are dropped."""

    def __init__(self, graph: Graph, bodies: Sequence[Graph], arrays: Sequence[Any], trusted: Trusted) -> None:
        self.graph, self.bodies, self.trusted = graph, bodies, trusted
        self._values: dict[NodeEntry, Any] = {node[0]: node.value for node in graph.nodes if node.is_constant}
        self._values |= {node[0]: array for node, array in zip(graph.inputs, arrays, strict=True)}

    def __iter__(self) -> Iterator[_TrustedCall]:
        last = last_reads(self.graph)
        calls = [node for node in self.graph.nodes if node.is_op]
        for call, body in zip(calls, self.bodies, strict=True):
            given = [None if entry is None else self._values[entry] for entry in call.inputs]
            expected = self.trusted.outputs(body, given)
            yield _TrustedCall(call, given, expected)
            self._values.update(zip(call.outputs, expected, strict=True))
            for entry in last.get(call, ()):
                self._values.pop(entry, None)

    @property
    def outputs(self) -> list[Any]:
        """Outputs of the graph, once all subgraphs have run."""
        return [self._values[entry] for entry in self.graph.outputs]


def call_arrays(graph: Graph, call: Any, seed: int) -> list[Any]:
    """Input values in the graph's order, from a tuple in order, a dictionary by name, or a single array; random for None."""
    checker = InputChecker(graph)
    if call is None:
        return checker.made_up(seed)
    return checker.arrays(call if isinstance(call, tuple) else (call,), {})
