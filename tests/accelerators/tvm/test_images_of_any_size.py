"""Kernels for images of any number, height and width: ours, and those that TVM writes."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from benchmarks.models.any_size import Sizes, vit
from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.tvm.kernels.contraction.convolution.bands import BlockedShape, cut_bands
from partita.accelerators.tvm.kernels.shared.window import Window
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.any_size import SizedSubgraph
from partita.accelerators.tvm.sizes.extent import Extent, Size, floor_named, known_least, symbol, value_of
from partita.accelerators.tvm.sizes.floors import same_padding
from partita.accelerators.tvm.sizes.sizing import forms_for_any_size, sized
from partita.graph.numerics.windows import window
from tests.accelerators.tvm.any_size import attention, check, numbers, specialized
from tests.close import assert_close
from tests.fuzz.guard.pages import guarded_copy


class Layers:
    """Layers on any number of images of 12 channels."""

    def __init__(self, height: int | str = 19, width: int | str = 18) -> None:
        self.image = pt.variable("image", "float32", ("N", 3, height, width))
        self.first = self.conv(self.image, 3, 12, strides=[2, 2], pads=[1] * 4)

    def conv(self, x: pt.Node, ins: int = 12, outs: int = 12, side: int = 3, **attrs: Any) -> pt.Node:
        weight = pt.constant(numbers(outs, ins // attrs.get("group", 1), side, side) / side)
        return pt.op("Conv", x, weight, pt.constant(numbers(outs)), **attrs)


LAYERS: dict[str, Callable[[Layers, pt.Node], pt.Node]] = {
    "residual": lambda net, x: pt.op("Relu", pt.op("Add", x, net.conv(net.conv(x, side=1), pads=[1] * 4))),
    "depthwise": lambda net, x: net.conv(x, group=12, pads=[1] * 4),
    "groups": lambda net, x: net.conv(x, group=3, strides=[2, 1]),
    "largest": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1),
    "mean": lambda net, x: pt.op("AveragePool", x, kernel_shape=[2, 3], auto_pad="SAME_UPPER"),
    "plain pool": lambda net, x: pt.op("MaxPool", net.image, kernel_shape=[4, 4], strides=[3, 3]),
    "squeezed": lambda net, x: pt.op("Mul", x, pt.op("Sigmoid", net.conv(pt.op("GlobalAveragePool", x), side=1))),
    "classified": lambda net, x: pt.op(
        "Gemm", pt.op("Flatten", pt.op("GlobalAveragePool", x)), pt.constant(numbers(12, 5)), pt.constant(numbers(5))
    ),
    "joined": lambda net, x: pt.op("Concat", net.conv(x, outs=32), net.conv(x, outs=16), axis=1),
    "transposed": lambda net, x: pt.op("ConvTranspose", x, pt.constant(numbers(12, 8, 2, 2)), strides=[2, 2]),
    "resized": lambda net, x: pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 3], np.float32)), mode="linear"),
    "local response": lambda net, x: pt.op("LRN", x, size=3),
    "group norm": lambda net, x: pt.op(
        "GroupNormalization", x, pt.constant(numbers(12)), pt.constant(numbers(12)), num_groups=4
    ),
    "shuffled": lambda net, x: net.conv(
        pt.op("Reshape", pt.op("Transpose", pt.op("Reshape", x, pt.constant(np.array([-1, 3, 4, 10, 9]))), perm=[0, 2, 1, 3, 4]),
              pt.constant(np.array([-1, 12, 10, 9])))
    ),
}


def test_any_number_of_images() -> None:
    """Every kind of layer that convolution nets have, with the numbers of images that pools and tasks could stumble over."""
    net = Layers()
    graph = pt.Graph([build(net, net.first) for build in LAYERS.values()], [net.image])
    check(graph, [{"image": numbers(n, 3, 19, 18)} for n in (1, 2, 3, 5, 8, 17)], 1e-4)


SIDES: dict[str, Callable[[Layers, pt.Node], pt.Node]] = {
    **{name: LAYERS[name] for name in "residual depthwise groups mean joined transposed squeezed classified".split()},
    "largest": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "rounded up": lambda net, x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "mean with padding": lambda net, x: pt.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
    "sampled": lambda net, x: net.conv(x, side=1, strides=[2, 2]),
    "apart": lambda net, x: net.conv(x, pads=[2] * 4, dilations=[2, 2]),
    "mixed": lambda net, x: pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 3], np.float32)), mode="linear"),
    "mixed from the corner": lambda net, x: pt.op(
        "Resize", x, None, pt.constant(np.array([1, 1, 3, 2], np.float32)), mode="linear",
        coordinate_transformation_mode="asymmetric",
    ),
    "repeated": lambda net, x: pt.op(
        "Resize", x, None, pt.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
}
"""Every kind of layer that has a form for images of any height and width."""


def sides(kept: list[Any] = []) -> Any:  # noqa: B006  # compiled once for all examples
    """All these layers as one model, and the reference."""
    if not kept:
        net = Layers("H", "W")
        graph = pt.Graph([build(net, net.first) for build in SIDES.values()], [net.image])
        kept += [pt.compile(graph, "cpu"), pt.compile(graph, "reference")]
    return kept


def check_sides(n: int, height: int, width: int) -> None:
    model, reference = sides()
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    image = numbers(n, 3, height, width)
    for name, a, b in zip(SIDES, model(image), reference(image), strict=True):
        assert a.shape == b.shape, name
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max()), err_msg=name)


@pytest.mark.parametrize(("n", "height", "width"), [(1, 12, 12), (2, 12, 16), (3, 16, 13), (1, 21, 67), (1, 60, 135)])
def test_images_of_any_height_and_width(n: int, height: int, width: int) -> None:
    """From as few pixels as the windows see, over fewer than a tile has, to several bands of rows."""
    check_sides(n, height, width)
    assert specialized(sides()[0]).sizes == (), "no size was compiled by itself"


@pytest.mark.parametrize("step", [2, 3])
def test_a_last_window_that_begins_behind_the_image_is_none(step: int) -> None:
    """Rounded up there would be one more window, whatever the size."""
    x = pt.variable("x", "float32", ("N", 3, "H", 8))
    tall = pt.op("Concat", *[x] * step, axis=2)
    pooled = pt.op("MaxPool", tall, kernel_shape=[1, 1], strides=[step, 1], ceil_mode=1)
    graph = pt.Graph([pt.op("Neg", pooled)], [x])
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    for height in (1, 4, 9):
        image = numbers(2, 3, height, 8)
        np.testing.assert_array_equal(model(image)[0], reference(image)[0])
    assert specialized(model).sizes == (), "no size was compiled by itself"


def convolution_of_any_size(grain: int) -> list[str]:
    """The lines of the kernel of a filter from 32 to 32 channels, for images whose sides are multiples of a number."""
    net = Layers("H", "W")
    x = pt.op("MaxPool", net.conv(net.image, 3, 32, pads=[1] * 4), kernel_shape=[2, 2], strides=[2, 2])
    for _ in range(grain.bit_length() - 2):
        x = pt.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    first = net.conv(net.conv(net.image, 3, 32, pads=[1] * 4), 32, 32, pads=[1] * 4)
    model = pt.compile(pt.Graph([first, x], [net.image]), "cpu", config={"NUM_THREADS": 2})
    kernel = next(kernel for kernel in model.kernels() if first.name in kernel.nodes)
    return str(kernel.text).splitlines()


@pytest.mark.parametrize("grain", [2, 16])
def test_a_tile_of_an_image_of_any_size_divides_by_the_width_once(grain: int) -> None:
    """A division takes as long as many products, and there is one for each tile, not for each of its pixels."""
    lines = convolution_of_any_size(grain)
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("for tile <"))
    last = next(i for i, line in enumerate(lines) if i > first and "acc:" in line)
    assert len([line for line in lines[first + 1 : last] if "//" in line]) == 1


def test_three_taps_of_a_row_are_written_out_for_short_vectors(lanes: int) -> None:
    """LLVM computed where each pixel of a tile stands anew at every one of them. Pixels that are too few for a tile keep the
    loop, which is compiled faster, and so does AVX-512."""
    loops = [line.split()[0] for line in convolution_of_any_size(2) if line.strip().endswith(" kw < 3:")]
    assert loops == (["for"] * 3 if lanes == 16 else ["unrolled", "for"])


@pytest.mark.parametrize("outs, sharing", [(32, 8), (64, 4)])
def test_tiles_whose_pixels_share_an_address_where_rows_turn_out_to_be_whole_tiles(outs: int, sharing: int) -> None:
    """With addresses of their own for pixels of rows of 16, 32 and 64, 3 to 4 hundredths of the time were lost."""

    sizes = cast(tuple[int, int], (symbol("h"), symbol("w")))
    shape = BlockedShape(1, Window(sizes, sizes, (3, 3), (1, 1), (1, 1), (1, 1)), 64, outs, 1, plain=False, shuffled=False)
    bands = cut_bands(shape, Machine("cpu", "znver4", 1, 16, 32))
    assert bands.sharing == sharing and not bands.shares
    assert cut_bands(shape, Machine("cpu", "haswell", 1, 8, 16)).sharing == 0


def test_images_whose_width_tiles_divide_or_do_not(lanes: int) -> None:
    """Of many channels, which are walked in chunks, and of so few that the last panel is narrower."""
    net = Layers("H", "W")
    wide = net.conv(net.conv(net.image, 3, 96, side=1), 96, 80, pads=[1] * 4)
    narrow = net.conv(net.conv(net.image, 3, 32, side=1), 32, 48, pads=[1] * 4, strides=[2, 2])
    feeds = [{"image": numbers(*shape)} for shape in [(1, 3, 12, 16), (2, 3, 9, 12), (1, 3, 13, 17), (1, 3, 3, 4), (1, 3, 1, 3)]]
    check(pt.Graph([wide, narrow], [net.image]), feeds, 1e-4)


def test_bands_of_images_of_any_size_share_no_rows() -> None:
    """Bands that overlap compute rows twice: of 256 rows in bands of 18 they were 270."""
    lines = [line.strip() for line in convolution_of_any_size(2)]
    top, rows = (next(line for line in lines if line.startswith(f"{name}_kept[0]")) for name in ("top", "rows"))
    assert top.startswith("top_kept[0] = i32(band * ") and rows.startswith("rows_kept[0] = i32(min((band + 1) * ")


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.thinned(2)
def test_images_and_texts_of_any_size_on_so_many_threads(threads: int) -> None:
    """Kernels that set memory aside for a task are written otherwise for one thread."""
    net = Layers("H", "W")
    graph = pt.Graph([net.conv(net.first, pads=[1] * 4), SIDES["largest"](net, net.first)], [net.image])
    for g, feed in ((graph, {"image": numbers(2, 3, 28, 20)}), (attention(mask=False), {"x": numbers(2, 21, 32)})):
        model, reference = pt.compile(g, "cpu", config={"NUM_THREADS": threads}), pt.compile(g, "reference")
        assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
        for a, b in zip(model(feed), reference(feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max()))


def padded_by_size(auto_pad: str) -> pt.Graph:
    """Layers that move by several pixels, and pad by what the image lacks to whole moves: convolutions of the image and of
    blocks, one behind another, and every kind of pool."""
    net = Layers("H", "W")
    moves: dict[str, Any] = {"strides": [2, 3], "auto_pad": auto_pad}
    twice = net.conv(pt.op("Relu", net.conv(net.image, 3, 12, **moves)), side=4, strides=[3, 2], auto_pad=auto_pad)
    pools = [
        pt.op("MaxPool", net.first, kernel_shape=[3, 3], **moves),
        pt.op("AveragePool", net.first, kernel_shape=[2, 5], **moves),
        pt.op("AveragePool", net.first, kernel_shape=[3, 4], count_include_pad=1, **moves),
        pt.op("MaxPool", net.image, kernel_shape=[3, 2], **moves),
        pt.op("LpPool", net.image, kernel_shape=[3, 4], **moves),
    ]
    apart = net.conv(net.first, dilations=[2, 1], **moves)
    return pt.Graph([twice, apart, net.conv(net.first, group=12, side=5, **moves), *pools], [net.image])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.thinned(2)
def test_padding_that_depends_on_the_size(auto_pad: str) -> None:
    """Images that lack nothing to whole moves, and all that they may lack, down and across; smaller ones than a filter too."""
    shapes = [(1, 24, 36), (2, 25, 37), (1, 26, 38), (1, 27, 39), (3, 34, 41), (1, 3, 2), (1, 1, 5), (1, 71, 130)]
    check(padded_by_size(auto_pad), [{"image": numbers(n, 3, *sides)} for n, *sides in shapes], 1e-4)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 3), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_padding_of_any_size_is_that_of_the_size(auto_pad: str, taps: int, step: int, gap: int, size: int) -> None:
    """As numpy's windows have it, from a size that is known and from a symbol with its quotients."""
    geometry = window([size], [taps], [step], [gap], None, auto_pad)
    span = (taps - 1) * gap + 1
    assert same_padding(size, span, step, auto_pad) == (*geometry.before, *geometry.after)
    for amount, wanted in zip(same_padding(symbol("s0"), span, step, auto_pad), (*geometry.before, *geometry.after), strict=True):
        quotients = {name: floor.at({"s0": size}) for name in symbols_in(amount) if (floor := floor_named(name)) is not None}
        assert value_of(amount, {"s0": size, **quotients}) == wanted
        assert known_least(amount) <= wanted


