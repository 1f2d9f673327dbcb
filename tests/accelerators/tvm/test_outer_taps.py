"""Convolutions whose filter is spread wider than its image."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.layouts.windows import drop_outer_taps
from tests.accelerators.tvm.running import check, normals

pytest.importorskip("tvm")

normal = normals(5)


def convolution(weights: np.ndarray, **attributes: object) -> pt.Graph:
    x = pt.variable("x", "float32", (1, weights.shape[1], 14, 14))
    node = pt.op("Conv", x, pt.constant(weights), pt.constant(normal(weights.shape[0])), name="conv", **attributes)
    return pt.apply_pass(pt.Graph([node]), "InferShape")


def taps(graph: pt.Graph) -> tuple[int, ...]:
    node = next(node for node in drop_outer_taps(graph).nodes if node.op == "Conv")
    assert node.inputs[1] is not None and node.inputs[1].node.value is not None
    return node.inputs[1].node.value.shape[2:]


@pytest.mark.parametrize(
    ("apart", "pads", "strides", "left"),
    [
        ([36, 36], [36, 36, 36, 36], [1, 1], (1, 1)),
        ([14, 13], [14, 13, 14, 13], [1, 1], (1, 3)),
        ([20, 1], [20, 1, 20, 1], [2, 2], (1, 3)),
        ([16, 16], [16, 0, 32, 32], [1, 1], (2, 1)),
        ([12, 12], [12, 12, 12, 12], [1, 1], (3, 3)),
    ],
    ids=str,
)
def test_taps_that_meet_only_padding_are_left_out(
    apart: list[int], pads: list[int], strides: list[int], left: tuple[int, int]
) -> None:
    graph = convolution(normal(24, 16, 3, 3), dilations=apart, pads=pads, strides=strides)
    assert taps(graph) == left
    check(graph, [normal(1, 16, 14, 14)])


def test_weights_that_are_no_numbers_stay() -> None:
    weights = normal(8, 8, 3, 3)
    weights[0, 0, 0, 0] = np.inf
    assert taps(convolution(weights, dilations=[36, 36], pads=[36] * 4)) == (3, 3)


def test_a_filter_that_meets_only_padding_stays() -> None:
    assert taps(convolution(normal(8, 8, 1, 1), pads=[20, 0, 0, 0], strides=[40, 1])) == (1, 1)
