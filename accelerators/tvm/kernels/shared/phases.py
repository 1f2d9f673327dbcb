"""The phases of a transposed convolution's stride, by the number of taps that each has.

Phase q of a dimension sums the taps q, q + stride, ... of the filter. Where the stride does not divide the filter, the first
phases have one more than the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs

Sizes = tuple[int, ...]


@attrs.frozen(slots=True)
class Kind:
    """Phases beside each other that are computed with as many taps as each other."""

    firsts: Sizes
    """The first of them, in each dimension."""
    counts: Sizes
    """How many they are, in each dimension."""
    taps: Sizes
    """The taps of each of them."""

    @property
    def count(self) -> int:
        """How many they are."""
        return math.prod(self.counts)


def kinds_of(sizes: Sequence[int], strides: Sequence[int]) -> list[Kind]:
    """The phases of a filter of these sizes by their taps: of one kind where the strides divide the sizes."""
    parts = []
    for size, stride in zip(sizes, strides, strict=True):
        few, more = divmod(size, stride)
        parts.append([(0, more, few + 1), (more, stride - more, few)] if more else [(0, stride, few)])
    return [Kind(*zip(*chosen, strict=True)) for chosen in itertools.product(*parts)]


def all_alike(sizes: Sequence[int], strides: Sequence[int]) -> Kind:
    """All phases with as many taps as those that have most."""
    taps = [math.ceil(size / stride) for size, stride in zip(sizes, strides, strict=True)]
    return Kind((0,) * len(taps), tuple(strides), tuple(taps))


def have_taps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Has every phase a tap?"""
    return all(size >= stride for size, stride in zip(sizes, strides, strict=True))