def symbols_in(size: Size) -> tuple[str, ...]:
    return size.symbols if isinstance(size, Extent) else ()


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 3), st.integers(9, 96), st.integers(9, 96))
def test_images_of_any_height_and_width_by_chance(n: int, height: int, width: int) -> None:
    check_sides(n, height, width)


def test_images_stay_inside_of_their_memory() -> None:
    """The arrays of a call stand at either end of pages that cannot be read or written beside them."""
    model = sides()[0]
    for height, width in ((12, 12), (28, 44)):
        image = numbers(1, 3, height, width)
        wanted = model(image)
        for at_end in (True, False):
            outputs = [guarded_copy(np.zeros_like(array), at_end) for array in wanted]
            results = model(guarded_copy(image, at_end), out=outputs)
            for a, b in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_sizes_between_the_grains_are_compiled_alone() -> None:
    """Images that are halved twice, enlarged and joined count rows by four; others are right too, compiled for their size."""
    net = Layers("H", "W")
    pooled = pt.op("MaxPool", net.first, kernel_shape=[2, 2], strides=[2, 2])
    graph = pt.Graph([pt.op("Concat", net.first, SIDES["repeated"](net, pooled), axis=1)], [net.image])
    sizes = sized(pt.accelerator("cpu").transform(graph), has_floors=False)
    assert sizes.inputs == (("s0", 3, "4*s1", "4*s2"),) and sizes.counting == ("s1", "s2")
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    multiples = "dimension 2 of 'image' is a multiple of 4 and dimension 3 of 'image' is a multiple of 4"
    assert model.report.notes[1] == f"cpu_0: sizes are compiled for each unless {multiples}"
    for shape, alone in (((2, 3, 8, 12), 0), ((1, 3, 7, 12), 1), ((1, 3, 4, 4), 1)):
        image = numbers(*shape)
        assert_close(model(image)[0], reference(image)[0], atol=1e-4, rtol=1e-4)
        assert len(specialized(model).sizes) == alone


