"""Distance of two models on the same inputs, output by output and layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs
import numpy as np

from partita.accelerators import CompiledModel
from partita.accelerators.arrays.distance import scales
from partita.accelerators.compiling import compile as compile_model
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, TensorType
from partita.passes.infer import infer

Range = tuple[float, float]
"""Smallest and largest finite element; two zeros if there is none."""


@attrs.frozen(slots=True)
class Layer:
    """Comparison of a value that both models have under one name."""

    name: str
    """Name of the value."""
    op: str
    """Op that computes it in the first model."""
    is_output: bool
    """True for an output of the models."""
    absolute: float
    """Largest |a - b|; infinite if one has a size, a NaN or an infinity that the other lacks."""
    relative: float
    """The same relative to the largest |b|, with the elements of a mask apart from the others."""
    cosine: float
    """Cosine of the two as vectors; 1 if they have the same direction."""
    nans: tuple[int, int] = (0, 0)
    """Number of NaN in the first, and in the second."""
    infinities: tuple[int, int] = (0, 0)
    """Number of infinities in the first, and in the second."""
    ranges: tuple[Range, Range] = ((0.0, 0.0), (0.0, 0.0))
    """Range of the first, and of the second."""
    types: tuple[str, str] = ("", "")
    """Element types that the kernel of each reads and stores; empty if the device does not report them."""


@attrs.frozen(slots=True)
class Side:
    """One of the two compared models, and what runs it."""

    graph: Graph
    """The model."""
    device: Any = None
    """Devices, as `compile` takes them."""
    config: Mapping[str, Any] | None = None
    """Configuration of the devices."""


def matched_outputs(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Names for the second model's outputs. An output whose name the first model lacks gets the first's name at its position,
    unless another output has that name."""
    taken = {*second}
    pairs = zip_longest(first[: len(second)], second)
    return [own if own in first or name is None or name in taken else name for name, own in pairs]


def compare_layers(first: Side, second: Side, inputs: Mapping[str, Array]) -> list[Layer]:
    """Compares the values that both graphs have under one name, in the first one's order, and outputs by name, or by position if
    names differ. A value that only one graph quantizes is compared as its readers there see it, after rounding: a quantizer omits
    a Relu that saturation of the integers replaces, so that unrounded values differ. Linear, apart from one run of each graph
    with all these values as outputs."""
    sizes = {name: array.shape for name, array in inputs.items()}
    names = matched_outputs(first.graph.output_names, second.graph.output_names)
    second = attrs.evolve(second, graph=second.graph.evolve(output_names=names))
    sides = [attrs.evolve(side, graph=infer(side.graph, sizes, strict=False)) for side in (first, second)]
    values = [_numbers_of(side.graph) for side in sides]
    names = [name for name in values[0] if name in values[1]]
    rounded = [_rounded(side.graph) for side in sides]
    alone = {name for name in names if (values[0][name] in rounded[0]) != (values[1][name] in rounded[1])}
    entries = [
        [of.get(known[name], known[name]) if name in alone else known[name] for name in names]
        for known, of in zip(values, rounded, strict=True)
    ]
    results, types = zip(*[_values(side, asked, inputs) for side, asked in zip(sides, entries, strict=True)], strict=True)
    outputs = set(first.graph.output_names) & set(second.graph.output_names)
    layers = []
    for name, a, b in zip(names, *results, strict=True):
        makers = [known[name].node for known in values]
        layer = layer_of(name, str(makers[0].op), name in outputs, a, b)
        one, other = (of.get(node.name, "") for of, node in zip(types, makers, strict=True))
        layers.append(attrs.evolve(layer, types=(one, other)))
    return layers


def compare_outputs(first: CompiledModel, second: CompiledModel, inputs: Mapping[str, Array]) -> list[Layer]:
    """Compares the outputs that both models have under one name, or else at one position, as computed when only outputs are
    requested."""
    results = [model({name: inputs[name] for name, _ in model.properties.inputs}) for model in (first, second)]
    own = [name for name, _ in first.properties.outputs]
    theirs = matched_outputs(own, [name for name, _ in second.properties.outputs])
    names = [name for name in own if name in theirs]
    makers = {name: str(entry.node.op) for name, entry in zip(first.graph.output_names, first.graph.outputs, strict=True)}
    pairs = [(np.asarray(results[0][name]), np.asarray(results[1][theirs.index(name)])) for name in names]
    return [layer_of(name, makers[name], True, *pair) for name, pair in zip(names, pairs, strict=True)]


