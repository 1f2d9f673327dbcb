"""Rules for the ops around products of integers: those that move values or compute element by element, pools, joins of channels,
LRN, and those that enlarge images (transposed convolutions and resizes, on NHWC integers)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN as BLOCKED
from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.operands import only_reader
from partita.accelerators.tvm.kernels.moves.enlarging import whole_factors
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import (
    Window,
    has_few_phases,
    is_cropped_as_told,
    make_window,
    window_attributes,
)
from partita.accelerators.tvm.layouts.quantized.products import repeated
from partita.accelerators.tvm.layouts.quantized.scales import (
    BYTE,
    LARGEST_SUM,
    Scaling,
    is_lossless,
    scaling_of,
    sums_of,
    weight_of,
)
from partita.accelerators.tvm.layouts.quantized.walk import QuantizingWalk
from partita.accelerators.tvm.layouts.transposing import Phases
from partita.accelerators.tvm.sizes.extent import Extent, is_less
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array, TensorType
from partita.passes.decompose.resizing import mixtures
from partita.passes.fold_batch_norm import is_inference, scale_and_shift


def move(walk: QuantizingWalk, node: Node) -> bool | None:
    """An op whose results consist of elements of its first input."""
    integers = _moved_integers(walk, node)
    if integers is None:
        return None
    keep_moved(walk, node, (integers[0], *_others(walk, node)), integers[1])
    return True


def _moved_integers(walk: QuantizingWalk, node: Node) -> tuple[NodeEntry, Scaling] | None:
    """The plain integers that an op moves, if a reader of its results can read integers."""
    source = node.inputs[0]
    if source is None or not walk.is_read_as_integers(node):
        return None
    for entry in node.reads:
        walk.sides.need_plain(entry)
    return walk.plain_integers(source)


def pad(walk: QuantizingWalk, node: Node) -> bool | None:
    """Pad: its padding value is quantized too, if an integer represents it exactly."""
    integers = _moved_integers(walk, node)
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
    """MaxPool, of the integers if the value was dequantized from some, else of floats in NHWC."""
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
    """AveragePool and GlobalAveragePool: the mean of integers, in float32. AveragePool adds dequantized values tap by tap, as
    ONNX's reference does: a mean is often midway between two integers, so that the rounding of each addition matters.
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
    """Concat of channels in NHWC: of integers as in `join`, else of floats. Other Concats are left to `join`."""
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


WIDEST = 4
"""A dilated filter is filled with zeros between its taps if it grows by at most this factor."""


def transposed(walk: QuantizingWalk, node: Node) -> bool | None:
    """ConvTranspose: a convolution that computes all phases, quantized if the result is, and then interleaved."""
    image, shape = any_shape(node.inputs[0]) or (), any_shape(node[0]) or ()
    if len(shape) != 4 or not is_cropped_as_told(node):
        return None
    given, weight = walk.dequantized(node.inputs[0]), weight_of(node.inputs[1], 1)
    array = None if weight is None else _spread(weight[0], tuple(node.attrs.get("dilations") or (1, 1)))
    if given is None or weight is None or array is None:
        return None
    (source, scaling), scales, groups = given, weight[1], int(node.attrs.get("group", 1))
    strides, pads = (tuple(node.attrs.get(name) or default) for name, default in (("strides", (1, 1)), ("pads", (0,) * 4)))
    if not has_few_phases(strides):
        return None
    phases = Phases(image[2:], shape[2:], array.shape[2:], strides, pads[:2], shape[1])  # type: ignore[arg-type]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    alike = phases.alike
    packed, times, outs = phases.weights(_beside(array, groups), alike), alike.count, phases.outs(alike)
    sums = sums_of(scaling, packed, np.tile(scales.reshape(-1), groups) if scales.size > 1 else scales, bias, times)
    if sums is None or (sums[2] is not None and sums[2].node.value is None):
        return None
    beginning, factor, added = sums
    wanted = wanted_after(walk, node)
    rounding = wanted
    if wanted is not None and added is None and is_lossless(factor / np.float64(wanted.scale)):
        factor = (factor / np.float64(wanted.scale)).astype(np.float32)
        rounding = Scaling(np.float32(1.0), wanted.point, None)  # type: ignore[arg-type]
    order = np.arange(outs).reshape(times, groups, -1).swapaxes(0, 1).reshape(-1)
    read, geometry = _image_of(walk, node, source, outs)
    window, new = phases.window(alike), walk.sides.new_constant
    more = {**geometry, "plain": 0, "outs": outs, "batch": shape[0], "zero": scaling.unsigned_point}
    inputs = (read, new(packed[order], f"{node.name}_weight"), new(beginning[order], f"{node.name}_beginning"),
              walk.factor(factor.reshape(-1)[order] if factor.size > 1 else factor, f"{node.name}_scale"))
    is_alone = geometry["group"] == geometry["channels"] == outs
    size, op = (shape[0], *window.out, outs), "Depthwise" if is_alone else "Product"
    number = walk.helper(node, op, inputs, size, {**window_attributes(window), **more}, "float32", DOMAIN)
    if added is not None and added.node.value is not None:
        spread = new(np.tile(added.node.value.reshape(-1), times)[order], f"{node.name}_bias")
        number = walk.helper(node, "Add", (number, spread), size, {}, "float32")
    if rounding is not None:
        number = walk.quantize(node, number, rounding, f"{node.name}_rounded")
    dealt = {"strides": list(strides), "pads": list(pads[:2]), "group": groups}
    walk.keep_moved(node, node.evolve(op="Interleave", domain=DOMAIN, inputs=(number,), attrs=frozen_attrs(dealt)), wanted)
    return True