def test_a_vision_transformer_of_any_image() -> None:
    """Patches of images of any size, whose positions are interpolated from those that were learned."""
    image, width = pt.variable("image", "float32", ("N", 3, "H", "W")), 16
    patches = pt.op("Conv", image, pt.constant(numbers(width, 3, 8, 8) / 8), strides=[8, 8])
    wanted = pt.op("Concat", pt.constant(np.array([1, width])), pt.op("Shape", patches, start=2, end=4), axis=0)
    places = pt.op("Resize", pt.constant(numbers(1, width, 4, 4)), None, None, wanted, mode="cubic")
    rows = pt.constant(np.array([0, width, -1]))
    flat = [pt.op("Transpose", pt.op("Reshape", x, rows), perm=[0, 2, 1]) for x in (patches, places)]
    tokens = pt.op("Add", *flat)
    scores = pt.op("MatMul", tokens, pt.op("Transpose", tokens, perm=[0, 2, 1]))
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), tokens)
    graph = pt.Graph([pt.op("Gelu", pt.op("MatMul", mixed, pt.constant(numbers(width, 20))))], [image])
    check(graph, [{"image": numbers(*shape)} for shape in ((1, 3, 32, 32), (2, 3, 8, 40), (1, 3, 56, 24))], 1e-4)


