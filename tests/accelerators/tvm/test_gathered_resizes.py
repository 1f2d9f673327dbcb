"""Resizes of dynamic sizes: those that become gathers, those with a kernel, and those that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.sizes.gathered import (
    can_gather,
    changes_nothing,
    has_kernel,
    in_newer_form,
    said_input,
    stated_factors,
)

NONE = pt.constant(np.zeros(0, np.float32))
DOUBLE = pt.constant(np.array([1, 1, 2, 2], np.float32))
SAME = pt.constant(np.ones(4, np.float32))
SIZES = pt.variable("sizes", "int64", (4,))
STATED = pt.constant(np.array([1, 2, 3, 4]))
FACTORS = pt.variable("factors", "float32", (4,))


def resize(*inputs: pt.Node | None, dtype: str = "float32", op: str = "Resize", domain: str = "", **attributes: Any) -> pt.Node:
    image = pt.variable("x", dtype, (1, 2, "h", "w"))
    node = pt.op(op, image, *inputs, domain=domain, **attributes)
    return node.evolve(output_types=(image[0].type,))


LINEAR = {"mode": "linear"}


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        (resize(None, DOUBLE), True),
        (resize(None, None, SIZES), True),
        (resize(None, NONE, SIZES), True),
        (resize(None, None, STATED), True),
        (resize(None, FACTORS), False),
        (resize(None, FACTORS, SIZES), False),
        (resize(None, DOUBLE, SIZES), False),
        (resize(None, None, None), False),
        (resize(), False),
        (resize(None, DOUBLE, antialias=1, **LINEAR), False),
        (resize(None, DOUBLE, axes=[2, 3]), False),
        (resize(None, None, SIZES, keep_aspect_ratio_policy="not_larger"), False),
        (resize(NONE, DOUBLE, coordinate_transformation_mode="tf_crop_and_resize"), False),
        (resize(None, DOUBLE, dtype="int32"), True),
        (resize(None, DOUBLE, dtype="int32", **LINEAR), False),
        (resize(None, DOUBLE, dtype="float16", **LINEAR), True),
        (resize(None, DOUBLE, dtype="float64", **LINEAR), False),
        (resize(None, DOUBLE, **LINEAR), True),
        (resize(None, DOUBLE, domain="my.ops"), False),
        (resize(op="Relu"), False),
    ],
)
def test_resizes_that_become_gathers(node: pt.Node, answer: bool) -> None:
    assert can_gather(node, 11) is can_gather(node, 21) is answer
    assert not can_gather(node, 10), "before opset 11 a resize does not state where its positions lie"


@pytest.mark.parametrize(
    ("attributes", "factors", "answer"),
    [
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, (1, 1, 2, 3), True),
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, (1, 1, 2, 1.5), False),
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, (1, 1, 2, None), False),
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}, (1, 1, 2, 3), False),
        ({"coordinate_transformation_mode": "asymmetric"}, (1, 1, 2, 3), False),
        ({}, (1, 1, 2, 3), True),
        ({"nearest_mode": "round_prefer_ceil"}, (1, 1, 2, 3), True),
        ({"nearest_mode": "floor"}, (1, 1, 2, 3), False),
        (LINEAR, (1, 1, 1.5, 0.5), True),
        ({**LINEAR, "coordinate_transformation_mode": "pytorch_half_pixel"}, (1, 1, 1.5, 2), True),
        ({**LINEAR, "coordinate_transformation_mode": "align_corners"}, (1, 1, 2, 2), False),
        ({**LINEAR, "coordinate_transformation_mode": "asymmetric"}, (1, 1, 2, 2), True),
        ({**LINEAR, "coordinate_transformation_mode": "asymmetric"}, (1, 1, 2), False),
        ({**LINEAR, "coordinate_transformation_mode": "asymmetric"}, (1, 1, 1.5, 2), False),
        ({"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}, (1, 1, 2, 2), False),
    ],
)
def test_resizes_with_a_kernel(attributes: dict[str, str], factors: tuple[float | None, ...], answer: bool) -> None:
    assert has_kernel(resize(None, DOUBLE, **attributes), factors) is answer


def test_inputs_that_are_empty_say_nothing() -> None:
    both = resize(None, NONE, SIZES)
    assert said_input(both, 2) is None and said_input(both, 3) == SIZES[0]
    one = resize(None, DOUBLE)
    assert said_input(one, 2) == DOUBLE[0] and said_input(one, 3) is None
    assert stated_factors(one) == [1, 1, 2, 2]
    assert stated_factors(both) is stated_factors(resize(None, FACTORS)) is None


def test_resizes_that_keep_all_sizes() -> None:
    assert changes_nothing(resize(None, SAME))
    assert not changes_nothing(resize(None, DOUBLE))
    assert not changes_nothing(resize(NONE, SAME, coordinate_transformation_mode="tf_crop_and_resize"))


def test_older_forms_by_whole_factors() -> None:
    image = pt.variable("x", "float32", (1, 2, "h", "w"))
    newer = in_newer_form(pt.op("Upsample", image, DOUBLE, opset=9, name="up"))
    assert (newer.op, newer.inputs) == ("Resize", (image[0], None, DOUBLE[0]))
    assert newer.attrs["mode"] == "nearest" and newer.attrs["coordinate_transformation_mode"] == "asymmetric"
    half = pt.op("Upsample", image, pt.constant(np.array([1, 1, 1.5, 2], np.float32)), opset=9)
    assert in_newer_form(half) is half
    computed = pt.op("Resize", image, FACTORS, opset=10)
    assert in_newer_form(computed) is computed
    new = resize(None, DOUBLE)
    assert in_newer_form(new) is new
