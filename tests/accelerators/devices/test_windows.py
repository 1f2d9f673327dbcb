"""The windows of which onnxruntime counts or places some differently: their padding and what they leave, counted one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.onnxruntime import windows
from partita.accelerators.engines.quirks import Case

FORMS = ("MaxPool", "Conv", "Conv that states its window", "Conv of unknown weights", "ConvInteger")


def case(form: str, size: Any, span: int, stride: int, **attributes: Any) -> Case:
    """A node with a window along one axis."""
    op, whole = form.partition(" ")[0], form == "ConvInteger"
    x = pt.variable("x", "uint8" if whole else "float32", (1, 2, size))
    stated = {} if form in ("Conv", "ConvInteger") else {"kernel_shape": [span]}
    weights = pt.constant(np.ones((3, 2, span), np.int8 if whole else np.float32))
    inputs = [x] if op == "MaxPool" else [x, pt.variable("w") if "unknown" in form else weights]
    return of(pt.op(op, *inputs, strides=[stride], **stated, **attributes))


def of(node: pt.Node) -> Case:
    return Case(node, pt.Graph([node]))


def count(length: int, span: int, stride: int) -> int:
    return len(range(0, length - span + 1, stride))


def padding(size: int, span: int, stride: int) -> int:
    """The least padding with which there is a window for each stride of the data; below zero if some data is in no window."""
    return next(more for more in range(-30, 30) if count(size + more, span, stride) == -(-size // stride))


@pytest.mark.parametrize("form", FORMS)
def test_the_padding_for_the_same_size(form: str) -> None:
    for size, span, stride in itertools.product((1, 4, 7, 12), (1, 2, 5), (1, 2, 3)):
        for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            assert windows.least_padding(case(form, size, span, stride, auto_pad=auto_pad)) == padding(size, span, stride)
        assert windows.least_padding(case(form, size, span, stride)) == 0
    for span, stride in itertools.product((1, 2, 5), (1, 2, 3)):
        least = min(padding(size, span, stride) for size in range(1, 13))
        assert windows.least_padding(case(form, "n", span, stride, auto_pad="SAME_UPPER")) == least
    assert windows.least_padding(case(form, 9, 3, 1, dilations=[2], auto_pad="SAME_UPPER")) == padding(9, 5, 1)


def test_the_least_padding_is_that_of_any_axis() -> None:
    x = pt.variable("x", "float32", (1, 2, 9, 9))
    node = pt.op("MaxPool", x, kernel_shape=[3, 2], strides=[1, 3], auto_pad="SAME_UPPER")
    assert windows.least_padding(of(node)) == padding(9, 2, 3) == -1


def test_what_is_left_after_the_last_whole_window() -> None:
    for size, span, stride in itertools.product((5, 8, 12), (1, 2, 5), (1, 2, 3)):
        left = size - (count(size, span, stride) - 1) * stride - span
        found = windows.leaves_a_rest(case("MaxPool", size, span, stride, auto_pad="VALID", ceil_mode=1))
        assert found is (left > 0), (size, span, stride)
        assert not windows.leaves_a_rest(case("MaxPool", size, span, stride, auto_pad="VALID"))
        assert not windows.leaves_a_rest(case("MaxPool", size, span, stride, ceil_mode=1))
    assert windows.leaves_a_rest(case("MaxPool", "n", 2, 2, auto_pad="VALID", ceil_mode=1))
    assert not windows.leaves_a_rest(case("MaxPool", "n", 2, 1, auto_pad="VALID", ceil_mode=1))


def spread(size: Any, **attributes: Any) -> Case:
    x, weights = pt.variable("x", "float32", (1, 2, size)), pt.constant(np.ones((2, 3, 4), np.float32))
    return of(pt.op("ConvTranspose", x, weights, strides=[3], **attributes))


def test_results_of_transposed_convolutions_beyond_the_windows() -> None:
    covered = max(3 * first + tap for first in range(5) for tap in range(4)) + 1
    for more, extra in itertools.product((-1, 0, 1, 2), (0, 1)):
        found = windows.is_larger_than_windows(spread(5, output_shape=[covered + more], output_padding=[extra]))
        assert found is (more > extra), (more, extra)
    assert not windows.is_larger_than_windows(spread("n", output_shape=[99])) and not windows.is_larger_than_windows(spread(5))
    assert windows.is_larger_than_windows(spread(5, output_shape=[1, 2, covered + 1])), "all sizes, as older files have them"
    padded = [more for more in (0, 2, 3, 4) if windows.is_padded_by_a_stride(spread(5, output_padding=[more]))]
    assert padded == [3, 4]
    assert not windows.is_padded_by_a_stride(spread(5))


def test_dilated_windows_of_the_same_size() -> None:
    for auto_pad, dilation in itertools.product(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2)):
        found = windows.is_same_dilated(case("Conv", 9, 3, 1, auto_pad=auto_pad, dilations=[dilation]))
        assert found is (auto_pad.startswith("SAME") and dilation == 2)
    assert not windows.is_same_dilated(case("Conv", 9, 3, 1, auto_pad="SAME_UPPER"))
