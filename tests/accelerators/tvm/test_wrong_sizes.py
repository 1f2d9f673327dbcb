"""Sizes for which TVM's result of an op would be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.lower.dynamic_sizes import wrong_size

ELSEWHERE = "TVM chooses another nearest position where two are equally near"
CORNERS = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def reason(node: pt.Node) -> str | None:
    graph = pt.apply_pass(pt.Graph([node]), "InferShape")
    return wrong_size(next(node for node in graph.nodes if node.is_op))


def resized(old: Sequence[int], new: Sequence[int], **attributes: object) -> str | None:
    sizes = pt.constant(np.array([1, 1, *new]))
    return reason(pt.op("Resize", pt.variable("x", "float32", (1, 1, *old)), None, None, sizes, **attributes))


@pytest.mark.parametrize(
    ("old", "new", "attributes", "expected"),
    [
        ((2, 3), (4, 6), {}, None),
        ((2, 3), (6, 6), {}, None),
        ((2, 3), (6, 6), {"nearest_mode": "floor"}, ELSEWHERE),
        ((2, 3), (6, 9), CORNERS, None),
        ((1, 1), (3, 5), CORNERS, None),
        ((4, 4), (7, 4), CORNERS, ELSEWHERE),
        ((6, 4), (2, 4), CORNERS, ELSEWHERE),
        ((8, 4), (2, 1), CORNERS, None),
        ((3, 3), (9, 3), {**CORNERS, "nearest_mode": "ceil"}, ELSEWHERE),
        ((3, 3), (9, 3), {**CORNERS, "nearest_mode": "round_prefer_floor"}, ELSEWHERE),
        ((3, 3), (9, 3), {"coordinate_transformation_mode": "align_corners"}, ELSEWHERE),
        ((3, 3), (9, 3), {"coordinate_transformation_mode": "half_pixel"}, None),
        ((3, 3), (7, 5), {"mode": "linear"}, None),
        ((3, 3), (7, 5), {"keep_aspect_ratio_policy": "not_larger"}, "TVM's importer does not keep proportions"),
    ],
)
def test_resizes(old: Sequence[int], new: Sequence[int], attributes: dict[str, object], expected: str | None) -> None:
    assert resized(old, new, **attributes) == expected


@pytest.mark.parametrize(
    ("scales", "mode", "expected"),
    [
        ((1, 1, 2, 2), "nearest", None),
        ((1, 1, 2, 1.5), "linear", "TVM works with the ratio of the sizes where ONNX works with the scales"),
        ((1, 1, 0.5, 2), "linear", "TVM works with the ratio of the sizes where ONNX works with the scales"),
    ],
)
def test_resizes_by_scales(scales: Sequence[float], mode: str, expected: str | None) -> None:
    x, factors = pt.variable("x", "float32", (1, 1, 3, 3)), pt.constant(np.array(scales, np.float32))
    assert reason(pt.op("Resize", x, None, factors, mode=mode)) == expected


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_factors_of_an_upsample_are_no_attributes(mode: str) -> None:
    x, factors = pt.variable("x", "float32", (1, 1, 3, 3)), [1.0, 1.0, 2.0, 2.0]
    by_input = pt.op("Upsample", x, pt.constant(np.array(factors, np.float32)), mode=mode, opset=9)
    by_attribute = pt.op("Upsample", x, scales=factors, mode=mode, opset=7)
    kind = pt.TensorType("float32", (1, 1, 6, 6))
    assert wrong_size(by_input.evolve(output_types=(kind,))) is None
    cause = "TVM takes other positions for an Upsample whose factors are attributes"
    assert wrong_size(by_attribute.evolve(output_types=(kind,))) == cause


WRAPPED = "TVM's Pad wraps around what negative padding cuts off"
REFLECTED = "TVM's Pad reflects once, and reads outside of the data where a padding is not shorter than its dimension"
EDGELESS = "TVM's Pad reads outside of the data where a dimension has no edge, since nothing is in it"


@pytest.mark.parametrize(
    ("mode", "pads", "axes", "expected"),
    [
        ("constant", (0, 9, 0, 9), None, None),
        ("reflect", (0, 3, 0, 0), None, None),
        ("reflect", (0, 4, 0, 0), None, REFLECTED),
        ("reflect", (0, 0, 0, 4), None, REFLECTED),
        ("reflect", (1, 0, 1, 0), None, None),
        ("reflect", (2, 0, 0, 0), None, REFLECTED),
        ("reflect", (0, 3, 0, -1), None, REFLECTED),
        ("reflect", (0, 2, 0, -1), None, None),
        ("reflect", (3, 0), (1,), None),
        ("reflect", (3, 0), (0,), REFLECTED),
        ("reflect", (3, 0), (-2,), REFLECTED),
        ("edge", (5, 9, 7, 9), None, None),
        ("edge", (1, 0, -2, 0), None, EDGELESS),
        ("edge", (0, 0, -2, 0), None, None),
        ("edge", (1, 0, -1, 0), None, None),
        ("wrap", (1, 5, 0, 0), None, None),
        ("wrap", (1, 0, 0, -1), None, WRAPPED),
        ("wrap", (0, -1, 0, 0), None, None),
    ],
)
def test_padding(mode: str, pads: Sequence[int], axes: Sequence[int] | None, expected: str | None) -> None:
    more = [] if axes is None else [None, pt.constant(np.array(axes))]
    node = pt.op("Pad", pt.variable("x", "float32", (2, 4)), pt.constant(np.array(pads)), *more, mode=mode)
    assert reason(node) == expected
