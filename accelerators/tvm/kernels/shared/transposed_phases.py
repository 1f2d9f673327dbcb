"""The phases of a transposed convolution's stride, grouped by their number of taps.

In one dimension phase q sums the taps q, q + stride, ... of the filter. If the stride does not divide the filter, the first
phases have one tap more than the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs

Sizes = tuple[int, ...]


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
