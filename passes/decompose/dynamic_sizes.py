"""Bodies of ops of dynamic sizes: the same ops applied to vectors of positions compute the positions that are read, and the
values are gathered. The host computes such vectors once for each size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.types import HALVES

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Number of positions that a result of a resize reads along a dimension, by mode."""


def slice_by_gathers(b: BodyBuilder, spans: Iterable[tuple[int, int, int]]) -> Graph:
    """Slice as a Gather for each span (index in the starts and ends, axis, step)."""
    y = b.input(0)
    for slot, axis, step in spans:
        count = b.Squeeze(b.Shape(y, start=axis, end=axis + 1), [0])
        ends = [b.Gather(b.input(border), [slot]) for border in (1, 2)]
        first, last = (b.Cast(end, to="int64") for end in ends)
        y = b.Gather(y, b.Slice(b.Range(0, count, 1), first, last, [0], [step]), axis=axis)
    return b.done(y)


def pad_by_gathers(b: BodyBuilder, amounts: Mapping[int, tuple[int, int]]) -> Graph:
    """Pad as a Gather for each padded axis; `amounts` are the indices of its amounts in the pads. Positions count from 1, so that
    0 marks padding."""
    y, rank, mode = b.input(0), b.rank(0), str(b.attr("mode", "constant"))
    for axis, ends in amounts.items():
        end = b.Squeeze(b.Shape(y, start=axis, end=axis + 1), [0])
        read = b.Pad(b.Range(1, b.Add(end, 1), 1), b.Gather(b.input(1), list(ends)), mode=mode)
        y = b.Gather(y, b.Max(b.Sub(read, 1), 0), axis=axis)
        if mode == "constant":
            inside = b.Reshape(b.Greater(read, 0), [-1, *[1] * (rank - 1 - axis)])
            y = b.Where(inside, y, b.input(2) if b.has(2) else b.like(0, 0))
    return b.done(y)


def tile_by_expand(b: BodyBuilder) -> Graph:
    """Tile as an Expand: each dimension is repeated along a new dimension before it, and merged with that."""
    x, counts, rank = b.input(0), b.input(1), b.rank(0)
    sizes = b.Shape(x)
    spread = b.Gather(b.Concat(counts, sizes, axis=0), [place for d in range(rank) for place in (d, rank + d)])
    apart = b.Unsqueeze(x, [2 * d for d in range(rank)])
    return b.done(b.Reshape(b.Expand(apart, spread), b.Mul(counts, sizes)))


def vector_product(b: BodyBuilder) -> Graph:
    """MatMul by a vector, which becomes a row or a column whose dimension is removed after the product."""
    is_vector = [b.rank(i) == 1 for i in (0, 1)]
    matrices = [b.Unsqueeze(b.input(i), [i]) if is_vector[i] else b.input(i) for i in (0, 1)]
    gone = [axis for axis, alone in zip((-2, -1), is_vector, strict=True) if alone]
    return b.done(b.Squeeze(b.MatMul(*matrices), gone))


def volumes_as_images(b: BodyBuilder) -> Graph:
    """Conv of volumes as a Conv of images: the slices that a result reads are concatenated as channels. There is one image for
    each slice of the result; a filter of three slices becomes one of three times as many channels."""
    x, array = b.input(0), b.value(1)
    outs, channels, taps, *window = array.shape
    steps, apart = (list(b.node.attrs.get(name) or [1, 1, 1]) for name in ("strides", "dilations"))
    pads = list(b.node.attrs.get("pads") or [0] * 6)
    framed = x if not (pads[0] or pads[3]) else b.Pad(x, [0, 0, pads[0], 0, 0, 0, 0, pads[3], 0, 0])
    room = b.Sub(b.Shape(framed, start=2, end=3), [(taps - 1) * apart[0] + 1])
    down = b.Add(b.Div(room, [steps[0]]), [1])
    first = b.Mul(b.Range(0, b.Squeeze(down, [0]), 1), steps[0])
    read = [b.Gather(framed, b.Add(first, t * apart[0]), axis=2) for t in range(taps)]
    joined = b.Concat(*read, axis=1) if taps > 1 else read[0]
    shape = b.Concat([-1, taps * channels], b.Shape(x, start=3, end=5), axis=0)
    images = b.Reshape(b.Transpose(joined, perm=[0, 2, 1, 3, 4]), shape)
    filters = np.ascontiguousarray(array.swapaxes(1, 2)).reshape(outs, taps * channels, *window)
    attributes = {"strides": steps[1:], "dilations": apart[1:], "pads": [*pads[1:3], *pads[4:]], "kernel_shape": window}
    y = b.Conv(images, filters, *([b.value(2)] if b.has(2) else []), **attributes)
    volumes = b.Concat(b.Shape(x, start=0, end=1), down, [outs], b.Shape(y, start=2, end=4), axis=0)
    return b.done(b.Transpose(b.Reshape(y, volumes), perm=[0, 2, 1, 3, 4]))