@pytest.mark.parametrize("sides", [(40,), (3,), (7, 6, 9)])
def test_any_number_of_signals_and_volumes(sides: tuple[int, ...]) -> None:
    x = pt.variable("x", "float32", ("N", 4, *sides))
    weight = pt.constant(numbers(6, 2, *[3] * len(sides)))
    graph = pt.Graph([pt.op("Relu", pt.op("Conv", x, weight, group=2, pads=[1] * (2 * len(sides))))])
    check(graph, [{"x": numbers(n, 4, *sides)} for n in (1, 2, 5)], 1e-4)


def test_volumes_of_any_depth_height_and_width() -> None:
    """With padding in all directions, slices that are stepped over, and such that stand apart."""
    x = pt.variable("x", "float32", ("N", 3, "D", "H", "W"))
    first = pt.op("Conv", x, pt.constant(numbers(5, 3, 3, 3, 2)), pt.constant(numbers(5)), pads=[1, 1, 0, 1, 1, 1])
    apart = pt.op("Conv", x, pt.constant(numbers(4, 3, 2, 1, 1)), strides=[2, 1, 1], dilations=[3, 1, 1], pads=[2, 0, 0, 1, 0, 0])
    sizes = [(1, 2, 4, 6), (2, 6, 5, 3), (1, 10, 1, 9)]
    check(pt.Graph([pt.op("Relu", first), apart], [x]), [{"x": numbers(n, 3, *sides)} for n, *sides in sizes], 1e-4)


