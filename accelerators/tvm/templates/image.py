"""The geometry of a convolution, and the padded copy of its input.

Each dimension of the copy is dealt out into phases: position i of phase q is place i·stride + q of the padded image. A
tap of the filter then reads, for the output at position i, position i + a constant of one phase."""

from __future__ import annotations

import itertools
import math

import attrs

from accelerators.tvm.templates.epilogue import static_shape
from accelerators.tvm.templates.script import Lines, indent, loop
from graph.node import Node

Sizes = tuple[int, ...]

SERIAL = 65_536
"""The copy of fewer numbers than this is one thread's work."""


@attrs.frozen(slots=True)
class Image:
    """What a convolution reads and where."""

    batch: int
    """How many images."""
    channels: int
    """Channels of the input."""
    groups: int
    """Groups of channels that do not meet."""
    outs: int
    """Channels of the output."""
    sizes: Sizes
    """The input's spatial sizes."""
    filter: Sizes
    """The filter's."""
    strides: Sizes
    """How far apart neighbouring outputs read."""
    dilations: Sizes
    """How far apart neighbouring taps read."""
    before: Sizes
    """The padding before the first place."""
    out: Sizes
    """The output's spatial sizes."""

    @property
    def places(self) -> int:
        """Places of one output channel."""
        return math.prod(self.out)

    @property
    def taps(self) -> int:
        """Taps of the filter."""
        return math.prod(self.filter)

    @property
    def depth(self) -> int:
        """Products in each sum."""
        return self.channels // self.groups * self.taps

    @property
    def is_pointwise(self) -> bool:
        """Does each output read one place of the image, and never the padding?"""
        inside = all((o - 1) * s < n for o, s, n in zip(self.out, self.strides, self.sizes))
        return self.taps == 1 and not any(self.before) and inside

    # -- the copy ------------------------------------------------------------------------------------------

    @property
    def phases(self) -> Sizes:
        """By dimension, how many phases the taps read."""
        return tuple(
            max(t * d % s for t in range(k)) + 1 for k, d, s in zip(self.filter, self.dilations, self.strides)
        )

    @property
    def copied(self) -> Sizes:
        """By dimension, the positions of a phase."""
        return tuple(
            o + (k - 1) * d // s for o, k, d, s in zip(self.out, self.filter, self.dilations, self.strides)
        )

    @property
    def steps(self) -> Sizes:
        """By dimension, how far apart neighbouring positions stand in the copy."""
        return tuple(math.prod(self.copied[i + 1 :]) for i in range(len(self.copied)))

    @property
    def plane(self) -> int:
        """Numbers of one channel of the copy."""
        return math.prod(self.phases) * math.prod(self.copied)

    def tap(self, indices: list[str]) -> str:
        """Text of how far from the output's own position a tap reads."""
        phase, offset = "0", "0"
        for t, d, s, count, step in zip(indices, self.dilations, self.strides, self.phases, self.steps):
            phase = f"({phase}) * {count} + {t} * {d} % {s}"
            offset = f"{offset} + {t} * {d} // {s} * {step}"
        return f"({phase}) * {math.prod(self.copied)} + {offset}"

    def copy(self, source: str) -> Lines:
        """Lines that fill the copy `image` from the source [batch, channels, places]."""
        outer = range(len(self.sizes) - 1)
        lines: Lines = []
        for phases in itertools.product(*map(range, self.phases)):
            start = f"(channel * {math.prod(self.phases)} + {_flat(phases, self.phases)}) * {math.prod(self.copied)}"
            start += "".join(f" + p{i} * {self.steps[i]}" for i in outer)
            places = [f"(p{i} * {self.strides[i]} + {phases[i] - self.before[i]})" for i in outer]
            row = self._row(source, start, places, phases[-1])
            for i in reversed(outer[1:]):
                row = loop(f"p{i}", self.copied[i], row)
            lines += row
        first = self.copied[0] if outer else 1
        count = self.batch * self.channels * first
        decoded = [
            f"channel: T.int32 = part // {first}",
            *([f"p0: T.int32 = part % {first}"] if outer else []),
        ]
        kind = "parallel" if self.batch * self.channels * self.plane >= SERIAL else "serial"
        return loop("part", count, [*decoded, *lines], kind)

    def _row(self, source: str, start: str, places: list[str], phase: int) -> Lines:
        """One row of one phase: zeros, numbers, zeros."""
        size, stride, width, shift = (
            self.sizes[-1],
            self.strides[-1],
            self.copied[-1],
            phase - self.before[-1],
        )
        low = min(max(math.ceil(-shift / stride), 0), width)
        high = max(min(math.ceil((size - shift) / stride), width), low)
        row = "0"
        for place, extent in zip(places, self.sizes):
            row = f"({row}) * {extent} + {place}"
        read = f"({row}) * {size} + e * {stride} + {low * stride + shift}"
        number = f"{source}[channel // {self.channels}, channel % {self.channels}, {read}]"
        inside = [
            *_fill(start, low),
            *loop("e", high - low, [f"image[{start} + {low} + e] = {number}"]),
            *_fill(f"{start} + {high}", width - high),
        ]
        tests = [f"{place} >= 0 and {place} < {extent}" for place, extent in zip(places, self.sizes)]
        if not tests:
            return inside
        return [f"if {' and '.join(tests)}:", *indent(inside), "else:", *indent(_fill(start, width))]


def _fill(start: str, count: int) -> Lines:
    return loop("z", count, [f"image[{start} + z] = T.float32(0.0)"]) if count else []


def _flat(indices: Sizes, sizes: Sizes) -> int:
    made = 0
    for index, size in zip(indices, sizes):
        made = made * size + index
    return made


def make_image(node: Node) -> Image | None:
    """The geometry of a Conv; None where a size is not known or nothing is there."""
    data, weight, made = (static_shape(entry) for entry in (node.inputs[0], node.inputs[1], node[0]))
    if data is None or weight is None or made is None or len(data) < 3 or 0 in (*data, *weight, *made):
        return None
    rank, attributes = len(data) - 2, node.attrs
    sizes, taps, out = data[2:], weight[2:], made[2:]
    strides = tuple(attributes.get("strides") or (1,) * rank)
    dilations = tuple(attributes.get("dilations") or (1,) * rank)
    before = tuple(attributes.get("pads") or (0,) * rank)[:rank]
    auto = attributes.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        spans = zip(out, strides, taps, dilations, sizes)
        total = [max((o - 1) * s + (k - 1) * d + 1 - n, 0) for o, s, k, d, n in spans]
        before = tuple((t + (auto == "SAME_LOWER")) // 2 for t in total)
    elif auto == "VALID":
        before = (0,) * rank
    return Image(
        data[0], data[1], attributes.get("group", 1), weight[0], sizes, taps, strides, dilations, before, out
    )
