"""Partita's `opencl`, on whatever driver the machine has, if need be one for the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """Compile it, or take it from Partita's own cache. How many threads there are is the driver's affair."""
    import partita as pt

    compiled = pt.compile(pt.load(path), "opencl")
    return lambda inputs: list(compiled(dict(inputs)))
