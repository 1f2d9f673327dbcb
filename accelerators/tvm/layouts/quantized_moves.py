"""Rules for ops around products of integers that move values, and for pools, joins of channels and LRN."""

from __future__ import annotations

import math

import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN as BLOCKED
from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.operands import only_reader
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import Window, make_window, window_attributes
from partita.accelerators.tvm.layouts.quantized_walk import QuantizingWalk
from partita.accelerators.tvm.layouts.scales import BYTE, LARGEST_SUM, Scaling, is_lossless, scaling_of
from partita.accelerators.tvm.sizes.extent import is_less
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array, TensorType


def move(walk: QuantizingWalk, node: Node) -> bool | None:
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


def pad(walk: QuantizingWalk, node: Node) -> bool | None:
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


def join(walk: QuantizingWalk, node: Node) -> bool | None:
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


def wanted_after(walk: QuantizingWalk, node: Node) -> Scaling | None:
    """The scaling with which the node's only reader quantizes its value, if it has a single scale."""
    reader = only_reader(node[0], walk.readers)
    scaling = scaling_of(reader) if reader is not None and reader.op == "QuantizeLinear" else None
    return scaling if scaling is not None and scaling.is_plain else None


def keep_moved(walk: QuantizingWalk, node: Node, inputs: tuple[NodeEntry | None, ...], scaling: Scaling) -> None:
    """Keeps the op on integers, and a DequantizeLinear after each of its results."""
    dtype = scaling.point.dtype.name
    shapes = [any_shape(entry) for entry in node.outputs]
    names = tuple([walk.sides.name(f"{entry.name}_integers") for entry in node.outputs])
    types = tuple([TensorType(dtype, shape) for shape in shapes])
    metadata = origin_metadata(node)
    kept = node.evolve(name=names[0], inputs=inputs, output_names=names, output_types=types, metadata=metadata)
    moved = walk.rewriter.keep(kept)
    for entry, integers in zip(node.outputs, moved.outputs, strict=True):
        own = node.name if len(names) == 1 else walk.sides.name(f"{entry.name}_numbers")
        types = (TensorType("float32", any_shape(entry)),)
        read = (integers, *walk.operands(node, scaling))
        named = (entry.name,)
        numbers = Node(own, "DequantizeLinear", read, output_names=named, output_types=types, domain=DOMAIN, metadata=metadata)
        walk.rewriter.replace(entry, walk.rewriter.keep(numbers)[0])
        walk.sides.scalings[numbers] = scaling


def _others(walk: QuantizingWalk, node: Node) -> list[NodeEntry | None]:
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


def largest(walk: QuantizingWalk, node: Node) -> bool | None:
    """MaxPool, of the integers if the value has them."""
    window, source = make_window(node, any_shape), node.inputs[0]
    if source not in walk.sides.beside or window is None or not _reaches_inside(window):
        return None
    if window.dilations != (1, 1) and not window.is_inside:
        return None
    integers = walk.integers(source)
    read = walk.sides.beside[source].entry if integers is None else integers[0]
    quantized = node.evolve(domain=DOMAIN, inputs=(read,), attrs=frozen_attrs(window_attributes(window)))
    walk.keep_moved(node, quantized, None if integers is None else integers[1])
    return True


def mean(walk: QuantizingWalk, node: Node) -> bool | None:
    """AveragePool and GlobalAveragePool: the mean of integers, in float32. AveragePool adds dequantized values tap by tap: a mean
    often lies midway between two integers, and then the rounding of the additions decides and has to agree with ONNX's reference.
    GlobalAveragePool stays as it is if its image is not NHWC yet, since nothing would be gained."""
    given, shape = walk.dequantized(node.inputs[0]), any_shape(node.inputs[0]) or ()
    window: Window | None
    if node.op == "GlobalAveragePool" and len(shape) == 4:
        sizes = shape[2:]
        window = Window(sizes, (1, 1), sizes, (1, 1), (1, 1), (0, 0))
    else:
        window = make_window(node, any_shape)
    if given is None or window is None or not _reaches_inside(window):
        return None
    if node.op == "GlobalAveragePool" and given[0] not in walk.sides.beside:
        return None
    if window.dilations != (1, 1) or (node.attrs.get("count_include_pad", 0) and not window.is_inside):
        return None
    source, scaling = given
    if not is_lossless(scaling.scale) or is_less(LARGEST_SUM, window.count * BYTE):
        return None
    read = walk.sides.unsigned(source, True)
    scale = walk.sides.new_constant(np.asarray(scaling.scale), f"{node.name}_scale")
    more = {**window_attributes(window), "zero": scaling.unsigned_point, "adds_numbers": int(node.op == "AveragePool")}
    walk.sides.keep(node, node.evolve(op="Mean", domain=DOMAIN, inputs=(read, scale), attrs=frozen_attrs(more)), True)
    return True


def join_channels(walk: QuantizingWalk, node: Node) -> bool | None:
    """Concat of integers, if all have one scaling or the result is quantized with one scale."""
    shape = any_shape(node[0]) or ()
    if len(shape) != 4 or node.attrs.get("axis") not in (1, -3) or not any(e in walk.sides.beside for e in node.reads):
        return join(walk, node)
    wanted = wanted_after(walk, node)
    integers_of = [walk.integers(entry) for entry in node.reads]
    scalings = [None if integers is None else integers[1] for integers in integers_of]
    if wanted is not None:
        inputs = [walk.quantized_like(node, i, entry, wanted) for i, entry in enumerate(node.reads)]
    elif scalings[0] is not None and all(scalings[0].is_like(scaling) for scaling in scalings):
        inputs, wanted = [integers[0] for integers in integers_of if integers is not None], scalings[0]
    else:
        inputs, wanted = [walk.sides.need_beside(entry) for entry in node.reads], None
    walk.keep_moved(node, node.evolve(domain=DOMAIN, inputs=tuple(inputs), attrs=frozen_attrs({})), wanted)
    return True


def response(walk: QuantizingWalk, node: Node) -> bool | None:
    """LRN: each pixel of an NHWC image is a blocked image of one pixel."""
    source, shape = node.inputs[0], any_shape(node[0]) or ()
    if source not in walk.sides.beside or len(shape) != 4 or shape[1] % walk.lanes:
        return None
    batch, channels, *sizes = shape
    pixels = batch * math.prod(sizes)
    blocked = (pixels, channels // walk.lanes, 1, walk.lanes)
    given = walk.sides.beside[source].entry, *walk.sizes(node, blocked)
    read = walk.helper(node, "Reshape", given, blocked, {}, "float32")
    attributes = {**node.attrs, "channels": channels}
    response = walk.helper(node, "LRN", (read,), blocked, attributes, "float32", BLOCKED)
    back = walk.sizes(node, (batch, *sizes, channels))
    walk.sides.keep(node, node.evolve(op="Reshape", inputs=(response, *back), attrs=frozen_attrs({})), True)
    return True


def _reaches_inside(window: Window) -> bool:
    """True if every window sees a pixel of the image."""
    last = [(o - 1) * s - b for o, s, b in zip(window.out, window.strides, window.before)]
    return all(k - b > 0 for k, b in zip(window.span, window.before)) and all(at < n for at, n in zip(last, window.sizes))
