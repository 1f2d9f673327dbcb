"""Sliding windows over the spatial axes: the geometry of convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

SAME = frozenset(("SAME_UPPER", "SAME_LOWER"))
"""The values of auto_pad that keep the sizes."""


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel with its strides, dilations and padding, one value per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """Padding at the low end of each axis."""
    after: tuple[int, ...]
    """Padding at the high end, as in the node."""
    outputs: tuple[int, ...]
    """Number of windows along each axis."""

    def pad(self, x: np.ndarray, value: float) -> np.ndarray:
        """``x`` padded; in ceil mode the last window may need more than the node's padding."""
        widths = []
        for i, size in enumerate(x.shape[2:]):
            reach = max(0, self.outputs[i] - 1) * self.strides[i] + extent(self.kernel[i], self.dilations[i])
            widths.append((self.before[i], max(self.after[i], reach - size - self.before[i])))
        if not np.any(widths):
            return x
        return np.pad(x, [(0, 0), (0, 0), *widths], constant_values=np.asarray(value, x.dtype))

    def taps(self, padded: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Per kernel position the pixels of all windows there: a strided view of shape (N, C, *outputs)."""
        for tap in np.ndindex(*self.kernel):
            slices = [
                slice(t * d, t * d + extent(o, s), s)
                for t, d, o, s in zip(tap, self.dilations, self.outputs, self.strides)
            ]
            yield tap, padded[(slice(None), slice(None), *slices)]

    def view(self, padded: np.ndarray) -> np.ndarray:
        """All windows without a copy: (N, C, *outputs, *kernel)."""
        n = len(self.kernel)
        spans = [extent(k, d) for k, d in zip(self.kernel, self.dilations)]
        windows = sliding_window_view(padded, spans, axis=tuple(range(2, 2 + n)))
        starts = [slice(0, extent(o, s), s) for o, s in zip(self.outputs, self.strides)]
        taps = [slice(None, None, d) for d in self.dilations]
        return windows[(slice(None), slice(None), *starts, *taps)]


def extent(kernel: int, dilation: int) -> int:
    """Number of positions that a dilated kernel spans."""
    return (kernel - 1) * dilation + 1 if kernel else 0


def window(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None,
    pads: Sequence[int] | None, auto_pad: str, ceil_mode: int = 0,
) -> Window:
    """The window of a node over spatial ``sizes``, with ONNX's defaults and automatic padding resolved."""
    n = len(kernel)
    strides = tuple(strides or (1,) * n)
    dilations = tuple(dilations or (1,) * n)
    spans = [extent(k, d) for k, d in zip(kernel, dilations)]
    before, after = _padding(sizes, spans, strides, pads, auto_pad)
    room = [size + b + a - span for size, b, a, span in zip(sizes, before, after, spans)]
    if auto_pad in SAME:
        outputs = [-(-size // s) for size, s in zip(sizes, strides)]
    elif ceil_mode and auto_pad == "NOTSET":
        outputs = [-(-r // s) + 1 for r, s in zip(room, strides)]
        # Windows that would start in the padding behind the data are dropped.
        outputs = [o - 1 if (o - 1) * s >= size + b else o for o, s, size, b in zip(outputs, strides, sizes, before)]
    else:
        # A kernel larger than the data has one window if it exceeds the data by less than a stride.
        outputs = [int(r / s) + 1 for r, s in zip(room, strides)]
    return Window(tuple(kernel), strides, dilations, before, after, tuple(max(o, 0) for o in outputs))


def _padding(
    sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int], pads: Sequence[int] | None, auto_pad: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = len(spans)
    if auto_pad == "VALID":
        return (0,) * n, (0,) * n
    if auto_pad in SAME:
        totals = [max(0, (-(-size // s) - 1) * s + span - size) for size, span, s in zip(sizes, spans, strides)]
        return split_padding(totals, auto_pad)
    pads = pads or (0,) * (2 * n)
    return tuple(pads[:n]), tuple(pads[n:])


def split_padding(totals: Sequence[int], auto_pad: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Halves each total; an odd element goes to the end for SAME_UPPER, to the beginning for SAME_LOWER."""
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (large, small) if auto_pad == "SAME_LOWER" else (small, large)


def overlaid(parts: np.ndarray, strides: Sequence[int], dilations: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Adds windows (N, C, *kernel, *positions) at their offsets: the transpose of taking windows."""
    n = len(sizes)
    kernel, positions = parts.shape[2 : 2 + n], parts.shape[2 + n :]
    y = np.zeros((*parts.shape[:2], *sizes), parts.dtype)
    for tap in np.ndindex(*kernel):
        slices = [
            slice(t * d, t * d + extent(p, s), s)
            for t, d, p, s in zip(tap, dilations, positions, strides, strict=True)
        ]
        y[(slice(None), slice(None), *slices)] += parts[(slice(None), slice(None), *tap)]
    return y
