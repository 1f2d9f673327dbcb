"""The sizes of what ops on images make: any number of images, and of what heights and widths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, Size, is_less
from partita.accelerators.tvm.sizes.grains import LARGEST
from partita.accelerators.tvm.sizes.same_padding import same_padding
from partita.graph.node import Node
from partita.graph.numerics.resize import scaled_size
from partita.graph.numerics.windows import SAME, extent, window

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

Sizes = tuple[Size, ...]


def _known(sizes: Sequence[Size], node: Node) -> list[int]:
    """Sizes that are numbers."""
    if any(isinstance(size, Extent) for size in sizes):
        raise CompileError(f"{node.op} of {' x '.join(map(str, sizes))}: all of these have to be known")
    return [size for size in sizes if isinstance(size, int)]


def _slid(reading: Reading, node: Node, taps: Sequence[int]) -> Sizes:
    """The height and width, or more dimensions, of what a window makes of the first input."""
    attributes, data = node.attrs, reading.sizes(node.inputs[0])[2:]
    strides, dilations, pads = (attributes.get(name) for name in ("strides", "dilations", "pads"))
    automatic, rounds_up = attributes.get("auto_pad", "NOTSET"), attributes.get("ceil_mode", 0)
    if not any(isinstance(size, Extent) for size in data):
        return window(_known(data, node), taps, strides, dilations, pads, automatic, rounds_up).outputs
    count = len(data)
    steps, gaps = list(strides or [1] * count), list(dilations or [1] * count)
    if automatic in SAME:
        for size, tap, step, gap in zip(data, taps, steps, gaps, strict=True):
            same_padding(size, extent(tap, gap), step, automatic, reading.divide)  # Kernels work it out of these quotients.
        return tuple([reading.divide(size + step - 1, step) for size, step in zip(data, steps, strict=True)])
    around = list(pads or [0] * (2 * count)) if automatic == "NOTSET" else [0] * (2 * count)
    rooms = [size + around[d] + around[count + d] - extent(taps[d], gaps[d]) for d, size in enumerate(data)]
    for room in rooms:
        if isinstance(room, Extent):
            reading.assume(room)
    if not rounds_up or automatic != "NOTSET":
        return tuple([reading.divide(room, step) + 1 for room, step in zip(rooms, steps, strict=True)])
    return tuple([_rounded_up(reading, rooms[d], steps[d], size + around[d], node) for d, size in enumerate(data)])


def _rounded_up(reading: Reading, room: Size, step: int, end: Size, node: Node) -> Size:
    """How many windows there are where the last may reach behind the image; it begins before `end`."""
    count = reading.divide(room + step - 1, step) + 1
    if is_less((count - 1) * step, end):
        return count
    if is_less(end - 1, (count - 1) * step):
        return count - 1
    raise CompileError(f"{node.op} with ceil_mode: whether its last window begins inside depends on the size")


def _convolution(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, weight = reading.sizes(node.inputs[0]), _known(reading.sizes(node.inputs[1]), node)
    if len(data) != len(weight) or data[1] != weight[1] * node.attrs.get("group", 1):
        raise CompileError(f"a convolution of {list(data)} by {weight}")
    return ((data[0], weight[0], *_slid(reading, node, weight[2:])),)


def _transposed(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, weight, attributes = reading.sizes(node.inputs[0]), _known(reading.sizes(node.inputs[1]), node), node.attrs
    automatic = attributes.get("auto_pad", "NOTSET") != "NOTSET" or attributes.get("output_shape")
    if len(data) != len(weight) or data[1] != weight[0] or automatic:
        raise CompileError(f"a transposed convolution of {list(data)} by {weight}")
    count = len(data) - 2
    strides, dilations, more = (
        list(attributes.get(name) or [default] * count)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    pads = list(attributes.get("pads") or [0] * (2 * count))
    sides = [
        (size - 1) * strides[d] + (extent(weight[2 + d], dilations[d]) + more[d] - pads[d] - pads[count + d])
        for d, size in enumerate(data[2:])
    ]
    for side in sides:
        if isinstance(side, Extent):
            reading.assume(side - 1)
    return ((data[0], weight[1] * attributes.get("group", 1), *sides),)


def _pool(reading: Reading, node: Node) -> Sequence[Sizes]:
    data = reading.sizes(node.inputs[0])
    if any(node.output_names[1:]):
        raise CompileError(f"{node.op} with several results has no rule for any size")
    return ((*data[:2], *_slid(reading, node, node.attrs["kernel_shape"])),)


def _global_pool(reading: Reading, node: Node) -> Sequence[Sizes]:
    data = reading.sizes(node.inputs[0])
    return ((*data[:2], *[1] * (len(data) - 2)),)


def _resize(reading: Reading, node: Node) -> Sequence[Sizes]:
    data = reading.sizes(node.inputs[0])
    inputs = (*node.inputs, None, None, None)
    scales, sizes = (inputs[2], inputs[3]) if len(node.inputs) > 2 else (inputs[1], None)  # The latter before opset 11.
    if node.attrs.get("axes") or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise CompileError("Resize of chosen dimensions has no rule for any size")
    if sizes is not None:
        return (tuple(reading.vector(sizes)),)
    factors = None if scales is None else scales.node.value
    if factors is None or factors.size != len(data):
        raise CompileError("Resize by factors that are not constant has no rule for any size")
    listed = factors.tolist()
    if listed.count(1) < min(2, len(listed) - 1) and any(isinstance(size, Extent) for size in data):
        raise CompileError(f"Resize of {list(data)} by {listed}")
    return (tuple([_scaled(reading, size, factor) for size, factor in zip(data, listed, strict=True)]),)


def _scaled(reading: Reading, size: Size, factor: float) -> Size:
    """The size times a factor, rounded down."""
    if not isinstance(size, Extent):
        return scaled_size(size, factor)
    numerator, denominator = float(factor).as_integer_ratio()
    if denominator > LARGEST:
        return reading.round_down(size, factor)
    try:
        return reading.divide(size * numerator, denominator)
    except Indivisible:
        if not reading.has_floors:
            raise
        return reading.round_down(size, factor)


def _depth_to_space(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, side = reading.sizes(node.inputs[0]), int(node.attrs["blocksize"])
    return ((data[0], data[1] // (side * side), data[2] * side, data[3] * side),)


def _space_to_depth(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, side = reading.sizes(node.inputs[0]), int(node.attrs["blocksize"])
    return ((data[0], data[1] * (side * side), data[2] // side, data[3] // side),)


def _from_columns(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, image, block = reading.sizes(node.inputs[0]), reading.vector(node.inputs[1]), reading.vector(node.inputs[2])
    return ((data[0], data[1] // math.prod(_known(block, node)), *image),)


def _sampled(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, grid = reading.sizes(node.inputs[0]), reading.sizes(node.inputs[1])
    return ((*data[:2], *grid[1:-1]),)


IMAGE_RULES: Mapping[str, Callable[[Reading, Node], Sequence[Sizes]]] = {
    "AveragePool": _pool, "Col2Im": _from_columns,
    "Conv": _convolution, "ConvInteger": _convolution, "ConvTranspose": _transposed,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_pool, "GlobalMaxPool": _global_pool, "GridSample": _sampled,
    "LpPool": _pool, "MaxPool": _pool, "Resize": _resize,
    "SpaceToDepth": _space_to_depth, "Upsample": _resize,
}
"""The sizes of the outputs, op by op."""
