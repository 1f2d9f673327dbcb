"""Rule for ConvInteger: the sums of a convolution of bytes by constant bytes, which a model scales afterwards.

The padding holds the zero point. A constant zero point fills the border. One from DynamicQuantizeLinear cannot: zeros fill the
border, and from each sum the zero point times the weights that lie inside the image is subtracted."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN, around_zero
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import Window, make_window, window_attributes
from partita.accelerators.tvm.layouts.quantized.products import SIGN, WORD, is_signed, whole_point
from partita.accelerators.tvm.layouts.quantized.scales import BYTE, LARGEST_SUM
from partita.accelerators.tvm.layouts.quantized.walk import QuantizingWalk
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array

REFUSAL = "kernels of whole convolutions take bytes by constant ones, whose distances to their zero point are signed bytes"


@attrs.frozen(slots=True, eq=False)
class WholeConvolution:
    """The operands and geometry of a ConvInteger."""

    source: NodeEntry
    """The image."""
    weight: Array
    """The weights as signed bytes, with their zero point subtracted."""
    window: Window
    group: int
    is_alone: bool
    """True for a depthwise convolution."""
    point: NodeEntry | None
    """The image's zero point."""

    @property
    def moved(self) -> int:
        """Offset that makes the bytes unsigned: 128 for int8, else 0."""
        return SIGN if is_signed(self.source) else 0


def whole_convolution_of(node: Node) -> WholeConvolution | None:
    """The ConvInteger; None if it has no kernel."""
    source, given, point, weight_point = (*node.inputs, None, None)[:4]
    array, shape = None if given is None else given.node.value, any_shape(node[0])
    window = make_window(node.evolve(op="Conv"), any_shape)
    zero = np.zeros((), np.int16) if weight_point is None else weight_point.node.value
    if node.domain or source is None or array is None or zero is None or shape is None or window is None or array.ndim != 4:
        return None
    if source.node.value is not None or array.dtype.itemsize != 1 or 0 in shape or zero.size not in (1, len(array)):
        return None
    if point is not None and (any_shape(point) is None or any(size != 1 for size in any_shape(point) or ())):
        return None
    weight = around_zero(array, zero.astype(np.int16).reshape((-1, 1, 1, 1) if zero.size > 1 else ()))
    group, channels = int(node.attrs.get("group", 1)), (any_shape(source) or (0, 0))[1]
    is_alone = group == channels == shape[1] and group > 1
    if weight is None:
        return None
    if 2 * BYTE * int(np.abs(weight.astype(np.int64)).sum((1, 2, 3)).max()) > LARGEST_SUM:
        return None
    return WholeConvolution(source, weight, window, group, is_alone, point)


def whole_convolution(walk: QuantizingWalk, node: Node) -> bool | None:
    """ConvInteger: the int32 sums."""
    given = whole_convolution_of(node)
    if given is None:
        return None
    shape, new = any_shape(node[0]) or (), walk.sides.new_constant
    channels = (any_shape(given.source) or ())[1]
    is_plain = channels <= WORD and given.source not in walk.sides.beside and given.group == 1
    read = walk.sides.unsigned(given.source, not is_plain)
    value = None if given.point is None else given.point.node.value
    known = 0 if given.point is None else None if value is None else int(value.item())
    fill = 0 if known is None else known + given.moved
    sums = given.weight.astype(np.int64).sum((1, 2, 3))
    more = {"plain": int(is_plain), "channels": channels, "outs": shape[1], "group": given.group, "batch": shape[0], "zero": fill}
    inputs = (read, new(given.weight, f"{node.name}_weight"), new((-fill * sums).astype(np.int32), f"{node.name}_beginning"))
    attributes = frozen_attrs({**window_attributes(given.window), **more})
    product = node.evolve(op="Depthwise" if given.is_alone else "Product", domain=DOMAIN, inputs=inputs, attrs=attributes)
    if known is not None or given.point is None:
        walk.sides.keep(node, product, True)
        return True
    first = walk.sides.named(product, f"{node.name}_product", node, True)
    point = _moved_point(walk, node, given.point, given.moved)
    seen = weights_inside(given)
    taken = walk.helper(node, "Mul", (point, new(seen, f"{node.name}_inside")), seen.shape, {})
    walk.sides.keep(node, node.evolve(op="Sub", inputs=(first[0], taken), attrs=frozen_attrs({})), True)
    return True


def _moved_point(walk: QuantizingWalk, node: Node, point: NodeEntry, moved: int) -> NodeEntry:
    """The zero point as an int32 scalar, for unsigned bytes."""
    number = whole_point(walk, node, point)
    if not moved:
        return number
    return walk.helper(node, "Add", (number, walk.sides.new_constant(np.array(moved, np.int32), f"{node.name}_moved")), (), {})


def weights_inside(given: WholeConvolution) -> Array:
    """Sum of the weights that lie inside the image, for each result [1, H, W, C]; one for each channel if there is no border."""
    window, weight = given.window, given.weight.astype(np.int64).sum(1)
    inside: list[Array] = []
    for d in range(2):
        begins = np.arange(window.out[d])[:, None] * window.strides[d] - window.before[d]
        at = begins + np.arange(window.taps[d]) * window.dilations[d]
        inside.append(((at >= 0) & (at < window.sizes[d])).astype(np.int64))
    if all(part.all() for part in inside):
        return weight.sum((1, 2)).astype(np.int32)
    sums: Any = np.einsum("oyx,hy,wx->hwo", weight, *inside)
    return np.ascontiguousarray(sums[None].astype(np.int32))
