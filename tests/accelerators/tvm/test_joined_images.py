"""Joins of channels that a convolution reads as it copies its image: nothing else is moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.any_size import check, numbers

pytest.importorskip("tvm")


def conv(x: pt.Node, ins: int, outs: int, side: int = 3, **attributes: Any) -> pt.Node:
    weight = pt.constant(numbers(outs, ins // attributes.get("group", 1), side, side) / side)
    return pt.op("Conv", x, weight, pt.constant(numbers(outs)), pads=[side // 2] * 4, **attributes)


def parts(*shape: int | str) -> tuple[pt.Node, pt.Node, pt.Node]:
    """An image, and two values of 32 and 64 channels that are made of it."""
    image = pt.variable("image", "float32", shape)
    return image, pt.op("Relu", conv(image, 3, 32)), conv(image, 3, 64)


def joins(graph: pt.Graph) -> int:
    """How many kernels join channels."""
    return sum(kernel.schedule == "concat" for kernel in pt.compile(graph, "cpu").kernels())


@pytest.mark.thinned(4)
@pytest.mark.parametrize("attributes", [{}, {"group": 3}, {"strides": [2, 2]}, {"dilations": [2, 2]}], ids=str)
def test_a_filter_of_any_image_reads_what_is_joined_where_it_stands(attributes: dict[str, Any], lanes: int) -> None:
    image, first, second = parts("N", 3, "H", "W")
    joined = pt.op("Concat", second, first, second, axis=1)
    bias_less = pt.op("Conv", joined, pt.constant(numbers(48, 160, 3, 3) / 30), pads=[1] * 4)
    joined_too = pt.op("Concat", second, first, axis=1)
    graph = pt.Graph([pt.op("Relu", conv(joined_too, 96, 96, **attributes)), bias_less, first], [image])
    model = check(graph, [{"image": numbers(*shape)} for shape in [(1, 3, 8, 12), (3, 3, 13, 7), (2, 3, 3, 3)]], 1e-4)
    assert not [kernel for kernel in model.kernels() if kernel.schedule == "concat"]


def test_a_filter_of_many_channels_reads_them_chunk_by_chunk(lanes: int) -> None:
    """Residual additions of one of the parts read it beside the sums."""
    image, first, second = parts(2, 3, 11, 16)
    joined = conv(pt.op("Concat", *[first, second] * 4, axis=1), 384, 32)
    graph = pt.Graph([pt.op("Add", joined, first)], [image])
    given = numbers(2, 3, 11, 16)
    (expected,), (result,) = pt.compile(graph, "reference")(given), pt.compile(graph, "cpu")(given)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))
    assert joins(graph) == 0


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_parts_of_two_bytes(dtype: str) -> None:
    image, first, second = parts(1, 3, 12, 12)
    graph = pt.Graph([conv(pt.op("Concat", first, second, axis=1), 96, 32)], [image])
    given = numbers(1, 3, 12, 12)
    (expected,) = pt.compile(graph, "cpu")(given)
    (result,) = pt.compile(graph, "cpu", config={"PRECISION": dtype})(given)
    assert 0 < np.abs(result - expected).max() < 0.03 * np.abs(expected).max()


def test_joins_that_others_read_are_made() -> None:
    image, first, second = parts(1, 3, 12, 12)
    joined = pt.op("Concat", first, second, axis=1, name="joined")
    assert joins(pt.Graph([conv(joined, 96, 32), conv(joined, 96, 16)], [image])) == 1
    assert joins(pt.Graph([conv(joined, 96, 32), joined], [image])) == 1
    assert joins(pt.Graph([conv(joined, 96, 32, side=1)], [image])) == 1


def test_a_profile_names_the_join_beside_the_filter_that_reads_it() -> None:
    image, first, second = parts(1, 3, 12, 12)
    graph = pt.Graph([conv(pt.op("Concat", first, second, axis=1, name="joined"), 96, 32, name="filter")], [image])
    (kernel,) = [kernel for kernel in pt.compile(graph, "cpu").kernels() if "filter" in kernel.nodes and "joined" in kernel.nodes]
    assert kernel.nodes[0] == "filter" and kernel.schedule == "blocked convolution"
