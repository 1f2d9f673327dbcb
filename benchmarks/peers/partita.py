"""Partita: the device `cpu`; on a GPU `cuda`, or an export of it that lies beside the ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """Compile it, or take it from Partita's own cache."""
    import partita as pt

    exported = Path(path).with_suffix(".partita")
    if threads:
        compiled = pt.compile(pt.load(path), "cpu", {"NUM_THREADS": threads})
    elif exported.exists():
        compiled = pt.import_model(exported)
    else:
        compiled = pt.compile(pt.load(path), "cuda")
    return lambda inputs: list(compiled(dict(inputs)))
