"""Ops on blocked values against numpy in double precision: each follows a convolution, which makes the value blocked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code.building import build
from partita.accelerators.tvm.kernels.contraction.convolution.bands import BlockedShape, cut_bands
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_conv import blocked_convolution
from partita.accelerators.tvm.kernels.shared.window import Window, window_attributes
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node, frozen_attrs
from tests.accelerators.tvm.running import check, normals, products_and_spills, schedules
from tests.drawn import some

pytest.importorskip("tvm")

normal = normals(23)
LIMIT = 5e-6


def convolved(x: pt.Node, ins: int, outs: int, taps: int = 1, **attributes: Any) -> pt.Node:
    weight = normal(outs, ins // attributes.get("group", 1), taps, taps)
    return pt.op("Conv", x, pt.constant(weight), pt.constant(normal(outs)), **attributes)


def image(channels: int = 20, high: int = 9, wide: int = 10) -> tuple[pt.Node, pt.Node, list[int]]:
    """An input, a blocked value made of it, and the input's shape."""
    x = pt.variable("x", "float32", (2, 6, high, wide))
    return x, convolved(x, 6, channels), [2, 6, high, wide]


def filtered(channels: int, size: int, lanes: int = 16) -> pt.Graph:
    """A filter of 3 x 3 from blocks of so many channels to as many."""
    window = Window((size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1))
    x = pt.variable("x", "float32", (1, channels // lanes, size * size, lanes))
    weight = pt.variable("w", "float32", (channels, channels, 3, 3))
    geometry = {**window_attributes(window), "plain": 0, "channels": channels, "outs": channels, "group": 1}
    node = Node("c", "Conv", (x[0], weight[0]), frozen_attrs(geometry), ("c",), x.output_types, DOMAIN)
    return pt.Graph([node], inputs=[x, weight])


def pointwise(channels: int, outs: int, size: int) -> pt.Graph:
    """A filter of one tap, and an addition behind it."""
    window = Window((size, size), (size, size), (1, 1), (1, 1), (1, 1), (0, 0))
    x = pt.variable("x", "float32", (1, channels // 16, size * size, 16))
    other = pt.variable("other", "float32", (1, outs // 16, size * size, 16))
    weight = pt.variable("w", "float32", (outs, channels, 1, 1))
    geometry = {**window_attributes(window), "plain": 0, "channels": channels, "outs": outs, "group": 1}
    node = Node("c", "Conv", (x[0], weight[0]), frozen_attrs(geometry), ("c",), other.output_types, DOMAIN)
    total = Node("total", "Add", (node[0], other[0]), frozen_attrs({}), ("total",), other.output_types)
    return pt.Graph([total], inputs=[x, weight, other])


def kinds(y: pt.Node, x: pt.Node, shape: list[int]) -> list[str]:
    """The kernels between the first convolution and the plain result."""
    return schedules(check(pt.Graph([y], inputs=[x]), [normal(*shape)], LIMIT))[1:-1]


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """A window of any geometry that sees something of the image everywhere."""
    taps, strides, dilations = ([draw(st.integers(1, top)) for _ in range(2)] for top in (4, 3, 2))
    pads = [draw(st.integers(0, min((k - 1) // 2, 2))) for k in (*taps, *taps)]
    return {"kernel_shape": taps, "strides": strides, "dilations": dilations, "pads": pads}


@some
@given(windows(), st.integers(7, 15), st.integers(7, 21), st.sampled_from(["MaxPool", "AveragePool"]), st.booleans())
def test_pools_of_any_geometry(window: dict[str, Any], high: int, wide: int, op: str, padded: bool) -> None:
    x, y, shape = image(11, high, wide)
    more: dict[str, Any] = {"count_include_pad": int(padded)} if op == "AveragePool" else {}
    assert kinds(pt.op("Relu", pt.op(op, y, **window, **more)), x, shape) == ["blocked pool"]


@some
@given(windows(), st.integers(7, 15), st.integers(7, 21), st.integers(9, 20))
def test_depthwise_of_any_geometry(window: dict[str, Any], high: int, wide: int, channels: int) -> None:
    x, y, shape = image(channels, high, wide)
    weight = pt.constant(normal(channels, 1, *window["kernel_shape"]))
    node = pt.op("Conv", y, weight, pt.constant(normal(channels)), group=channels, **window)
    assert kinds(pt.op("HardSwish", node), x, shape) == ["depthwise"]


@some
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 19))
def test_transposed_convolutions(taps: int, stride: int, pad: int, more: int, outs: int) -> None:
    x, y, shape = image()
    taps = max(taps, stride)
    pad, more = min(pad, taps - 1), min(more, stride - 1)
    weight, bias = pt.constant(normal(20, outs, taps, taps)), pt.constant(normal(outs))
    node = pt.op("ConvTranspose", y, weight, bias, strides=[stride] * 2, pads=[pad] * 4, output_padding=[more] * 2)
    phases = 4 if taps % stride else 1
    assert kinds(pt.op("Relu", node), x, shape) == [*["blocked convolution"] * phases, "interleave"]


def test_an_infinite_pixel_meets_the_taps_that_there_are() -> None:
    _, y, shape = image(20, 3, 4)
    weight = np.full((20, 3, 3, 3), 0.5, np.float32)
    graph = pt.Graph([pt.op("ConvTranspose", y, pt.constant(weight), strides=[2, 2])])
    given_x = normal(*shape)
    given_x[0, 2, 1, 1] = np.inf
    model = pt.compile(graph, "cpu", config={"CACHE_DIR": ""})
    np.testing.assert_allclose(model(given_x)[0], pt.compile(graph, "reference")(given_x)[0], 1e-5, 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_resize(mode: str, coordinates: str) -> None:
    x, y, shape = image()
    scales = pt.constant(np.array([1, 1, 2, 4 if mode == "nearest" else 2.5], np.float32))
    node = pt.op("Resize", y, None, scales, mode=mode, coordinate_transformation_mode=coordinates)
    assert kinds(node, x, shape) == ["resize"]


def test_resize_to_sizes() -> None:
    x, y, shape = image()
    node = pt.op("Resize", y, None, None, pt.constant(np.array([2, 20, 17, 31])), mode="linear")
    assert kinds(node, x, shape) == ["resize"]


@pytest.mark.parametrize("attributes", [{"size": 5, "alpha": 0.1}, {"size": 4, "alpha": 0.3, "beta": 0.6, "bias": 2.0}], ids=str)
def test_response_normalisation(attributes: dict[str, Any], lanes: int) -> None:
    x, y, shape = image()
    assert kinds(pt.op("LRN", y, **attributes), x, shape) == ["lrn"]


def shuffled(x: pt.Node, channels: int, rows: int, *sizes: int) -> pt.Node:
    split = pt.op("Reshape", x, pt.constant(np.array([2, rows, channels // rows, *sizes])))
    turned = pt.op("Transpose", split, perm=[0, 2, 1, 3, 4])
    return pt.op("Reshape", turned, pt.constant(np.array([2, channels, *sizes])))


def test_a_shuffle_costs_nothing_before_convolutions(lanes: int) -> None:
    x, y, shape = image(40)
    first = convolved(y, 40, 40, group=4)
    deep = convolved(shuffled(first, 40, 4, 9, 10), 40, 40, 3, group=40, pads=[1] * 4)
    last = pt.op("Relu", pt.op("Add", convolved(deep, 40, 40, group=4), y))
    assert kinds(last, x, shape) == ["blocked convolution", "depthwise", "blocked convolution"]


def test_a_shuffle_that_somebody_sees(lanes: int) -> None:
    x, y, shape = image(20)
    assert kinds(pt.op("MaxPool", shuffled(y, 20, 4, 9, 10), kernel_shape=[2, 2]), x, shape)[:1] == ["shuffle"]


def test_channels_side_by_side(lanes: int) -> None:
    x, y, shape = image(32)
    both = pt.op("Concat", y, pt.op("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4), y, axis=1)
    assert "concat" in kinds(pt.op("Relu", both), x, shape)


def test_values_side_by_side_are_copied_in_one_loop(lanes: int) -> None:
    x, y, shape = image(32)
    several = [y, pt.op("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4), convolved(y, 32, 48), y]
    joined = pt.op("Relu", pt.op("Concat", *several, axis=1))
    model = check(pt.Graph([joined], inputs=[x]), [normal(*shape)], LIMIT)
    (text,) = [kernel.text for kernel in model.kernels() if kernel.schedule == "concat"]
    assert text.count("y0[") == 1


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.thinned(2)
def test_groups_that_share_blocks(groups: int, lanes: int) -> None:
    x, y, shape = image(42)
    assert kinds(convolved(y, 42, 30, 3, group=groups, pads=[1] * 4), x, shape) == ["blocked convolution"]


def test_what_follows_a_convolution_in_any_spelling() -> None:
    x, y, shape = image()
    scale = pt.op("Sigmoid", convolved(pt.op("GlobalAveragePool", y), 20, 20))
    result = convolved(y, 20, 20, 3, pads=[1] * 4)
    swish = pt.op("Mul", result, pt.op("Sigmoid", result))
    gelu = pt.op("Gelu", pt.op("Add", convolved(pt.op("Mul", swish, scale), 20, 20), y))
    assert kinds(gelu, x, shape).count("chain") == 0


def test_many_channels_are_walked_in_chunks(lanes: int) -> None:
    x = pt.variable("x", "float32", (1, 512, 7, 7))
    y = pt.op("Relu", convolved(x, 512, 40, 3, pads=[1] * 4))
    check(pt.Graph([y], inputs=[x]), [normal(1, 512, 7, 7)], LIMIT)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [1, 5, 20])
def test_a_window_as_wide_as_the_image(channels: int, stride: int) -> None:
    """Models of text have such windows: positions of the result are a row apart."""
    x = pt.variable("x", "float32", (2, channels, 19, 6))
    weight = pt.constant(normal(9, channels, 3, 6))
    y = pt.op("Relu", pt.op("Conv", x, weight, pt.constant(normal(9)), strides=[stride, 1], dilations=[2, 1]))
    check(pt.Graph([y], inputs=[x]), [normal(2, channels, 19, 6)], LIMIT)


@pytest.mark.parametrize(
    ("ins", "outs", "size"), [(128, 512, 28), (512, 128, 28), (1024, 256, 14), (64, 24, 30), (128, 16, 55)]
)
def test_a_tile_of_neighbouring_pixels_leaves_registers_for_what_is_read_ahead(ins: int, outs: int, size: int) -> None:
    window = Window((size, size), (size, size), (1, 1), (1, 1), (1, 1), (0, 0)).flat()
    shape = BlockedShape(window=window, batch=1, channels=ins, outs=outs, groups=1, plain=False, shuffled=False)
    bands = cut_bands(shape, Machine("cpu", "znver4", 1, 16, 32))
    assert bands.pixels <= (6 if bands.vectors == 2 else 8) and bands.pixels * bands.vectors >= 8


@pytest.mark.parametrize(("channels", "size"), [(512, 14), (512, 28), (256, 56), (128, 112), (128, 64), (512, 7), (384, 13)])
def test_a_tile_of_many_channels_divides_the_rows(channels: int, size: int) -> None:
    """Its pixels share an address then, and more of them fit the registers, so that chunks are longer."""
    window = Window((size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1))
    shape = BlockedShape(window=window, batch=1, channels=channels, outs=channels, groups=1, plain=False, shuffled=False)
    bands = cut_bands(shape, Machine("cpu", "znver4", 1, 16, 32))
    assert size % bands.pixels == 0 and bands.vectors == 2 and bands.shares
    assert not cut_bands(shape, Machine("cpu", "haswell", 1, 8, 16)).shares


def test_tiles_that_divide_the_rows_keep_to_registers() -> None:
    products, spills = products_and_spills(filtered(128, 28), Machine("cpu", "znver4", 1, 16, 32))
    assert products >= 27 and spills < products / 4, "28 of one step, the last of which is not counted"


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (128, 28)])
def test_addresses_of_pixels_stay_in_registers_of_their_own(channels: int, size: int) -> None:
    """LLVM computed four of them in one vector, and took them out of it again at each tap: a quarter more time."""
    body = make_body(filtered(channels, size, 8))
    text = build(body, Machine("cpu", "haswell", 1, 8, 16)).library.inspect_source("asm")
    lines = text[text.index("vfmadd") : text.rindex("vfmadd")].splitlines()
    assert not [line for line in lines if "vpextrq" in line]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pads", [[0] * 4, [1, 0, 1, 2]])
@pytest.mark.thinned(2)
def test_images_whose_rows_are_whole_tiles(stride: int, pads: list[int], lanes: int) -> None:
    x, blocked, shape = image(144, 29, 30 - pads[3])
    y = pt.op("Relu", convolved(blocked, 144, 48, 3, pads=pads, strides=[stride] * 2))
    check(pt.Graph([y], inputs=[x]), [normal(*shape)], LIMIT)


def test_bands_of_one_thread_do_not_overlap_where_a_few_more_divide_the_rows() -> None:
    window = Window((28, 28), (28, 28), (3, 3), (1, 1), (1, 1), (1, 1))
    shape = BlockedShape(window=window, batch=1, channels=512, outs=512, groups=1, plain=False, shuffled=False)
    bands = cut_bands(shape, Machine("cpu", "znver4", 1, 16, 32))
    assert bands.rows * bands.down == 28


def test_each_tap_of_a_large_filter_fetches_as_many_weights_ahead() -> None:
    """A core waits for few lines at a time: one that asks for those of nine taps at once stands still."""
    draft = blocked_convolution(make_body(filtered(512, 7)), Machine("cpu", "znver4", 1, 16, 32))
    assert draft is not None
    column, fetched, line = next(lines for lines in triples(str(draft.kernel)) if "prefetch" in lines[2])
    assert column.strip() == "for kw < 3:" and fetched.strip() == "unrolled q < 5:" and "kh * 3 + kw" in line


@pytest.mark.parametrize("size, fetched", [(28, {"x0", "x2"}), (7, set())])
def test_a_tile_of_a_large_image_fetches_what_the_next_one_reads_and_what_is_added(size: int, fetched: set[str]) -> None:
    draft = blocked_convolution(make_body(pointwise(128, 512, size)), Machine("cpu", "znver4", 1, 16, 32))
    assert draft is not None
    lines = [line.strip() for line in str(draft.kernel).splitlines() if "prefetch" in line]
    assert {name for name in ("x0", "x2") if any(f"prefetch({name}[" in line for line in lines)} == fetched


@pytest.mark.parametrize("size", [7, 14, 30])
def test_a_convolution_writes_out_one_step_that_reads_each_number_once(size: int) -> None:
    """LLVM's time grows with what is written out, and the kernel is no faster for it."""
    draft = blocked_convolution(make_body(filtered(512, size)), Machine("cpu", "znver4", 1, 16, 32))
    assert draft is not None
    lines = [line.strip() for line in str(draft.kernel).splitlines()]
    sums = [line for line in lines if line.startswith("acc[") and "number" in line]
    loops = [line for line in lines if line == "for l < 16:"]
    assert loops and not any(line.startswith("unrolled l <") for line in lines)
    assert sums and sum(line.startswith("number0 := all(") for line in lines) == len(loops)
    assert not any("all(" in line or "x0" in line for line in sums)


def triples(text: str) -> list[tuple[str, str, str]]:
    """Every three neighbouring lines."""
    lines = text.splitlines()
    return list(zip(lines, lines[1:], lines[2:]))
