"""Positions of the pixels of an image enlarged by integer factors, between the pixels of the original, in one dimension."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import Value, float32, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import as_index


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
