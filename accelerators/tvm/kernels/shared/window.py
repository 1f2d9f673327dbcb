"""The geometry of windows that slide over an image, convolutions and pools, and of transposed convolutions.

In one dimension phase q of a transposed convolution's stride sums the taps q, q + stride, ... of the filter. If the stride does
not divide the filter, the first phases have one tap more than the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.kernels.language import Value, float32, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import Shape
from partita.accelerators.tvm.sizes.extent import Extent, known_least
from partita.accelerators.tvm.sizes.floors import floored, same_padding
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.windows import SAME

Sizes = tuple[int, ...]

MOST_PHASES = 1024
"""Maximum number of phases of a transposed convolution in a kernel: each has output channels and weights of its own."""


@attrs.frozen(slots=True)
class Window:
    """The geometry of one window: a size for each dimension of the image, of which most kernels take two, (down, across)."""

    sizes: Sizes
    """Sizes of the image."""
    out: Sizes
    """Sizes of the result."""
    taps: Sizes
    """Sizes of the window."""
    strides: Sizes
    """Distances in the image between the windows of neighbouring results."""
    dilations: Sizes
    """Distances in the image between neighbouring taps."""
    before: Sizes
    """Padding before the first pixel, as above and to the left."""

    @property
    def pixels(self) -> int:
        """Number of results per channel."""
        return math.prod(self.out)

    @property
    def count(self) -> int:
        """Number of taps."""
        return math.prod(self.taps)

    @property
    def span(self) -> Sizes:
        """Sizes of the part of the image that a window spans."""
        return tuple([(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations)])

    @property
    def is_inside(self) -> bool:
        """True if the padding is never read."""
        return not any(self.before) and all(known_least(self._last(i) - out) >= 0 for i, out in enumerate(self.out))

    @property
    def is_single(self) -> bool:
        """True if each result depends on one pixel of the image, and never on the padding."""
        return self.count == 1 and self.is_inside

    def coordinate(self, pixel: Value, dimension: int) -> Value:
        """The coordinate in a dimension of a result's pixel."""
        behind = math.prod(self.out[dimension + 1 :])
        at = pixel // behind if behind != 1 else pixel
        return at % self.out[dimension] if dimension else at

    @property
    def is_any(self) -> bool:
        """True if a size of the image is dynamic."""
        return any(isinstance(size, Extent) for size in (*self.sizes, *self.out))

    @property
    def share_inside(self) -> float:
        """The fraction of all pairs of a result and a tap that meet the image; 1.0 for dynamic sizes."""
        return 1.0 if self.is_any else math.prod(self._inside(i) / (self.out[i] * self.taps[i]) for i in range(len(self.out)))

    def _inside(self, i: int) -> int:
        """Number of pairs of a result and a tap, in dimension i, that meet the image."""
        firsts = [self.before[i] - tap * self.dilations[i] for tap in range(self.taps[i])]
        steps = self.strides[i]
        ends = [min(-(-(self.sizes[i] + first) // steps), self.out[i]) for first in firsts]
        return sum(max(end - max(-(-first // steps), 0), 0) for first, end in zip(firsts, ends))

    @property
    def is_pointwise(self) -> bool:
        """True if each result depends only on the pixel at its own position."""
        return self.is_single and self.sizes == self.out and self.strides == (1, 1)

    @property
    def is_flat(self) -> bool:
        """True for a pointwise window on an image of one column."""
        return self.is_pointwise and self.out[1] == 1

    @property
    def is_sampled(self) -> bool:
        """True if each result depends on one pixel, and pixels in between are skipped."""
        return self.is_single and self.strides != (1, 1)

    def with_sizes(self, many: int) -> Window:
        """The window with `many` in place of each dynamic size of the image and of the result."""
        sizes, out = (tuple([many if isinstance(size, Extent) else size for size in own]) for own in (self.sizes, self.out))
        return attrs.evolve(self, sizes=sizes, out=out)

    def low(self, i: int) -> int:
        """The first result in dimension i whose window has none of the padding before the image."""
        return min(-(-self.before[i] // self.strides[i]), self.out[i])

    def high(self, i: int) -> int:
        """The first result in dimension i, from `low` on, whose window has padding behind the image."""
        return max(self.low(i), min(self._last(i), self.out[i]))

    def _last(self, i: int) -> int:
        """The number of results in dimension i whose windows have no padding behind the image."""
        return floored(self.sizes[i] + self.before[i] - self.span[i], self.strides[i]) + 1  # type: ignore[return-value]

    def flat(self) -> Window:
        """The same window with all pixels in one column, for pointwise windows."""
        pixels = math.prod(self.sizes)
        return attrs.evolve(self, sizes=(pixels, 1), out=(pixels, 1))


@attrs.frozen(slots=True)
class Convolved:
    """The sizes of a convolution, whatever its element type."""

    batch: int
    window: Window
    channels: int
    """The channels of the image."""
    outs: int
    """The channels of the result."""
    groups: int

    @property
    def inner(self) -> int:
        """The channels of the image per group."""
        return self.channels // self.groups

    @property
    def own(self) -> int:
        """The channels of the result per group."""
        return self.outs // self.groups

    @property
    def depth(self) -> int:
        """Number of products in each sum."""
        return self.inner * self.window.count

    @property
    def is_any(self) -> bool:
        """True if the batch or a size of the image is dynamic."""
        return self.window.is_any or isinstance(self.batch, Extent)

    @property
    def images(self) -> int:
        """The number of images that work is divided for: 1 if it is dynamic."""
        return 1 if isinstance(self.batch, Extent) else self.batch


def is_convolution(node: Node) -> bool:
    """True for ONNX's Conv."""
    return node.op == "Conv" and not node.domain


def make_window(node: Node, shape_of: Callable[[NodeEntry | None], Shape | None]) -> Window | None:
    """The geometry of a Conv or a pool on [N, C, H, W]; None for other ranks, unknown sizes, and values that `shape_of`
    rejects."""
    data, output = shape_of(node.inputs[0]), shape_of(node[0])
    if data is None or output is None or len(data) != 4 or 0 in (*data, *output):
        return None
    weight = shape_of(node.inputs[1]) if node.op == "Conv" else None
    taps = weight[2:] if weight is not None else tuple(node.attrs.get("kernel_shape") or ())
    if len(taps) != 2:
        return None
    strides, dilations, before, _ = placement(node, data[2:], taps)
    return Window(data[2:], output[2:], taps, strides, dilations, before)


def placement(node: Node, sizes: Sequence[int], taps: Sequence[int]) -> tuple[Shape, Shape, Shape, Shape]:
    """The strides and dilations of a convolution or a pool over an image of these spatial sizes, and the padding before and after
    it, with automatic padding resolved."""
    rank, auto = len(sizes), node.attrs.get("auto_pad", "NOTSET")
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    if auto in SAME:
        windows = zip(sizes, taps, strides, dilations)
        around = [same_padding(size, (tap - 1) * gap + 1, step, auto) for size, tap, step, gap in windows]
        return strides, dilations, tuple([before for before, _ in around]), tuple([after for _, after in around])
    pads = tuple((node.attrs.get("pads") if auto != "VALID" else None) or (0,) * 2 * rank)
    return strides, dilations, pads[:rank], pads[rank:]


def flat(positions: Sequence[Value], sizes: Sequence[int]) -> Value:
    """The flat index of the pixel at these positions of an image."""
    total = positions[0]
    for position, size in zip(positions[1:], sizes[1:], strict=True):
        total = total * size + position
    return total


def window_of(node: Node) -> Window:
    """The geometry that an op on blocked values has in its attributes."""
    return Window(*(tuple(node.attrs[name]) for name in _FIELDS))


def window_attributes(window: Window) -> dict[str, list[int]]:
    """The geometry as an op's attributes."""
    return {name: list(value) for name, value in zip(_FIELDS, attrs.astuple(window))}


_FIELDS = ("image", "result", "kernel_shape", "strides", "dilations", "pads")


@attrs.frozen(slots=True)
class Kind:
    """Consecutive phases with the same number of taps."""

    firsts: Sizes
    """The first phase, in each dimension."""
    counts: Sizes
    """Number of phases, in each dimension."""
    taps: Sizes
    """Number of taps of each phase, in each dimension."""

    @property
    def count(self) -> int:
        """Number of phases."""
        return math.prod(self.counts)


def kinds_of(sizes: Sequence[int], strides: Sequence[int]) -> list[Kind]:
    """The kinds of phases of a filter: a single one if the strides divide the sizes."""
    parts = []
    for size, stride in zip(sizes, strides, strict=True):
        few, more = divmod(size, stride)
        parts.append([(0, more, few + 1), (more, stride - more, few)] if more else [(0, stride, few)])
    return [Kind(*zip(*chosen, strict=True)) for chosen in itertools.product(*parts)]


def all_alike(sizes: Sequence[int], strides: Sequence[int]) -> Kind:
    """All phases, each with as many taps as the longest one."""
    taps = [math.ceil(size / stride) for size, stride in zip(sizes, strides, strict=True)]
    return Kind((0,) * len(taps), tuple(strides), tuple(taps))


def have_taps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """True if every phase has a tap."""
    return all(size >= stride for size, stride in zip(sizes, strides, strict=True))


def has_few_phases(strides: Sequence[int]) -> bool:
    """True if there are few enough phases for each to have output channels of its own."""
    return math.prod(strides) <= MOST_PHASES


def is_cropped_as_told(node: Node) -> bool:
    """True for a transposed convolution with explicit pads, or none, and no `output_shape`."""
    return node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not node.attrs.get("output_shape")


@attrs.frozen(slots=True, eq=False)
class Between:
    """A position of the result between two pixels of the image, which are the same at the border."""

    pixels: tuple[Value, Value]
    beyond: Value
    """Distance from the first pixel, in steps of 1/`parts`."""
    parts: int
    """Number of steps from the first pixel to the second."""

    @property
    def shares(self) -> tuple[Value, Value]:
        """Weights of both pixels, as the nearest float32; at the border the first has all."""
        is_same, beyond = self.pixels[0].equals(self.pixels[1]), self.beyond.cast(float32)
        parts = float(self.parts)
        return select(is_same, 1.0, (parts - beyond) / parts), select(is_same, 0.0, beyond / parts)


def between(position: Value, times: int, size: int, is_centred: bool) -> Between:
    """A position's pixels in one dimension of `size` pixels, enlarged `times`; positions count from pixel centres or edges."""
    numerator, parts = (position * 2 + (1 - times), 2 * times) if is_centred else (position, times)
    first = numerator // parts
    before, after = (minimum(maximum(first + i, 0), as_index(size) - 1) for i in (0, 1))
    return Between((before, after), numerator % parts, parts)
