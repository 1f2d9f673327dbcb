"""Rules for ops that enlarge images: transposed convolutions and resizes, on NHWC integers."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.moves.enlarging import whole_factors
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import has_few_phases, is_cropped_as_told, window_attributes
from partita.accelerators.tvm.layouts.quantized_moves import wanted_after
from partita.accelerators.tvm.layouts.quantized_products import repeated
from partita.accelerators.tvm.layouts.quantized_walk import QuantizingWalk
from partita.accelerators.tvm.layouts.scales import Scaling, is_lossless, sums_of, weight_of
from partita.accelerators.tvm.layouts.transposing import Phases
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array
from partita.passes.decompose.resizing import mixtures

WIDEST = 4
"""Largest growth of a dilated filter that is filled with zeros between its taps."""


def transposed(walk: QuantizingWalk, node: Node) -> bool | None:
    """ConvTranspose: a convolution that makes all phases, which are interleaved, after quantizing if the result is quantized."""
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
              new(factor.reshape(-1)[order] if factor.size > 1 else factor.reshape(()), f"{node.name}_scale"))
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
