"""Convolution, pooling, resizing."""

from __future__ import annotations

import numpy as np

from tests.numerics.case import Case, f32, i64, restart, u8

restart()
X = f32(2, 4, 7, 6)
ROIS = np.array([[0, 0, 5, 6], [1, 2, 4, 4]], np.float32)
WINDOWED = [
    Case("Conv", [f32(1, 0, 5, 4), f32(2, 0, 3, 3), f32(2)]),
    Case("Conv", [f32(0, 2, 5, 4), f32(2, 2, 3, 3), f32(2)], {"strides": [2, 3]}),
    Case("Conv", [f32(1, 2, 0, 4), f32(2, 2, 3, 3)], {"pads": [2, 1, 2, 1]}),
    Case("ConvTranspose", [f32(0, 2, 5, 4), f32(2, 3, 3, 3)], {"strides": [3, 3]}),
    Case(
        "Conv", [X, f32(6, 4, 3, 2), f32(6)], {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [2, 1]}
    ),
    Case("Conv", [X, f32(8, 2, 3, 3)], {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case("Conv", [X, f32(8, 1, 2, 3)], {"group": 4, "auto_pad": "SAME_UPPER"}),
    Case("Conv", [f32(1, 3, 11), f32(2, 3, 3)], {"auto_pad": "VALID"}),
    Case("Conv", [f32(1, 2, 5, 6, 7), f32(3, 2, 2, 3, 2)], {"pads": [1, 0, 1, 0, 1, 1]}),
    Case("ConvTranspose", [X, f32(4, 3, 3, 2), f32(3)], {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
    Case(
        "ConvTranspose",
        [X, f32(4, 3, 3, 3)],
        {"group": 2, "dilations": [2, 1], "output_padding": [1, 0], "strides": [2, 1]},
    ),
    Case("ConvTranspose", [X, f32(4, 3, 3, 3)], {"output_shape": [15, 13], "strides": [2, 2]}),
    Case("ConvTranspose", [X, f32(4, 3, 4, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("ConvTranspose", [X, f32(4, 3, 4, 4)], {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    Case("ConvTranspose", [f32(1, 2, 5), f32(2, 3, 4)], {"auto_pad": "VALID", "strides": [2]}),
    Case("ConvInteger", [u8(1, 2, 5, 5), u8(3, 2, 3, 3), np.uint8(7), np.uint8(3)], {"pads": [1, 1, 1, 1]}),
    Case("MaxPool", [X], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Case("MaxPool", [X], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case(
        "MaxPool",
        [X],
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "dilations": [2, 1]},
        since=10,
    ),
    Case(
        "MaxPool",
        [X],
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
        since=10,
    ),
    Case("MaxPool", [X], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}, since=8, outputs=2),
    Case("MaxPool", [X], {"kernel_shape": [3, 2], "storage_order": 1}, since=8, outputs=2),
    Case("MaxPool", [u8(1, 2, 6, 6)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, since=12),
    Case("AveragePool", [X], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Case("AveragePool", [X], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", [X], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case(
        "AveragePool",
        [X],
        {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2], "pads": [0, 1, 0, 1]},
        since=10,
    ),
    Case(
        "AveragePool",
        [X],
        {
            "kernel_shape": [2, 2],
            "ceil_mode": 1,
            "strides": [2, 2],
            "pads": [1, 1, 1, 1],
            "count_include_pad": 1,
        },
        since=19,
    ),
    Case("AveragePool", [X], {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}, since=19),
    Case("LpPool", [X], {"kernel_shape": [3, 2], "p": 3, "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    Case("LpPool", [X], {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2]}, since=18),
    *(Case(op, [X]) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    Case("GlobalLpPool", [X], {"p": 3}),
    Case(
        "MaxRoiPool", [X, np.array([[0, 0, 0, 5, 6], [1, 1, 2, 4, 4]], np.float32)], {"pooled_shape": [3, 2]}
    ),
    Case(
        "MaxRoiPool",
        [X, np.array([[0, 1, 3, 9, 9]], np.float32)],
        {"pooled_shape": [2, 2], "spatial_scale": 0.5},
    ),
    Case(
        "MaxUnpool",
        [f32(1, 1, 2, 2), i64(5, 7, 13, 15).reshape(1, 1, 2, 2)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Case("RoiAlign", [X, ROIS, i64(0, 1)], {"output_height": 3, "output_width": 2}),
    Case("RoiAlign", [X, ROIS, i64(0, 1)], {"output_height": 2, "mode": "max", "sampling_ratio": 2}),
    Case("LRN", [X], {"size": 3, "alpha": 0.3, "bias": 2.0, "beta": 0.6}),
    Case("RoiAlign", [X, ROIS, i64(0, 1)], {"output_height": 3, "output_width": 2, "spatial_scale": 0.7}),
    Case(
        "RoiAlign", [X, ROIS * 2 - 3, i64(0, 1)], {"output_height": 3, "output_width": 2, "sampling_ratio": 3}
    ),
    Case(
        "Col2Im",
        [f32(2, 24, 12), i64(7, 6), i64(3, 2)],
        {"strides": [2, 2], "pads": [1, 0, 1, 1], "dilations": [1, 1]},
    ),
    Case(
        "DeformConv",
        [f32(2, 4, 6, 5), f32(6, 2, 3, 2), f32(2, 24, 3, 4), f32(6), f32(2, 12, 3, 4)],
        {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0]},
    ),
    Case("Col2Im", [f32(1, 5, 5), i64(5, 5), i64(1, 5)]),
]
# With aligned corners onnxruntime measures with the rounded length, ONNX's own tests with scale * length.
MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric")
SCALES = np.array([1, 1, 1.6, 2], np.float32)
DOWN = np.array([1, 1, 0.6, 0.5], np.float32)
PLACES = f32(2, 3, 5, 2) * 0.8
RESIZE = [
    *(Case("Upsample", [X], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": mode}, until=8) for mode in ("nearest", "linear")),
    *(Case("Upsample", [X, np.array([1, 1, 2, 1.5], np.float32)], {"mode": mode}, since=9, until=9)
      for mode in ("nearest", "linear")),
    *(Case("Resize", [X, s], {"mode": mode}, since=10, until=10) for s in (SCALES, DOWN) for mode in ("nearest", "linear")),
    *(Case("Resize", [X, np.zeros(0, np.float32), s], {"mode": mode, "coordinate_transformation_mode": c}, since=11)
      for s in (SCALES, DOWN) for mode in ("linear", "cubic") for c in MODES),
    *(Case("Resize", [X, np.zeros(0, np.float32), s], {"nearest_mode": n, "coordinate_transformation_mode": c}, since=11)
      for s in (SCALES, DOWN) for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") for c in MODES),
    Case("Resize", [X, np.zeros(0, np.float32), None, i64(2, 4, 10, 3)], {"mode": "linear"}, since=13),
    *(Case("Resize", [X, np.zeros(0, np.float32), np.array([1, 1, 2, 0.5], np.float32)],
           {"mode": mode, "coordinate_transformation_mode": "align_corners"}, since=11)
      for mode in ("nearest", "linear", "cubic")),
    Case("Resize", [X, None, None, i64(10, 3)], {"mode": "cubic", "axes": [2, 3]}, since=18),
    Case("Resize", [X, None, DOWN], {"mode": "linear", "antialias": 1}, since=18),
    Case("Resize", [X, np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.4], np.float32), None, i64(2, 4, 5, 4)],
         {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}, since=13),
    Case("Resize", [X, np.zeros(0, np.float32), SCALES],
         {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}, since=11),
    *(Case("GridSample", [X, PLACES], {"padding_mode": p, "align_corners": a, "mode": m}, until=19)
      for p in ("zeros", "border", "reflection") for a in (0, 1) for m in ("nearest", "bilinear", "bicubic")),
    *(Case("GridSample", [X, PLACES], {"padding_mode": p, "align_corners": a, "mode": m}, since=20)
      for p in ("zeros", "border", "reflection") for a in (0, 1) for m in ("nearest", "linear", "cubic")),
    *(Case("GridSample", [f32(1, 2, 3, 4, 5), f32(1, 2, 3, 4, 3)], {"padding_mode": p}, since=20) for p in ("zeros", "border")),
]
