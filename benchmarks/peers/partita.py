"""Partita: the device `cpu`, or `cuda`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """Compile it, or take it from Partita's own cache."""
    import partita as pt

    made = pt.compile(pt.load(path), "cpu", {"NUM_THREADS": threads}) if threads else pt.compile(pt.load(path), "cuda")
    return lambda inputs: list(made(dict(inputs)))
