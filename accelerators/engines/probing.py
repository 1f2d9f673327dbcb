"""Sizes that an engine tells beside its outputs: of what it would take a mean, a maximum, a window or a sample.

ONNX says what comes of nothing: NaN, minus infinity or an error. Engines make zeros of it, or what somebody left in memory.
Which values are there is known only once they are computed; then numpy computes the call again. Most models have no such value,
since inputs without elements are seen beforehand, and `least_sizes` tells which sizes cannot become zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.engines.least_sizes import Sizes, kernel_of, least_sizes, shortfalls
from partita.accelerators.interface.empties import axes_of
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry

Dims = Callable[[Node, int], Sequence[int]]
"""The dimensions of a node's first input, whose rank is given, of which none may be zero."""

NOTHING = "a value that an op takes a mean, a maximum, a window or a sample of has no elements, which the device computes wrongly"
"""The cause of the error where no body tells numpy what to compute."""

_INT64 = 7


@attrs.frozen(slots=True)
class Probe:
    """A value of which the engine tells the sizes."""

    op: int
    """The number of an op among the model's, whose first input the value is."""
    rank: int


def probes_in(graph: Graph, ops: Collection[str]) -> list[Probe]:
    """The values that these ops of the graph read, and that may turn out to have no elements where the result has."""
    numbered = list(enumerate(node for node in graph.nodes if node.is_op))
    wanted = [(number, node) for number, node in numbered if node.op in ops and not node.domain and node.inputs[0] is not None]
    if not wanted:
        return []
    least = least_sizes(graph)
    return [Probe(number, len(least[entry])) for number, entry in _read(wanted, least)]


def add_probes(model: Any, probes: Sequence[Probe]) -> tuple[str, ...]:
    """Add an op Shape for each value, and its result to the outputs of the ModelProto. The names of these outputs."""
    from onnx.helper import make_node, make_tensor_value_info

    named = {node.name: node for node in model.graph.node}
    outputs = tuple(f"z{i}" for i in range(len(probes)))
    for name, probe in zip(outputs, probes):
        model.graph.node.append(make_node("Shape", [named[f"n{probe.op}"].input[0]], [name], f"{name}_shape"))
        model.graph.output.append(make_tensor_value_info(name, _INT64, [probe.rank]))
    return outputs


def found_nothing(sizes: Sequence[Any]) -> bool:
    """Has one of the values that were probed no elements?"""
    return any(not shape.all() for shape in sizes)


def _read(wanted: Sequence[tuple[int, Node]], least: Mapping[NodeEntry, Sizes]) -> Iterator[tuple[int, NodeEntry]]:
    """Each value once, with the number of the first op that reads it so."""
    seen = set[NodeEntry]()
    for number, node in wanted:
        entry = node.inputs[0]
        if entry is None or entry in seen or entry not in least:
            continue
        sizes = least[entry]
        if any(-len(sizes) <= dim < len(sizes) and not sizes[dim] for dim in _DIMS[str(node.op)](node, len(sizes))):
            seen.add(entry)
            yield number, entry


def _reduced(node: Node, rank: int) -> Sequence[int]:
    return axes_of(node) or range(rank)


def _image(node: Node, rank: int) -> Sequence[int]:
    return range(2, rank)


def _all(node: Node, rank: int) -> Sequence[int]:
    return range(rank)


def _axis(node: Node, rank: int) -> Sequence[int]:
    return (int(node.attrs.get("axis", 0)),)


def _padding_alone(node: Node, rank: int) -> Sequence[int]:
    """The dimensions in which the window fits into the padding alone."""
    kernel = kernel_of(node)
    short = None if kernel is None else shortfalls(node, kernel)
    return _image(node, rank) if short is None else [2 + i for i, less in enumerate(short) if less <= 0]


_DIMS: Mapping[str, Dims] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "ReduceMax", "ReduceMean", "ReduceMin"), _reduced),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GridSample", "MaxRoiPool", "RoiAlign"), _image),
    **dict.fromkeys(("AveragePool", "Conv", "MaxPool"), _padding_alone),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "Resize", "SoftmaxCrossEntropyLoss", "Upsample"), _all),
    "Gather": _axis,
}

PROBED = frozenset(_DIMS)
"""The ops that may be probed."""
