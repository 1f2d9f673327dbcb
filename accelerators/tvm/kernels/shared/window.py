"""The geometry of what slides over an image: convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.kernels.shared.shapes import Shape, float32_shape
from partita.accelerators.tvm.sizes.extent import Extent, known_least
from partita.accelerators.tvm.sizes.floors import floored
from partita.accelerators.tvm.sizes.same_padding import same_padding
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.windows import SAME

Pair = tuple[int, int]


@attrs.frozen(slots=True)
class Window:
    """What is read of an image, and where. Pairs are (down, across)."""

    sizes: Pair
    """The image."""
    out: Pair
    """The result."""
    taps: Pair
    """The window."""
    strides: Pair
    """How far apart neighbouring results read."""
    dilations: Pair
    """How far apart neighbouring taps read."""
    before: Pair
    """The padding above and to the left."""

    @property
    def pixels(self) -> int:
        """Results of one channel."""
        return math.prod(self.out)

    @property
    def count(self) -> int:
        """Taps of the window."""
        return math.prod(self.taps)

    @property
    def span(self) -> Pair:
        """How much of the image one result sees."""
        return _pair([(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations)])

    @property
    def is_inside(self) -> bool:
        """Is the padding never read?"""
        return all(before == 0 for before in self.before) and all(known_least(self._last(i) - self.out[i]) >= 0 for i in (0, 1))

    @property
    def is_any(self) -> bool:
        """Is a size of the image known only while the kernel runs?"""
        return any(isinstance(size, Extent) for size in (*self.sizes, *self.out))

    @property
    def share_inside(self) -> float:
        """The part of all products of a result and a tap that meets the image; 1.0 where sizes are not known."""
        return 1.0 if self.is_any else math.prod(self._inside(i) / (self.out[i] * self.taps[i]) for i in (0, 1))

    def _inside(self, i: int) -> int:
        """How many products of results and taps of a dimension meet the image."""
        firsts = [self.before[i] - tap * self.dilations[i] for tap in range(self.taps[i])]
        steps = self.strides[i]
        ends = [min(-(-(self.sizes[i] + first) // steps), self.out[i]) for first in firsts]
        return sum(max(end - max(-(-first // steps), 0), 0) for first, end in zip(firsts, ends))

    @property
    def is_pointwise(self) -> bool:
        """Is each result made of one pixel, the same as its own?"""
        return self.taps == (1, 1) and self.sizes == self.out and self.is_inside and self.strides == (1, 1)

    @property
    def is_flat(self) -> bool:
        """Is each result made of one pixel of a single column?"""
        return self.is_pointwise and self.out[1] == 1

    @property
    def is_sampled(self) -> bool:
        """Is each result made of one pixel, and are pixels between left out?"""
        return self.taps == (1, 1) and self.is_inside and self.strides != (1, 1)

    def low(self, i: int) -> int:
        """The first result in a dimension that sees none of the padding before the image."""
        return min(-(-self.before[i] // self.strides[i]), self.out[i])

    def high(self, i: int) -> int:
        """The first result in a dimension, from there on, that sees padding behind it."""
        return max(self.low(i), min(self._last(i), self.out[i]))

    def _last(self, i: int) -> int:
        """The number of results in a dimension that see no padding behind the image."""
        return floored(self.sizes[i] + self.before[i] - self.span[i], self.strides[i]) + 1  # type: ignore[return-value]

    def flat(self) -> Window:
        """All pixels in one column, for a window that reads one pixel."""
        pixels = math.prod(self.sizes)
        return attrs.evolve(self, sizes=(pixels, 1), out=(pixels, 1))


@attrs.frozen(slots=True)
class Convolved:
    """What a convolution computes, whatever its element type."""

    batch: int
    window: Window
    channels: int
    """The channels of the image."""
    outs: int
    """The channels of the result."""
    groups: int

    @property
    def is_any(self) -> bool:
        """Is the number of images, or a size of them, known only while the kernel runs?"""
        return self.window.is_any or isinstance(self.batch, Extent)

    @property
    def images(self) -> int:
        """The number of images that work is cut for: where any number comes, each is cut as if it came alone."""
        return 1 if isinstance(self.batch, Extent) else self.batch


def make_window(node: Node, shape_of: Callable[[NodeEntry | None], Shape | None] = float32_shape) -> Window | None:
    """The geometry of a Conv or of a pool of plain values, [N, C, H, W]; None for other ranks, unknown sizes, and what `shape_of`
    does not take."""
    data, output = shape_of(node.inputs[0]), shape_of(node[0])
    if data is None or output is None or len(data) != 4 or 0 in (*data, *output):
        return None
    weight = shape_of(node.inputs[1]) if node.op == "Conv" else None
    taps = weight[2:] if weight is not None else tuple(node.attrs.get("kernel_shape") or ())
    if len(taps) != 2:
        return None
    strides, dilations = (tuple(node.attrs.get(name) or (1, 1)) for name in ("strides", "dilations"))
    before = tuple(node.attrs.get("pads") or (0,) * 4)[:2]
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto in SAME:
        windows = zip(data[2:], taps, strides, dilations)
        before = tuple([same_padding(size, (tap - 1) * gap + 1, step, auto)[0] for size, tap, step, gap in windows])
    elif auto == "VALID":
        before = (0, 0)
    return Window(*map(_pair, (data[2:], output[2:], taps, strides, dilations, before)))


def window_of(node: Node) -> Window:
    """The geometry that an op on blocked values carries."""
    return Window(*(_pair(node.attrs[name]) for name in _FIELDS))


def window_attributes(window: Window) -> dict[str, list[int]]:
    """The geometry as attributes."""
    return {name: list(value) for name, value in zip(_FIELDS, attrs.astuple(window))}


_FIELDS = ("image", "result", "kernel_shape", "strides", "dilations", "pads")


def _pair(values: Sequence[int]) -> Pair:
    first, second = [value if isinstance(value, Extent) else int(value) for value in values]
    return first, second