# -- resizes ---------------------------------------------------------------------------------------------


def resize_by_gathers(b: BodyBuilder, axes: Sequence[int]) -> Graph:
    """A resize along these axes. In every mode it is linear in the elements of each dimension: a result is a weighted sum of few
    positions, and ONNX's own op, applied to a few vectors, yields the positions and shares."""
    x, rank, dtype = b.input(0), b.rank(0), b.type(0).dtype
    y, taps = x, TAPS[str(b.attr("mode", "nearest"))]
    for axis in axes:
        positions, shares = _taps(b, _resized_combs(b, axis, taps), axis, taps)
        y = _mixed(b, y, positions, shares, axis, rank, taps, dtype in HALVES and y is x)
    return b.done(b.Cast(y, to=dtype) if taps > 1 and dtype in HALVES else y)


def _resized_combs(b: BodyBuilder, axis: int, taps: int) -> NodeEntry:
    """[results, 2 * taps] of one dimension: the resize of `taps` combs, each with a 1 at every `taps`-th position, and of the
    same combs with the position in place of the 1. The taps of a result are neighbours, so that each of them meets a different
    comb."""
    count = b.Gather(b.Shape(b.input(0)), axis)
    numbers = b.Reshape(b.Range(0, count, 1), [-1, 1])
    combs = b.Cast(b.Equal(b.Mod(numbers, [taps]), list(range(taps))), to="float32")
    both = b.Concat(combs, b.Mul(combs, b.Cast(numbers, to="float32")), axis=1)
    if b.has(3) and np.size(b.values[3]):  # Older files have empty sizes beside scales.
        sizes = b.Concat(b.Gather(b.input(3), [axis]), [2 * taps], axis=0)
        return b.Resize(both, None, None, sizes, **b.node.attrs)
    scales = b.value(2)
    return b.Resize(both, None, np.array([scales[axis], 1], scales.dtype), **b.node.attrs)


def _taps(b: BodyBuilder, resized: NodeEntry, axis: int, taps: int) -> tuple[NodeEntry, NodeEntry]:
    """The positions that each result reads, and their shares, both [results, taps]. A position without a share is replaced by one
    that has a share, and so is inside the image."""
    zero = b.constant(0, np.float32)
    shares, sums = (b.Slice(resized, [i * taps], [(i + 1) * taps], [1]) for i in (0, 1))
    is_none = b.Equal(shares, zero)
    quotient = b.Div(sums, b.Where(is_none, np.float32(1), shares))
    last = b.Sub(b.Gather(b.Shape(b.input(0)), [axis]), [1])
    inside = b.Max(b.Min(b.Round(quotient), b.Cast(last, to="float32")), zero)
    nearby = b.Where(is_none, b.along("ReduceMax", inside, [1]), inside)
    positions = b.Cast(nearby, to="int64")
    if taps != 2:
        return positions, shares
    # Half a value twice is the value, even if it is infinite; a share of 0 would make it NaN.
    is_one = b.Equal(b.along("ReduceMin", b.Abs(shares), [1]), zero)
    half = b.Mul(b.along("ReduceSum", shares, [1]), np.float32(0.5))
    return positions, b.Where(is_one, half, shares)


def _mixed(
    b: BodyBuilder, y: NodeEntry, positions: NodeEntry, shares: NodeEntry, axis: int, rank: int, taps: int, is_narrow: bool
) -> NodeEntry:
    """The weighted sum of the value's positions along a dimension."""
    total: NodeEntry | None = None
    for tap in range(taps):
        part = b.Gather(y, b.Gather(positions, tap, axis=1), axis=axis)
        if taps > 1:
            part = b.Cast(part, to="float32") if is_narrow else part
            share = b.Reshape(b.Gather(shares, tap, axis=1), [-1, *[1] * (rank - 1 - axis)])
            part = b.Mul(part, share)
        total = part if total is None else b.Add(total, part)
    assert total is not None
    return total
