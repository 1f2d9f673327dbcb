"""Resizes as each version of ONNX up to 10 writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

import partita as pt
from partita.graph.types import Dim


def resized(version: int, mode: str, factors: Sequence[float], sizes: Sequence[Dim] = (1, 2, 5, 6)) -> pt.Graph:
    """Images enlarged or made smaller by factors for their last dimensions."""
    x, scales = pt.variable("x", "float32", tuple(sizes)), [*[1.0] * (len(sizes) - len(factors)), *factors]
    build = partial(pt.op, "Upsample" if version < 10 else "Resize", x, name="y", opset=version)
    y = build(mode=mode, scales=scales) if version < 9 else build(pt.constant(np.array(scales, np.float32)), mode=mode)
    return pt.Graph([y], opsets={"": version})
