"""Ops that move data, and those that compute places."""

from __future__ import annotations

import numpy as np

from tests.numerics.case import Case, f32, i64, pos, restart

restart()
X = f32(2, 4, 7, 6)
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
SHAPES = [
    Case("Reshape", [X, i64(0, -1, 3)]),
    Case("Reshape", [np.zeros((0, 3), np.float32), i64(3, 0)], {"allowzero": 1}, since=14),
    Case("Flatten", [X], {"axis": 2}), Case("Flatten", [X], {"axis": 0}), Case("Flatten", [X], {"axis": -1}, since=11),
    Case("Squeeze", [f32(1, 3, 1, 2)], {"axes": [0, 2]}, until=12), Case("Squeeze", [f32(1, 3, 1, 2)]),
    Case("Squeeze", [f32(1, 3, 1, 2), i64(-2)], since=13),
    Case("Unsqueeze", [f32(3, 2)], {"axes": [3, 0]}, until=12), Case("Unsqueeze", [f32(3, 2), i64(0, -1)], since=13),
    Case("Transpose", [X]), Case("Transpose", [X], {"perm": [2, 0, 3, 1]}),
    Case("Concat", [f32(2, 3), f32(2, 1)], {"axis": 1}), Case("Concat", [f32(2, 3), f32(2, 1)], {"axis": -1}, since=11),
    Case("Split", [X], {"axis": 1}, until=17, outputs=2),
    Case("Split", [X], {"axis": 2, "split": [1, 4, 2]}, until=12, outputs=3),
    Case("Split", [X, i64(1, 4, 2)], {"axis": 2}, since=13, outputs=3),
    Case("Split", [X], {"axis": 2, "num_outputs": 3}, since=18, outputs=3),
    Case("Slice", [X], {"starts": [1, -3], "ends": [99, -1], "axes": [1, 2]}, until=9),
    Case("Slice", [X], {"starts": [0, 1], "ends": [1, 3]}, until=9),
    Case("Slice", [X, i64(1, 5), i64(3, -99), i64(1, -2), i64(1, -2)], since=10),
    Case("Slice", [X, i64(1), i64(9223372036854775807)], since=10),
    Case("Expand", [f32(3, 1), i64(2, 1, 4)]), Case("Tile", [f32(2, 3), i64(2, 3)]),
    Case("Pad", [X], {"pads": [0, 0, 1, 2, 0, 1, 0, 3], "value": 1.5}, until=10),
    *(Case("Pad", [X], {"pads": [0, 0, 1, 2, 0, 1, 0, 3], "mode": mode}, until=10) for mode in ("reflect", "edge")),
    Case("Pad", [X], {"pads": [0, 0, -1, 2, 0, -1, 0, -3]}, until=10),
    *(Case("Pad", [X, i64(0, 0, 1, 2, 0, 1, 0, 3)], {"mode": mode}, since=11) for mode in ("constant", "reflect", "edge")),
    Case("Pad", [X, i64(0, 0, 1, -2, 0, 1, -1, 3), np.float32(4)], since=11),
    Case("Pad", [X, i64(1, 2), np.float32(4), i64(-1)], since=18),
    Case("Pad", [X, i64(0, 0, 1, 2, 0, 1, 0, 3)], {"mode": "wrap"}, since=19),
    Case("DepthToSpace", [f32(2, 8, 2, 3)], {"blocksize": 2}),
    Case("DepthToSpace", [f32(2, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}, since=11),
    Case("SpaceToDepth", [f32(2, 2, 4, 6)], {"blocksize": 2}),
    Case("Shape", [X]), Case("Shape", [X], {"start": -3, "end": -1}, since=15),
    Case("Shape", [X], {"start": 1, "end": 99}, since=15),
    Case("Size", [X]), Case("Identity", [X]),
    Case("Gather", [X, i64(1, -1, 0).reshape(3, 1)], {"axis": 2}, since=11), Case("Gather", [X, i64(1, 0)]),
    Case("GatherElements", [f32(3, 4), i64(0, 2, -1, 1).reshape(2, 2)]),
    Case("GatherElements", [f32(40, 3), np.arange(-40, 20, 4).reshape(5, 3)], {"axis": 0}),
    Case("GatherND", [f32(2, 3, 4), i64(0, 1, 1, -1).reshape(2, 2)]),
    Case("GatherND", [f32(2, 3, 4), i64(1, 2).reshape(2, 1)], {"batch_dims": 1}, since=12),
    Case("Scatter", [f32(3, 4), i64(0, 2, 1, 1).reshape(2, 2), f32(2, 2)], {"axis": 1}, until=10),
    Case("ScatterElements", [f32(3, 4), i64(0, 2, -1, 1).reshape(2, 2), f32(2, 2)], {"axis": 1}),
    *(Case("ScatterElements", [f32(5), i64(1, 1, 3), f32(3)], {"reduction": r}, since=16) for r in ("add", "mul")),
    *(Case("ScatterElements", [f32(5), i64(1, 1, 3), f32(3)], {"reduction": r}, since=18) for r in ("max", "min")),
    Case("ScatterND", [f32(4, 3), i64(2, 0).reshape(2, 1), f32(2, 3)]),
    Case("ScatterND", [f32(4, 3), i64(2, 2).reshape(2, 1), f32(2, 3)], {"reduction": "add"}, since=16),
    Case("OneHot", [i64(0, -1, 5, 2), i64(4), np.array([2, 5], np.float32)], {"axis": 0}),
    Case("OneHot", [i64(0, -1, 5, 2).reshape(2, 2), i64(4), np.array([2, 5], np.float32)], {"axis": 1}),
    Case("Range", [np.array(1.0, np.float32), np.array(6.0, np.float32), np.array(1.5, np.float32)]),
    Case("Compress", [f32(3, 4), np.array([True, False, True])], {"axis": 0}), Case("Compress", [f32(3, 4), f32(7) > 0]),
    Case("NonZero", [(f32(3, 4) > 0).astype(np.float32)]), Case("EyeLike", [f32(3, 5)], {"k": 1}),
    Case("Trilu", [f32(2, 4, 3), np.array(-1)], {"upper": 0}), Case("ConstantOfShape", [i64(2, 3)]),
    Case("Unique", [np.array([2, 1, 1, 3, 2], np.float32)], {"sorted": 0}, outputs=4),
    Case("Unique", [np.array([[1, 0], [1, 0], [2, 3]], np.float32)], {"axis": 0}, outputs=4),
    Case("Unique", [np.array([2, 1, 1, 3, 2], np.float32)], {"sorted": 0}),
    Case("ReverseSequence", [f32(4, 3, 2), i64(4, 1, 2)]),
    Case("ReverseSequence", [f32(3, 4, 2), i64(4, 1, 2)], {"batch_axis": 0, "time_axis": 1}),
    *(Case("Cast", [X * 10], {"to": to}) for to in (1, 3, 6, 7, 9, 10, 11)),
    Case("Cast", [np.array(["1", "-2.5", "1e3"], object)], {"to": 1}, since=9),
    Case("NonMaxSuppression", [BOXES, pos(1, 1, 3), i64(3), np.array([0.5], np.float32)]),
]
