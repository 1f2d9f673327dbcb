"""The device `reference`: every op in numpy, correct for every opset, slow: the last resort and the oracle."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import array_ids, owned
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import EXECUTED, Accelerator, CompiledSubgraph, ProfileRow
from partita.accelerators.interface.query import refused_inside
from partita.graph import numerics
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.interpret import evaluate_node
from partita.graph.microsoft import is_known, why_none, why_unknown
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import custom_op
from partita.passes import apply_pass
from partita.passes.infer.contract import require_fit


class ReferenceAccelerator(Accelerator):
    """Runs the ops with a numpy implementation: ONNX's ops, and those that a user registered with one."""

    name = "reference"
    travels_as_body = True
    last_resort = True

    def supports(self, node: Node, graph: Graph) -> bool | str:
        """True if the op and all ops in its bodies have a numpy implementation."""
        return _supported(node, graph)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """The steps of an interpreter; numpy computes in the model's own types, ignoring PRECISION."""
        plain = apply_pass(inline_calls(graph), "FoldConstants", shapes=False, verify=False)
        return CompiledReference(plain, bool(config["PERF_COUNT"]))

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Compiles the body again, because nothing else was exported."""
        if data != _NOTHING:
            raise AcceleratorError("this was not exported by the device 'reference'", remedy="Compile the model again")
        return self.compile(graph, config)

    def metrics(self) -> dict[str, Any]:
        """The metrics of numpy on the host's processor."""
        return {
            "AVAILABLE_DEVICES": ["0"],
            "FULL_DEVICE_NAME": f"numpy {np.__version__}",
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "FP16", "BF16", "INT8", "INT4"],
        }


_NOTHING = b"partita reference 1"


def _supported(node: Node, graph: Graph) -> bool | str:
    refused = refused_inside(node, _supported)
    if refused is not None or node.is_call:
        return refused or True
    assert node.op is not None
    mine = custom_op(node.op, node.domain)
    if mine is not None:
        return mine.numpy is not None or f"{mine.spec.title} was registered without a numpy meaning"
    if is_known(node):
        return why_none(node) or True
    unknown = why_unknown(node)
    if unknown is not None:
        return unknown
    if node.op == "ImageDecoder" and not node.domain and importlib.util.find_spec("PIL") is None:
        return "ImageDecoder needs the package Pillow, which is not installed"

    version = graph.opsets.get(node.domain, 1)
    title = f"{node.domain or 'ai.onnx'}.{node.op}"
    return numerics.supports(node.op, node.domain, version) or f"no numpy meaning of {title} is known at opset {version}"


@attrs.frozen(slots=True)
class _Step:
    """One node, with the slots of its values."""

    node: Node
    reads: tuple[int, ...]
    """The slots of its inputs; slot -1 (an absent input) always holds None."""
    captures: tuple[int, ...]
    makes: slice
    """The slots of its outputs, which are contiguous."""
    frees: tuple[int, ...]
    """The slots that are free afterwards."""


class CompiledReference(CompiledSubgraph):
    """A body as a list of steps over a list of values; order, slots and last reads are computed once."""

    concurrent = True

    def __init__(self, graph: Graph, perf_count: bool) -> None:
        self.graph = graph
        """The body, without calls."""
        self._perf_count = perf_count
        self._rows = threading.local()
        slots = _slots(graph)
        self._values: list[Any] = [None] * (len(slots) + 1)
        for node in graph.nodes:
            if node.value is not None:
                self._values[slots[node[0]]] = node.value
        self._constants = frozenset(id(node.value) for node in graph.nodes if node.value is not None)
        self._inputs = [slots[node[0]] for node in graph.inputs]
        self._outputs = [slots[entry] for entry in graph.outputs]
        self._steps = _steps(graph, slots)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run the steps in order. The outputs share no memory with inputs or constants."""
        values = self._values.copy()
        for slot, value in zip(self._inputs, inputs, strict=True):
            values[slot] = value
        if self._perf_count:
            self._rows.last = [self._timed(step, values) for step in self._steps]
        else:
            for step in self._steps:
                self._step(step, values)
        return owned([values[slot] for slot in self._outputs], array_ids(inputs) | self._constants, out)

    def _step(self, step: _Step, values: list[Any]) -> None:
        read = [values[i] for i in step.reads]
        captured = [values[i] for i in step.captures]
        values[step.makes] = evaluate_node(step.node, read, self.graph.opsets, captured, require_fit)
        for i in step.frees:
            values[i] = None

    def _timed(self, step: _Step, values: list[Any]) -> ProfileRow:
        clock, processor = time.perf_counter_ns(), time.thread_time_ns()
        self._step(step, values)
        real, cpu = time.perf_counter_ns() - clock, time.thread_time_ns() - processor
        return ProfileRow(step.node.name, step.node.op or "", EXECUTED, real / 1e3, cpu / 1e3, "numpy")

    def profile_rows(self) -> Sequence[ProfileRow]:
        """A row for each node of this thread's last run."""
        return tuple(getattr(self._rows, "last", ()))

    def export(self) -> bytes:
        """A marker of this device; the body contains everything else."""
        return _NOTHING


def _slots(graph: Graph) -> dict[NodeEntry, int]:
    """A slot for each value, those of one node contiguous."""
    return {entry: i for i, entry in enumerate(entry for node in graph.nodes for entry in node.outputs)}


def _steps(graph: Graph, slots: Mapping[NodeEntry, int]) -> list[_Step]:
    ops = [node for node in graph.nodes if node.is_op]
    last = {entry: node for node in ops for entry in (*node.outputs, *node.reads)}
    for entry in graph.outputs:
        last.pop(entry, None)
    frees: dict[Node, list[int]] = {}
    for entry, node in last.items():
        if entry.node.is_op:
            frees.setdefault(node, []).append(slots[entry])
    steps = []
    for node in ops:
        reads = tuple(-1 if entry is None else slots[entry] for entry in node.inputs)
        captures = tuple(slots[entry] for entry in node.captures)
        first = slots[node[0]] if node.output_names else 0
        steps.append(_Step(node, reads, captures, slice(first, first + len(node.output_names)), tuple(frees.get(node, ()))))
    return steps
