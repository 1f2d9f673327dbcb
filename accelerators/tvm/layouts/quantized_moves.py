"""Rules for ops that only move elements: they move the integers, which are dequantized after them.

So a value that is dequantized, moved and quantized again is moved as integers. A move after which nothing reads integers stays as
it is: its reader may fold the move into its own reads."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.bodies.blocked import ORIGIN, origins_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.operands import only_reader
from partita.accelerators.tvm.layouts.quantized_walk import Walk
from partita.accelerators.tvm.layouts.scales import Scaling, scaling_of
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, TensorType


def move(walk: Walk, node: Node) -> bool | None:
    """An op whose results consist of elements of its first input."""
    source = node.inputs[0]
    if source is None or not walk.is_read_as_integers(node):
        return None
    for entry in node.reads:
        walk.sides.need_plain(entry)
    integers = walk.plain_integers(source)
    if integers is None:
        return None
    keep_moved(walk, node, (integers[0], *_others(walk, node)), integers[1])
    return True


def pad(walk: Walk, node: Node) -> bool | None:
    """Pad: its padding value is quantized too, if an integer represents it exactly."""
    source = node.inputs[0]
    if source is None or not walk.is_read_as_integers(node):
        return None
    for entry in node.reads:
        walk.sides.need_plain(entry)
    integers = walk.plain_integers(source)
    around = None if integers is None else _around(node, integers[1])
    if integers is None or around is None or len(node.inputs) < 2:
        return None
    pads, *rest = _others(walk, node)
    value = walk.sides.new_constant(around, f"{node.name}_around")
    keep_moved(walk, node, (integers[0], pads, value, *rest[1:]), integers[1])
    return True


def join(walk: Walk, node: Node) -> bool | None:
    """Concat of integers, if all have one scaling or the result is quantized with one scale."""
    if not walk.is_read_as_integers(node):
        return None
    for entry in node.reads:
        walk.sides.need_plain(entry)
    wanted = wanted_after(walk, node)
    integers_of = [walk.plain_integers(entry) for entry in node.reads]
    scalings = [None if integers is None else integers[1] for integers in integers_of]
    if wanted is None and scalings[0] is not None and all(scalings[0].is_like(scaling) for scaling in scalings):
        wanted = scalings[0]
    if wanted is None or all(scaling is None for scaling in scalings):
        return None
    inputs = []
    for i, (entry, integers) in enumerate(zip(node.reads, integers_of, strict=True)):
        if integers is not None and wanted.is_like(integers[1]):
            inputs.append(integers[0])
        else:
            inputs.append(walk.quantize(node, walk.rewriter.value(entry), wanted, f"{node.name}_{i}"))
    keep_moved(walk, node, tuple(inputs), wanted)
    return True


def wanted_after(walk: Walk, node: Node) -> Scaling | None:
    """The scaling with which the node's only reader quantizes its value, if it has a single scale."""
    reader = only_reader(node[0], walk.readers)
    scaling = scaling_of(reader) if reader is not None and reader.op == "QuantizeLinear" else None
    return scaling if scaling is not None and scaling.is_plain else None


def keep_moved(walk: Walk, node: Node, inputs: tuple[NodeEntry | None, ...], scaling: Scaling) -> None:
    """Keeps the op on integers, and a DequantizeLinear after each of its results."""
    dtype = scaling.point.dtype.name
    shapes = [any_shape(entry) for entry in node.outputs]
    names = tuple([walk.sides.name(f"{entry.name}_integers") for entry in node.outputs])
    types = tuple([TensorType(dtype, shape) for shape in shapes])
    metadata = {ORIGIN: "\n".join(origins_of(node))}
    name = walk.sides.name(f"{node.name}_integers") if len(names) > 1 else names[0]
    moved = walk.rewriter.keep(node.evolve(name=name, inputs=inputs, output_names=names, output_types=types, metadata=metadata))
    for entry, integers in zip(node.outputs, moved.outputs, strict=True):
        own = node.name if len(names) == 1 else walk.sides.name(f"{entry.name}_numbers")
        types = (TensorType("float32", any_shape(entry)),)
        read = (integers, *walk.operands(node, scaling))
        named = (entry.name,)
        numbers = Node(own, "DequantizeLinear", read, output_names=named, output_types=types, domain=DOMAIN, metadata=metadata)
        walk.rewriter.replace(entry, walk.rewriter.keep(numbers)[0])
        walk.sides.scalings[numbers] = scaling


def _others(walk: Walk, node: Node) -> list[NodeEntry | None]:
    return [None if entry is None else walk.rewriter.value(entry) for entry in node.inputs[1:]]


def _around(node: Node, scaling: Scaling) -> Array | None:
    """The integer that represents Pad's value exactly; None if there is none."""
    entry = node.inputs[2] if len(node.inputs) > 2 else None
    value = np.float32(0.0) if entry is None else None if entry.node.value is None else np.float32(entry.node.value.item())
    if value is None:
        return None
    info = np.iinfo(scaling.point.dtype)
    integer = np.rint(value / scaling.scale) + np.float32(scaling.point)
    exact = info.min <= integer <= info.max and np.float32((integer - np.float32(scaling.point)) * scaling.scale) == value
    return np.asarray(integer, scaling.point.dtype) if exact else None