def test_no_images() -> None:
    """A number of images of zero is compiled by itself, and has results of the right sizes."""
    net = Layers()
    graph = pt.Graph([LAYERS["classified"](net, net.first), LAYERS["group norm"](net, net.first)], [net.image])
    model = pt.compile(graph, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [result.shape for result in model(numbers(0, 3, 19, 18))] == [(0, 5), (0, 12, 10, 9)]
    assert model(numbers(2, 3, 19, 18))[0].shape == (2, 5)


def test_a_vision_transformer_of_any_batch() -> None:
    """Patches, a first token that is repeated for each image, attention over both, and the few classes of that token."""
    graph = vit(Sizes(width=64, heads=4, layers=1, hidden=96, words=3), 64)
    check(graph, [{"image": numbers(n, 3, 64, 64)} for n in (1, 2, 5)], 1e-4)


# -- kernels of TVM's own ------------------------------------------------------------------------------------


def whole(*numbers_of: int) -> pt.Node:
    return pt.constant(np.array(numbers_of, np.int64))


def resize(x: pt.Node, factor: float, mode: str = "nearest", **attrs: Any) -> pt.Node:
    return pt.op("Resize", x, None, pt.constant(np.array([1, 1, factor, factor], np.float32)), mode=mode, **attrs)


def to_its_sizes(x: pt.Node) -> pt.Node:
    """Halved, and enlarged to the sizes that it had, as networks shaped like a U do it."""
    half = pt.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return pt.op("Resize", half, None, None, pt.op("Shape", x), mode="linear")


def to_sides(x: pt.Node, height: int, width: int) -> pt.Node:
    """The sizes of as many images of this height and width."""
    return pt.op("Concat", pt.op("Shape", x, start=0, end=2), whole(height, width), axis=0)


def sampled(x: pt.Node) -> pt.Node:
    """The images at places that two of their own channels say."""
    places = pt.op("Slice", x, whole(0), whole(2), whole(1))
    return pt.op("GridSample", x, pt.op("Tanh", pt.op("Transpose", places, perm=[0, 2, 3, 1])))


QUICK: dict[str, Callable[[pt.Node], pt.Node]] = {
    "padded": lambda x: pt.op("Pad", x, whole(0, 0, 1, 2, 0, 0, 0, 3)),
    "softmax of channels": lambda x: pt.op("Softmax", x, axis=1),
    "softmax": lambda x: pt.op("Softmax", x, axis=-1),
    "mean": lambda x: pt.op("ReduceMean", x, whole(2, 3)),
    "largest": lambda x: pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "corners aligned": lambda x: resize(x, 2.0, "linear", coordinate_transformation_mode="align_corners"),
    "to fixed sizes": lambda x: pt.op("Resize", x, None, None, to_sides(x, 15, 9), mode="nearest"),
}
"""Some forms for images of any size, one by one: ours, and those that TVM writes."""

OTHERS: dict[str, Callable[[pt.Node], pt.Node]] = {
    "mean of windows": lambda x: pt.op("AveragePool", x, kernel_shape=[3, 2], pads=[1] * 4),
    "norm of windows": lambda x: pt.op("LpPool", x, kernel_shape=[3, 3]),
    "largest of all": lambda x: pt.op("GlobalMaxPool", x),
    "local response": lambda x: pt.op("LRN", x, size=3),
    "groups": lambda x: pt.op("GroupNormalization", x, pt.constant(numbers(4)), pt.constant(numbers(4)), num_groups=2),
    "logarithms": lambda x: pt.op("LogSoftmax", x, axis=2),
    "sum over images": lambda x: pt.op("ReduceSum", x, whole(0)),
    "largest of channels": lambda x: pt.op("ReduceMax", x, whole(1), keepdims=0),
    "position": lambda x: pt.op("ArgMax", x, axis=3),
    "reflected": lambda x: pt.op("Pad", x, whole(0, 0, 1, 1, 0, 0, 2, 1), mode="reflect"),
    "edge": lambda x: pt.op("Pad", x, whole(0, 0, 1, 1, 0, 0, 2, 1), mode="edge"),
    "repeated": lambda x: pt.op("Tile", x, whole(1, 2, 1, 3)),
    "best": lambda x: pt.op("TopK", x, whole(2), axis=1)[0].node,
    "lower triangle": lambda x: pt.op("Trilu", x, upper=0),
    "to space": lambda x: pt.op("DepthToSpace", x, blocksize=2),
    "to depth": lambda x: pt.op("SpaceToDepth", x, blocksize=2),
    "enlarged": lambda x: resize(x, 1.5, "linear"),
    "made smaller": lambda x: resize(x, 0.5, "linear"),
    "nearest": lambda x: resize(x, 2.0),
    "cubic": lambda x: resize(x, 2.0, "cubic"),
    "to its sizes": to_its_sizes,
    "to mixed sizes": lambda x: pt.op("Resize", x, None, None, to_sides(x, 7, 40), mode="linear"),
    "cubic with corners aligned": lambda x: resize(x, 2.0, "cubic", coordinate_transformation_mode="align_corners"),
    "at places": sampled,
}
"""The other forms."""


def check_forms(forms: dict[str, Callable[[pt.Node], pt.Node]], shapes: list[tuple[int, int]]) -> None:
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    graph = pt.Graph([build(image) for build in forms.values()], [image])
    check(graph, [{"image": numbers(n, 4, *sides)} for n, sides in enumerate(shapes, 1)])


def test_a_resize_that_reads_an_infinite_pixel_alone_makes_no_nan() -> None:
    image = pt.variable("image", "float32", (1, 1, "H", "W"))
    aligned = resize(image, 3.0, "linear", coordinate_transformation_mode="align_corners")
    data = numbers(1, 1, 3, 5)
    data[0, 0, 0, 4] = np.inf
    graph = pt.Graph([aligned])
    result = pt.compile(graph, "cpu")(data)[0]
    assert not np.isnan(result).any() and result[0, 0, 0, -1] == np.inf


@pytest.mark.parametrize("given_scale", [False, True])
def test_norms_of_channels_of_any_size(given_scale: bool) -> None:
    """Rows shorter than a vector, of a vector and a rest, and such that the memory holds; scales that are inputs too. TVM's own
    loop over them takes seven times as long as our kernel."""
    image, scale, bias = pt.variable("image", "float32", ("N", 4, "H", "W")), *[pt.variable(n, "float32", (4,)) for n in "sb"]
    beside = [scale, bias] if given_scale else [pt.constant(numbers(4)) for _ in range(2)]
    graph = pt.Graph([pt.op("InstanceNormalization", image, *beside, epsilon=1e-3)], [image, scale, bias])
    given = [{"image": 3 + numbers(n, 4, *sides), "s": numbers(4), "b": numbers(4)} for n, *sides in NORMED]
    model = check(graph, given)
    assert [kernel.schedule for kernel in model.kernels()] == ["rows"]


NORMED = [(1, 1, 1), (3, 1, 2), (2, 3, 3), (1, 5, 7), (2, 33, 47), (5, 64, 130)]


def test_images_of_any_size_in_kernels_of_tvm() -> None:
    check_forms(QUICK, [(8, 12), (24, 6)])


@pytest.mark.slow
def test_all_forms_of_tvm_for_images_of_any_size() -> None:
    check_forms(OTHERS, [(8, 12), (34, 6), (4, 4), (64, 130)])


def grains_of(graph: pt.Graph) -> tuple[tuple[Any, ...], ...]:
    return sized(pt.accelerator("cpu").transform(graph)).inputs


def test_sizes_without_a_name_have_grains_too() -> None:
    image = pt.variable("image", "float32", (None, 3, None, None))
    halved = pt.op("SpaceToDepth", image, blocksize=2)
    assert grains_of(pt.Graph([halved])) == (("s0", 3, "2*s1", "2*s2"),)


def test_resizes_by_factors_that_are_rounded_down() -> None:
    """The sizes that they make are symbols of their own, for what follows too: the same wherever the same is multiplied."""
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    smaller, as_small = resize(image, 0.6, "linear"), resize(image, 0.6)
    graph = pt.Graph([resize(pt.op("Add", smaller, as_small), 2.0, "linear"), resize(image, 1.3, "cubic")], [image])
    check(graph, [{"image": numbers(n, 4, *sides)} for n, sides in ((1, (8, 12)), (2, (33, 7)))])


def test_resizes_of_known_sizes_beside_others_are_multiplied_in_single_precision() -> None:
    image = pt.variable("image", "float32", ("N", 4, "H", 10))
    check(pt.Graph([resize(image, 0.7, "linear")], [image]), [{"image": numbers(1, 4, height, 10)} for height in (10, 13)])


def test_many_resizes_of_any_size() -> None:
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    graph = pt.Graph([resize(image, 1.3 + i / 7, "linear") for i in range(20)], [image])
    assert len(sized(pt.apply_pass(graph, "InferShape", strict=False)).lent) == 20 * 8


def test_what_the_host_says_of_a_resize_takes_little_memory() -> None:
    """A few numbers for each row and column, however large the image is."""
    image = pt.variable("image", "float32", (1, 1, "H", "W"))
    enlarged = pt.apply_pass(pt.Graph([resize(image, 1.3, "linear")], [image]), "InferShape", strict=False)
    subgraph = SizedSubgraph(sized(enlarged), cast(CompiledSubgraph, None))
    tracemalloc.start()
    assert subgraph.given(((1, 1, 3000, 4000),), [None]) is not None
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_resizes_by_fractions_take_every_size_or_else_multiples() -> None:
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    graph = pt.accelerator("cpu").transform(pt.Graph([resize(image, 1.25)]))
    every, multiples = [form.inputs for form in forms_for_any_size(graph)]
    assert (every, multiples) == ((("s0", 3, "s1", "s2"),), (("s0", 3, "4*s1", "4*s2"),))
