"""Where the pixels of an image that is enlarged by whole factors lie between those of the image, in one dimension."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import Value, float32, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import as_index


@attrs.frozen(slots=True, eq=False)
class Between:
    """A position of the result, and the two pixels that it lies between. At the border both are the same one."""

    pixels: tuple[Value, Value]
    beyond: Value
    """How far it is beyond the first, counted in parts;"""
    parts: int
    """so many of them lead to the second."""

    @property
    def shares(self) -> tuple[Value, Value]:
        """The shares of both pixels as nearest float32 numbers; at the border it is all of the first one."""
        is_same, beyond = self.pixels[0].equals(self.pixels[1]), self.beyond.cast(float32)
        parts = float(self.parts)
        return select(is_same, 1.0, (parts - beyond) / parts), select(is_same, 0.0, beyond / parts)


def between(position: Value, times: int, size: int, is_centred: bool) -> Between:
    """Of a dimension of so many pixels, each of which becomes so many; positions are counted from the middle of pixels, or from
    where they begin."""
    numerator, parts = (position * 2 + (1 - times), 2 * times) if is_centred else (position, times)
    first = numerator // parts
    before, after = (minimum(maximum(first + i, 0), as_index(size) - 1) for i in (0, 1))
    return Between((before, after), numerator % parts, parts)
