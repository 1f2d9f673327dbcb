"""Sizes that are divided and rounded down, for any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, Size, floor_named, known_least, symbol, value_of
from partita.accelerators.tvm.sizes.floors import floored
from tests.accelerators.tvm.any_size import check, numbers


def at(size: Size, value: int) -> int:
    """The size where s0 is this value."""
    sizes = {"s0": value}
    for name in size.symbols if isinstance(size, Extent) else ():
        known = floor_named(name)
        if known is not None:
            sizes[name] = known.at(sizes)
    return value_of(size, sizes)


STEPS = st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(-3, 5), st.integers(1, 6)), min_size=1, max_size=4)


@given(STEPS, st.integers(1, 200))
def test_quotients_of_quotients(steps: list[tuple[int, int, int]], value: int) -> None:
    """A chain of factors, additions and divisions has the value that it has step by step, and is never less than its least."""
    size: Size = symbol("s0")
    expected = value
    for factor, more, divisor in steps:
        try:
            size = floored(size * factor + more, divisor)
        except Indivisible:
            return
        expected = (expected * factor + more) // divisor
    assert at(size, value) == expected
    if all(at(symbol(name), value) >= 1 for name in (size.symbols if isinstance(size, Extent) else ())):
        assert known_least(size) <= expected


def test_one_quotient_has_one_name() -> None:
    rows = symbol("s0")
    assert floored(floored(rows + 1, 2) + 1, 2) == floored(rows - 1, 4) + 1 == floored(rows + 3, 4)
    assert floored(-rows, 4) == -floored(rows + 3, 4) and floored(4 * rows + 3, 2) == 2 * rows + 1
    with pytest.raises(Indivisible, match=r"s0\*s1 // 2 is known only when the model is called"):
        floored(rows * symbol("s1"), 2)


def test_what_is_known_of_quotients() -> None:
    """Every second row of every second row begins inside of the rows, however many there are."""
    rows = floored(symbol("s0") + 1, 2)
    assert known_least(rows - (floored(rows + 1, 2) - 1) * 2) > 0
    assert known_least(floored(symbol("s0"), 2) - floored(symbol("s0") + 1, 2)) < 0


def test_signals_of_any_length() -> None:
    """Encoders of speech take every fifth sample, and then every second one several times over."""
    x = pt.variable("x", "float32", ("N", 1, "samples"))
    y = x
    for channels, inputs, taps, step in ((16, 1, 10, 5), (16, 16, 3, 2), (16, 16, 2, 2)):
        y = pt.op("Gelu", pt.op("Conv", y, pt.constant(numbers(channels, inputs, taps) / taps), strides=[step]))
    merged = [pt.op("Slice", y, *(pt.constant(np.array([n])) for n in (first, 2**40, 2, 2))) for first in (0, 1)]
    check(pt.Graph([y, *merged], [x]), [{"x": numbers(n, 1, length)} for n, length in ((1, 400), (2, 163), (1, 1601))], 1e-4)


def test_a_network_that_resizes_to_odd_sizes() -> None:
    """Features of half the size, enlarged to the size of those that they are joined to, and to that of the image."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    fine = pt.op("Relu", pt.op("Conv", image, pt.constant(numbers(16, 3, 3, 3) / 9), pads=[1] * 4, strides=[2, 2]))
    coarse = pt.op("MaxPool", fine, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    enlarged = pt.op("Resize", coarse, None, None, pt.op("Shape", fine), mode="linear")
    mixed = pt.op("Conv", pt.op("Concat", fine, enlarged, axis=1), pt.constant(numbers(4, 32, 1, 1) / 32))
    wanted = pt.op("Concat", pt.op("Shape", mixed, end=2), pt.op("Shape", image, start=2), axis=0)
    whole = pt.op("Resize", mixed, None, None, wanted, mode="linear")
    feeds = [{"image": numbers(*shape)} for shape in ((1, 3, 32, 48), (2, 3, 33, 47), (1, 3, 7, 9))]
    check(pt.Graph([whole], [image]), feeds, 1e-4)


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_padding_by_what_is_left_of_a_size(mode: str) -> None:
    """What was halved and doubled is padded to the size that it had, as U-Nets of images of any size do."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    small = pt.op("Conv", image, pt.constant(numbers(16, 3, 2, 2)), strides=[2, 2])
    doubled = pt.op("ConvTranspose", small, pt.constant(numbers(16, 8, 2, 2) / 4), strides=[2, 2])
    lacking = pt.op("Sub", pt.op("Shape", image, start=2), pt.op("Shape", doubled, start=2))
    pads = pt.op("Concat", pt.constant(np.zeros(6, np.int64)), lacking, axis=0)
    padded = pt.op("Pad", doubled, pads, *([pt.constant(np.float32(0.5))] if mode == "constant" else []), mode=mode)
    graph = pt.Graph([pt.op("Concat", image, padded, axis=1)], [image])
    check(graph, [{"image": numbers(n, 3, *sides)} for n, sides in ((1, (8, 6)), (2, (9, 6)), (1, (7, 5)))])


def test_padding_that_is_nothing_for_multiples() -> None:
    """A size that a Reshape cuts into pieces is a multiple, and then it is known that nothing is padded."""
    x, four = pt.variable("x", "float32", ("N", 3, "H", 4)), pt.constant(np.array([4]))
    rest = pt.op("Mod", pt.op("Shape", x, start=2, end=3), four)
    pads = pt.op("Concat", pt.constant(np.zeros(6, np.int64)), rest, pt.constant(np.zeros(1, np.int64)), axis=0)
    pieces = pt.op("Div", pt.op("Shape", x, start=2, end=3), four)
    cut = pt.op("Concat", pt.op("Shape", x, end=2), pieces, four, four, axis=0)
    graph = pt.Graph([pt.op("Reshape", x, cut), pt.op("Pad", x, pads)], [x])
    check(graph, [{"x": numbers(n, 3, height, 4)} for n, height in ((1, 8), (2, 20))])
