"""Resizes of images of any size, as exporters write them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.any_size import check, numbers
from tests.accelerators.tvm.test_images_of_any_size import resize, whole
from tests.close import assert_close
from tests.graphs.older_resizes import resized

FROM_CORNER = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
ALIGNED = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
TORCH = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
REPEATED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""How exporters write that they resize images."""


@pytest.mark.parametrize("version", [7, 8, 9, 10])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("sizes", [(1, 2, 5, 6), (1, 2, "h", "w"), (2, 3, 7)])
@pytest.mark.thinned(5)
def test_enlarging_as_older_files_write_it(version: int, mode: str, sizes: tuple[Any, ...]) -> None:
    """TVM takes other positions for factors that are attributes, as they were before opset 9."""
    for factors in ((2.0, 3.0), (2.0,), (1.0, 4.0), (0.5, 0.5), (1.5, 2.0)):
        graph = resized(version, mode, factors[: len(sizes) - 2], sizes)
        image = numbers(*(sizes if len(sizes) == 3 else (1, 2, 5, 6)))
        (wanted,) = pt.compile(graph, "reference")(image)
        model = pt.compile(graph, "HETERO:cpu,reference")
        assert_close(model(image)[0], wanted)
        assert len(sizes) == 3 or factors[0] % 1 or [unit.device.label for unit in model.units] == ["cpu"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("opset", [11, 17])
def test_nets_for_segmentation_in_older_opsets(opset: int) -> None:
    """A U-Net that enlarges to the sizes of what it joins, and classes that are enlarged to the image's, as exporters wrote it
    before sizes were read one by one: with empty factors beside the sizes."""
    build, empty = partial(pt.op, opset=opset), pt.constant(np.zeros(0, np.float32))

    def to_sides_of(x: pt.Node, like: pt.Node, attributes: dict[str, str]) -> pt.Node:
        first, last = (build("Slice", build("Shape", of), whole(i), whole(i + 2), whole(0)) for i, of in ((0, x), (2, like)))
        return build("Resize", x, empty, empty, build("Concat", first, last, axis=0), **attributes)

    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    fine = build("Relu", build("Conv", image, pt.constant(numbers(8, 3, 3, 3) / 9), pads=[1] * 4, strides=[2, 2]))
    coarse = build("MaxPool", fine, kernel_shape=[2, 2], strides=[2, 2])
    enlarged = [to_sides_of(coarse, fine, attributes) for attributes in (FROM_CORNER, ALIGNED, TORCH, REPEATED)]
    joined = build("Concat", fine, *enlarged, build("Resize", fine, empty, pt.constant(np.ones(4, np.float32))), axis=1)
    classes = build("Conv", joined, pt.constant(numbers(4, 48, 1, 1) / 48))
    graph = pt.Graph([to_sides_of(classes, image, TORCH)], [image], opsets={"": opset})
    check(graph, [{"image": numbers(n, 3, *sides)} for n, sides in ((1, (16, 24)), (2, (17, 23)), (1, (13, 7)))], 1e-5)


@pytest.mark.slow
def test_resizes_by_factors_of_images_of_odd_sizes() -> None:
    """Halves and other fractions of images that are not multiples of these, in no convolution net."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    wide = pt.variable("wide", "float32", ("N", 3, "H", 6))
    forms = [(factor, attributes) for factor in (2, 0.5, 1.25) for attributes in (FROM_CORNER, TORCH, REPEATED)]
    resized = [resize(made_of, factor, **attributes) for made_of in (image, wide) for factor, attributes in forms]
    feeds = [{"image": numbers(n, 3, *sides), "wide": numbers(n, 3, sides[0], 6)} for n, sides in ((1, (8, 12)), (2, (9, 7)))]
    check(pt.Graph(resized, [image, wide]), feeds, 1e-5)


def test_whole_factors_of_a_known_width_have_the_kernel_of_any_size() -> None:
    image, weight = pt.variable("image", "float32", ("N", 8, "H", 10)), pt.constant(numbers(8, 8, 1, 1))
    graph = pt.Graph([pt.op("Conv", resize(pt.op("Conv", image, weight), 2, mode="linear"), weight)], [image])
    model = check(graph, [{"image": numbers(n, 8, height, 10)} for n, height in ((1, 7), (2, 12))])
    assert "enlarge" in [kernel.schedule for kernel in model.kernels()]


@pytest.mark.parametrize("factor", [1.25, 1.3])
def test_a_known_width_that_a_factor_leaves_as_it_is_is_resized(factor: float) -> None:
    """Ten times 1.05 are ten pixels, and these are mixed."""
    image = pt.variable("image", "float32", ("N", 3, "H", 10))
    scales = pt.constant(np.array([1, 1, factor, 1.05], np.float32))
    graph = pt.Graph([pt.op("Resize", image, None, scales, mode="linear")], [image])
    check(graph, [{"image": numbers(n, 3, height, 10)} for n, height in ((1, 7), (2, 12))], 1e-5)


@pytest.mark.parametrize("attributes", [FROM_CORNER, ALIGNED, TORCH, REPEATED, {"mode": "cubic"}], ids=str)
def test_images_that_keep_their_sizes(attributes: dict[str, Any]) -> None:
    """A Segformer enlarges each of its levels to the sizes of the first, that one too."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    as_large = pt.op("Resize", pt.op("Relu", image), None, None, pt.op("Shape", image), **attributes)
    wider = pt.op("Resize", image, None, pt.constant(np.array([1, 1, 1, 2], np.float32)), **attributes)
    graph = pt.Graph([pt.op("Exp", as_large), wider], [image])
    check(graph, [{"image": numbers(n, 3, *sides)} for n, sides in ((1, (5, 9)), (2, (8, 12)))])