def _spread(weight: Array, dilations: tuple[int, ...]) -> Array | None:
    """The dilated filter as a dense one, with zeros between its taps; None if that makes it too large."""
    sizes = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations)]
    if np.prod(sizes) > WIDEST * np.prod(weight.shape[2:]):
        return None
    filled = np.zeros((*weight.shape[:2], *sizes), weight.dtype)
    filled[:, :, :: dilations[0], :: dilations[1]] = weight
    return filled


def _beside(weight: Array, groups: int) -> Array:
    """The weight [channels, results of a group, taps] as [channels of a group, results, taps]."""
    _, own, *taps = weight.shape
    return weight.reshape(groups, -1, own, *taps).swapaxes(0, 1).reshape(-1, groups * own, *taps)


def _image_of(walk: QuantizingWalk, node: Node, source: NodeEntry, outs: int) -> tuple[NodeEntry, dict[str, Any]]:
    """The bytes that a convolution of `outs` results reads, and its channels and groups. If it is depthwise, each channel is
    repeated once for each of its results."""
    channels, groups = (any_shape(source) or ())[1], int(node.attrs.get("group", 1))
    read = walk.sides.unsigned(source, True)
    if groups == 1 or groups < channels:
        return read, {"channels": channels, "group": groups}
    return repeated(walk, node, read, outs // channels), {"channels": outs, "group": outs}


def resized(walk: QuantizingWalk, node: Node) -> bool | None:
    """Resize: nearest pixels stay integers; linear mixtures of two pixels per axis become float32."""
    source, shape = node.inputs[0], any_shape(node[0]) or ()
    if source not in walk.sides.beside or len(shape) != 4 or any(e is not None and e.node.value is None for e in node.inputs[1:]):
        return None
    image, integers = any_shape(source) or (), walk.integers(source)
    read = _EnlargedReads.of(walk, node, image, shape) if integers is not None else None
    if integers is None or read is None:
        return None
    given, scaling = integers
    attributes: dict[str, Any] = {"image": list(image[2:]), "result": list(shape[2:]), **read.attributes}
    if read.is_nearest:
        inputs = (given, *_constants(walk, node, [positions[:, :1] for positions, _ in read.tables]))
        walk.keep_moved(node, node.evolve(op="Resize", domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(attributes)), scaling)
        return True
    scale = walk.sides.new_constant(np.asarray(scaling.scale), f"{node.name}_scale")
    inputs = (given, scale, *_constants(walk, node, [array for table in read.tables for array in table]))
    attributes["zero"] = int(scaling.point)
    walk.sides.keep(node, node.evolve(op="Mix", domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(attributes)), True)
    return True


@attrs.frozen(slots=True, eq=False)
class _EnlargedReads:
    """The pixels of the image that each pixel of a resize's result reads."""

    is_nearest: bool
    """True if each pixel of the result reads a single one."""
    tables: list[tuple[Array, Array]]
    """Positions and shares, down and across; empty if the attributes determine them."""
    attributes: dict[str, Any]
    """The integer factors, and whether coordinates are pixel centres."""

    @classmethod
    def of(cls, walk: QuantizingWalk, node: Node, image: tuple[int, ...], shape: tuple[int, ...]) -> _EnlargedReads | None:
        """The pixels that a resize reads; None if it mixes more than two per axis or has no integer factors."""
        if not any(isinstance(size, Extent) for size in (*image[2:], *shape[2:])):
            tables = mixtures(node, walk.graph, image, shape)
            is_nearest = tables is not None and all((shares == np.array([1, 0])).all() for _, shares in tables)
            return None if tables is None else cls(is_nearest, tables, {})
        times = whole_factors(node, image[2:], shape[2:]) if image[:2] == shape[:2] else None
        if times is None:
            return None
        is_centred = node.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        return cls(node.attrs.get("mode", "nearest") == "nearest", [], {"times": list(times), "centred": int(is_centred)})


def _constants(walk: QuantizingWalk, node: Node, arrays: list[Array]) -> list[NodeEntry]:
    return [walk.sides.new_constant(np.ascontiguousarray(array), f"{node.name}_mixture_{i}") for i, array in enumerate(arrays)]


def rounding(walk: QuantizingWalk, node: Node) -> bool | None:
    """QuantizeLinear or DequantizeLinear, with its scale and zero point as broadcast operands."""
    scaling, source = scaling_of(node), node.inputs[0]
    assert scaling is not None and source is not None
    if source.node.value is not None:
        return None
    before = walk.rewriter.value(source).node if source not in walk.sides.beside else walk.sides.beside[source].entry.node
    if node.op == "QuantizeLinear" and scaling.is_plain and before.domain == DOMAIN and before.op == "DequantizeLinear":
        if scaling.is_like(walk.sides.scalings.get(before)):
            walk.stand_for(node, source, before.inputs[0])
            return True
    is_beside = source in walk.sides.beside
    shape = any_shape(source) or ()
    if is_beside and scaling.axis not in (None, 1):
        return None
    read = walk.sides.beside[source].entry if is_beside else walk.rewriter.value(source)
    tail = 0 if is_beside or scaling.axis is None else len(shape) - 1 - scaling.axis
    scale = np.float32(1.0) if node in walk.divided else scaling.scale
    operands = [walk.operand(node, np.asarray(array), tail) for array in (scale, scaling.point)]
    own = node.evolve(domain=DOMAIN, inputs=(read, *operands), attrs=frozen_attrs({}))
    walk.sides.scalings[walk.sides.keep(node, own, is_beside)] = scaling
    return True


def elementwise(walk: QuantizingWalk, node: Node) -> bool | None:
    """An element-wise op of which an operand is NHWC, or a Clip whose input is already divided by its scale."""
    shape = any_shape(node[0])
    if node in walk.divided and node.op == "Clip" and node.inputs[0] not in walk.sides.beside:
        bounds = [_bound(walk, node, i) for i in range(1, len(node.inputs))]
        walk.sides.keep(node, node.evolve(inputs=(walk.rewriter.value(node.reads[0]), *bounds)), False)
        return True
    if shape is None or len(shape) != 4 or not any(entry in walk.sides.beside for entry in node.reads):
        return None
    ways = [None if entry is None else _operand(walk, entry, shape) for entry in node.inputs]
    if any(entry is not None and way is None for entry, way in zip(node.inputs, ways)):
        return None
    inputs = [None if way is None else way() for way in ways]
    if node in walk.divided and node.op == "Clip":
        inputs[1:] = [_bound(walk, node, i) for i in range(1, len(inputs))]
    walk.sides.keep(node, node.evolve(inputs=tuple(inputs)), True)
    return True


def normalized(walk: QuantizingWalk, node: Node) -> bool | None:
    """BatchNormalization as a Mul and an Add per channel."""
    source = node.inputs[0]
    if source not in walk.sides.beside or not is_inference(node, walk.graph):
        return None
    factors = scale_and_shift(node)
    if factors is None or not all(np.isfinite(part).all() for part in factors):
        return None
    scale, shift = (walk.sides.new_constant(part.astype(np.float32), f"{node.name}_part") for part in factors)
    shape = any_shape(walk.sides.beside[source].entry) or ()
    scaled = walk.helper(node, "Mul", (walk.sides.beside[source].entry, scale), shape, {}, "float32")
    walk.sides.keep(node, node.evolve(op="Add", inputs=(scaled, shift), attrs=frozen_attrs({})), True)
    return True


def looked_up(walk: QuantizingWalk, node: Node) -> bool | None:
    """A Table, whose bytes may be NHWC."""
    source, table = node.reads
    if source not in walk.sides.beside:
        return None
    walk.sides.keep(node, node.evolve(inputs=(walk.sides.beside[source].entry, walk.rewriter.value(table))), True)
    return True


def _bound(walk: QuantizingWalk, node: Node, i: int) -> NodeEntry | None:
    """A Clip's bound, divided by the scale that its values are divided by."""
    entry = node.inputs[i]
    if entry is None or entry.node.value is None:
        return None
    return walk.sides.new_constant(np.asarray(entry.node.value / np.float32(walk.divided[node])), f"{node.name}_bound")


def _operand(walk: QuantizingWalk, entry: NodeEntry, shape: tuple[int, ...]) -> Callable[[], NodeEntry] | None:
    """A function that returns the operand of an element-wise op in NHWC; None if it has no such form."""
    own, array = any_shape(entry), entry.node.value
    if own is None:
        return None
    if array is not None and array.size == 1:
        return lambda: walk.rewriter.value(entry)
    if array is not None:
        aligned = array.reshape((1,) * (4 - len(own)) + own)
        return lambda: walk.sides.new_constant(np.ascontiguousarray(aligned.transpose(0, 2, 3, 1)), f"{entry.name}_beside")
    if len(own) <= len(shape) and all(size == 1 for size in own):
        return lambda: _single(walk, entry)
    if own == shape or (len(own) == 4 and own == (1, shape[1], 1, 1)):
        return lambda: walk.sides.need_beside(entry)
    return None


def _single(walk: QuantizingWalk, entry: NodeEntry) -> NodeEntry:
    """A value of one element, unchanged."""
    walk.sides.need_plain(entry)
    return walk.rewriter.value(entry)
