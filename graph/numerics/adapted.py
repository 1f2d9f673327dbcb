"""Old opsets of ops whose newer opset ONNX's own implementation has right."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import fallback
from .registry import numerics


@numerics("RoiAlign", until=15)
def roi_align(x: np.ndarray, rois: np.ndarray, images: np.ndarray, **attrs: Any) -> Any:
    """Below opset 16 the half-pixel shift did not exist."""
    attrs["coordinate_transformation_mode"] = "output_half_pixel"
    return fallback.run("RoiAlign", [x, rois, images], attrs, "", 16, 1)


@numerics("GridSample", until=19)
def grid_sample(x: np.ndarray, grid: np.ndarray, *, mode: str, **attrs: Any) -> Any:
    """Below opset 20 the modes were called bilinear and bicubic."""
    attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return fallback.run("GridSample", [x, grid], attrs, "", 20, 1)
