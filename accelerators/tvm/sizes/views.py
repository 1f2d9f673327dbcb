"""Strided views of a tensor whose sizes are extents.

numpy does this for static sizes (`kernels/shared/strides.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Size


@attrs.frozen(slots=True)
class SizedView:
    """The sizes, strides and offset of a view of a flat buffer."""

    shape: tuple[Size, ...]
    """The sizes."""
    steps: tuple[Size, ...]
    """The stride of each dimension in elements; 0 for a broadcast dimension."""
    offset: Size = 0
    """Position of the first element."""

    @classmethod
    def whole(cls, shape: Sequence[Size]) -> SizedView:
        """A contiguous tensor of this shape."""
        return cls(tuple(shape), tuple([math.prod(shape[d + 1 :]) for d in range(len(shape))]))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def transpose(self, order: Sequence[int]) -> SizedView:
        """The dimensions in this order."""
        return SizedView(tuple([self.shape[d] for d in order]), tuple([self.steps[d] for d in order]), self.offset)

    def broadcast(self, shape: Sequence[Size]) -> SizedView:
        """The view broadcast along dimensions of size 1 and new leading ones."""
        more = len(shape) - self.ndim
        own = (1,) * more + self.shape
        if any(size not in (1, wanted) for size, wanted in zip(own, shape, strict=True)):
            raise CompileError(f"{list(self.shape)} is not broadcast to {list(shape)} at any size")
        steps = (0,) * more + self.steps
        return SizedView(tuple(shape), tuple([0 if size == 1 else step for size, step in zip(own, steps)]), self.offset)

    def part(self, axis: int, first: Size, count: Size) -> SizedView:
        """`count` consecutive positions along a dimension, from `first` on."""
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        return SizedView(shape, self.steps, self.offset + first * self.steps[axis])

    def every(self, axis: int, step: int, count: Size) -> SizedView:
        """`count` positions along a dimension from its first one on, `step` apart."""
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        return SizedView(shape, (*self.steps[:axis], self.steps[axis] * step, *self.steps[axis + 1 :]), self.offset)

    def one(self, axis: int, index: Size) -> SizedView:
        """The view at one index of a dimension, which is removed."""
        at = self.part(axis, index, 1)
        return SizedView(at.shape[:axis] + at.shape[axis + 1 :], at.steps[:axis] + at.steps[axis + 1 :], at.offset)

    def reshape(self, shape: Sequence[Size]) -> SizedView | None:
        """The same elements under another shape; None if that is not a view, or not for every size.

        Both shapes are split into groups of equal products; the old dimensions of each group have to merge into one with a single
        stride."""
        steps: list[Size] = []
        old, new, i = self.shape, list(shape), 0
        j = 0
        while i < len(old) or j < len(new):
            left: list[int] = []
            right: list[int] = []
            while True:
                have, want = math.prod(old[d] for d in left), math.prod(new[d] for d in right)
                if have == want and (left or right):
                    break
                grows_left = _is_less(have, want) if left and right else not left
                if (grows_left or j == len(new)) and i < len(old):
                    left.append(i)
                    i += 1
                elif j < len(new):
                    right.append(j)
                    j += 1
                else:
                    return None
            apart = self._apart(left)
            if apart is None:
                return None
            steps += [apart * math.prod(new[k] for k in right[number + 1 :]) for number, _ in enumerate(right)]
        return SizedView(tuple(shape), tuple(steps), self.offset)

    def _apart(self, group: Sequence[int]) -> Size | None:
        """The stride of a group of dimensions seen as one; None if it has none."""
        real = [d for d in group if self.shape[d] != 1]
        for outer, inner in pairwise(real):
            if self.steps[outer] != self.shape[inner] * self.steps[inner]:
                return None
        return self.steps[real[-1]] if real else 0


def _is_less(a: Size, b: Size) -> bool:
    """True if `a` has to grow for both products to become equal: it is less or, for extents, divides `b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return isinstance(b, Extent) and b.divided(a) is not None
