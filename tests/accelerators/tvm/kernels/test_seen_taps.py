"""Convolutions whose taps stand so far apart that most of them meet padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.contraction.convolution.bands import BlockedShape, cut_bands, mean_seen
from partita.accelerators.tvm.kernels.shared.window import Window
from partita.accelerators.tvm.layouts.blocking import block
from partita.accelerators.tvm.machine.machine import Machine
from tests.accelerators.tvm.running import check, normals

pytest.importorskip("tvm")

normal = normals(29)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """A window of any geometry with as much padding as image, and more."""
    sizes, taps, strides, dilations = ([draw(st.integers(1, most)) for _ in range(2)] for most in (14, 4, 3, 12))
    before, behind = ([draw(st.integers(0, (k - 1) * d)) for k, d in zip(taps, dilations)] for _ in range(2))
    spans = [(k - 1) * d + 1 for k, d in zip(taps, dilations)]
    out = [(n + a + b - span) // s + 1 for n, a, b, span, s in zip(sizes, before, behind, spans, strides)]
    return Window(*((max(pair[0], 1), max(pair[1], 1)) for pair in (sizes, out, taps, strides, dilations, before)))


def meets(window: Window, i: int, result: int, tap: int) -> bool:
    """Does a tap meet the image for a result, in dimension i?"""
    return 0 <= result * window.strides[i] - window.before[i] + tap * window.dilations[i] < window.sizes[i]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(windows(), st.integers(1, 8))
def test_a_tile_walks_the_taps_that_meet_the_image_for_a_pixel_of_it(window: Window, pixels: int) -> None:
    pixels = min(pixels, window.pixels)
    pairs = [[meets(window, i, r, k) for r in range(window.out[i]) for k in range(window.taps[i])] for i in (0, 1)]
    assert window.share_inside == pytest.approx(np.mean(pairs[0]) * np.mean(pairs[1]))
    assert mean_seen(window, 1) == pytest.approx(window.share_inside)
    walked, tiles = 0, -(-window.pixels // pixels)
    for tile in range(tiles):
        first = min(tile * pixels, window.pixels - pixels)
        rows, columns = zip(*[divmod(pixel, window.out[1]) for pixel in range(first, first + pixels)])
        columns = columns if len(set(rows)) == 1 else tuple(range(window.out[1]))
        seen = enumerate((rows, columns))
        used = [{k for r in results for k in range(window.taps[i]) if meets(window, i, r, k)} for i, results in seen]
        between = [max(taps) - min(taps) + 1 if taps else 0 for taps in used]
        walked += between[0] * between[1]
    assert mean_seen(window, pixels) == pytest.approx(walked / (tiles * window.count))


def convolution(x: Any, outs: int, weights: np.ndarray, **attributes: Any) -> pt.Node:
    return pt.op("Conv", x, pt.constant(weights), pt.constant(normal(outs)), **attributes)


def wide_filters(weights: np.ndarray) -> pt.Graph:
    """A filter of 3 x 3 taps that stand 8 apart on an image of 9 x 10."""
    x = pt.variable("x", "float32", (1, weights.shape[1], 9, 10))
    node = convolution(x, len(weights), weights, dilations=[8, 8], pads=[8] * 4, name="wide")
    return pt.apply_pass(pt.Graph([node], inputs=[x]), "InferShape")


MACHINE = Machine("cpu", "skylake-avx512", 1, 16, 32)


def skipping(graph: pt.Graph) -> list[int]:
    """What each convolution of blocked values says of taps that meet only padding."""
    return [int(node.attrs.get("skips_padding", 0)) for node in block(graph, MACHINE).nodes if node.op == "Conv"]


def test_padding_is_passed_over_where_it_is_most_and_weights_are_numbers() -> None:
    weights = normal(16, 40, 3, 3)
    assert skipping(wide_filters(weights)) == [1]
    x = pt.variable("x", "float32", (1, 40, 9, 10))
    near = pt.Graph([convolution(x, 16, weights, dilations=[2, 2], pads=[2] * 4)], inputs=[x])
    assert skipping(pt.apply_pass(near, "InferShape")) == [0]
    weights[3, 5, 0, 2] = np.inf
    assert skipping(wide_filters(weights)) == [0], "an infinite weight makes NaN of the padding"


def test_tiles_are_cut_so_that_more_taps_are_left_out() -> None:
    window = Window((14, 14), (14, 14), (3, 3), (1, 1), (12, 12), (12, 12))
    shapes = [BlockedShape(1, window, 960, 256, 1, False, False, skips=skips) for skips in (False, True)]
    walks, skips = (cut_bands(shape, MACHINE) for shape in shapes)
    assert mean_seen(window, skips.pixels) < mean_seen(window, walks.pixels) < 0.5


def test_numbers_of_filters_that_meet_mostly_padding() -> None:
    x = pt.variable("x", "float32", (2, 48, 11, 13))
    first = convolution(x, 40, normal(40, 48, 3, 3), dilations=[9, 10], pads=[9, 12, 7, 10], strides=[1, 2])
    y = convolution(pt.op("Relu", first), 20, normal(20, 40, 2, 3), dilations=[7, 5], pads=[7, 5, 1, 4])
    graph = pt.apply_pass(pt.Graph([y], inputs=[x]), "InferShape")
    assert skipping(graph) == [1, 1]
    check(graph, [normal(2, 48, 11, 13)], 5e-6, NUM_THREADS=2)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(windows(), st.sampled_from([33, 48, 400]), st.integers(1, 70), st.sampled_from(["f32", "bf16"]))
def test_numbers_of_any_wide_filter(window: Window, channels: int, outs: int, precision: str) -> None:
    x = pt.variable("x", "float32", (1, channels, *window.sizes))
    pads = [*window.before, *(
        max((o - 1) * s + (k - 1) * d + 1 - n - a, 0)
        for o, s, k, d, n, a in zip(
            window.out, window.strides, window.taps, window.dilations, window.sizes, window.before, strict=True
        )
    )]
    weights = normal(outs, channels, *window.taps)
    y = convolution(x, outs, weights, dilations=list(window.dilations), pads=pads, strides=list(window.strides))
    graph = pt.apply_pass(pt.Graph([y], inputs=[x]), "InferShape")
    check(graph, [normal(1, channels, *window.sizes)], 5e-6 if precision == "f32" else 2e-2, PRECISION=precision)
