"""Extra outputs of an engine with the sizes of values that it would take a mean, a maximum, a window or a sample of.

ONNX defines the results for empty values: NaN, minus infinity or an error. Engines return zeros or uninitialized memory.
The sizes are known only after the run; numpy then computes the call again. Most models have no such value,
since empty inputs are detected beforehand, and `least_sizes` tells which sizes cannot become zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.engines.lower_bounds import Sizes, kernel_of, least_sizes, shortfalls
from partita.accelerators.interface.empty_reductions import axes_of
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry

Dims = Callable[[Node, int], Sequence[int]]
"""The dimensions of a node's first input, given its rank, of which none may be zero."""

NOTHING = "a value that an op takes a mean, a maximum, a window or a sample of has no elements, which the device computes wrongly"
"""The cause of the error if there is no body for numpy to compute."""

_INT64 = 7


@attrs.frozen(slots=True)
class Probe:
    """A value whose sizes the engine returns."""

    op: int
    """The index of an op of the model whose first input is the value."""
    rank: int


def probes_in(graph: Graph, ops: Collection[str]) -> list[Probe]:
    """The inputs of these ops that may turn out to be empty while the result is not."""
    numbered = list(enumerate(node for node in graph.nodes if node.is_op))
    wanted = [(number, node) for number, node in numbered if node.op in ops and not node.domain and node.inputs[0] is not None]
    if not wanted:
        return []
    least = least_sizes(graph)
    return [Probe(number, len(least[entry])) for number, entry in _read(wanted, least)]


def add_probes(model: Any, probes: Sequence[Probe]) -> tuple[str, ...]:
    """Adds a Shape op for each value, and its result to the outputs of the ModelProto. Returns the names of these outputs."""
    from onnx.helper import make_node, make_tensor_value_info

    named = {node.name: node for node in model.graph.node}
    outputs = tuple(f"z{i}" for i in range(len(probes)))
    for name, probe in zip(outputs, probes):
        model.graph.node.append(make_node("Shape", [named[f"n{probe.op}"].input[0]], [name], f"{name}_shape"))
        model.graph.output.append(make_tensor_value_info(name, _INT64, [probe.rank]))
    return outputs


def found_nothing(sizes: Sequence[Any]) -> bool:
    """True if a probed value is empty."""
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
    """The dimensions in which the window may cover only padding."""
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
"""The ops whose inputs may be probed."""