def _rounded(graph: Graph) -> dict[NodeEntry, NodeEntry]:
    """For each value that is read only through QuantizeLinear and DequantizeLinear: the result of these. Linear."""
    readers: dict[NodeEntry, list[Node]] = {}
    for node in graph.nodes:
        for entry in (*node.reads, *node.captures):
            readers.setdefault(entry, []).append(node)

    def only(entry: NodeEntry, op: str) -> NodeEntry | None:
        """Result of ops of this kind, if they are the only readers of the value."""
        there = readers.get(entry, [])
        is_so = bool(there) and all(node.op == op and not node.domain and node.inputs[0] == entry for node in there)
        return there[0][0] if is_so and entry not in outputs else None

    outputs = set(graph.outputs)
    integers = {entry: only(entry, "QuantizeLinear") for entry in readers}
    numbers = {entry: only(q, "DequantizeLinear") for entry, q in integers.items() if q is not None}
    return {entry: value for entry, value in numbers.items() if value is not None}


def _numbers_of(graph: Graph) -> dict[str, NodeEntry]:
    """The values that ops compute, by name, then the outputs by their names, which both models share."""
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    shown, entries = {*outputs.values()}, (entry for node in graph.nodes if node.is_op for entry in node.outputs)
    named = {entry.name: entry for entry in entries if entry not in shown and _is_real(entry)}
    values = {name: entry for name, entry in named.items() if name not in ("", *outputs)}
    return {**values, **outputs}


def _is_real(entry: NodeEntry) -> bool:
    return isinstance(entry.type, TensorType) and entry.type.dtype not in ("string", "complex64", "complex128")


def _values(side: Side, entries: Sequence[NodeEntry], inputs: Mapping[str, Array]) -> tuple[list[Array], dict[str, str]]:
    """The values, and the element types that the kernel of each op reads and stores."""
    names = [f"value{i}" for i in range(len(entries))]
    seen = side.graph.evolve(outputs=list(entries), output_names=names)
    given = {node.name: inputs[node.name] for node in side.graph.inputs}
    model = compile_model(seen, side.device, side.config)
    arrays = [np.asarray(array) for array in model(given)]
    return arrays, {name: getattr(kernel, "types", "") for kernel in model.kernels() for name in kernel.nodes}


def is_numeric(array: Any) -> bool:
    """True for an array of real numbers or booleans, which can be subtracted."""
    return isinstance(array, np.ndarray) and (array.dtype.kind in "fiub" or "float" in array.dtype.name)


def layer_of(name: str, op: str, is_output: bool, array: Array, wanted: Array) -> Layer:
    """Distance of one array from the other; infinite if sizes differ, or if text or complex numbers are not equal."""
    if not (is_numeric(array) and is_numeric(wanted)):
        far = 0.0 if np.array_equal(array, wanted) else np.inf
        return Layer(name, op, is_output, far, far, float(not far))
    a, b = array.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1)
    counts: dict[str, Any] = {
        "nans": (int(np.isnan(a).sum()), int(np.isnan(b).sum())),
        "infinities": (int(np.isinf(a).sum()), int(np.isinf(b).sum())),
        "ranges": (_range(a), _range(b)),
    }
    if array.shape != wanted.shape:
        return Layer(name, op, is_output, np.inf, np.inf, 0.0, **counts)
    if not wanted.size:
        return Layer(name, op, is_output, 0.0, 0.0, 1.0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    both = np.isfinite(a) & np.isfinite(b)
    relative = float((apart / scales(b)).max())
    return Layer(name, op, is_output, float(apart.max()), relative, _cosine(a[both], b[both]), **counts)


def _range(array: Array) -> Range:
    finite = array[np.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _cosine(a: Array, b: Array) -> float:
    lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if 0.0 in lengths:
        return 1.0 if lengths[0] == lengths[1] else 0.0
    return float(np.clip(a / lengths[0] @ (b / lengths[1]), -1.0, 1.0))
