"""Products of quantized values, by every instruction: held against exact sums, and against the portable code for each."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import instruction_for_bytes
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteCut, ByteShape, make_cut
from partita.accelerators.tvm.kernels.shared.window import Window
from partita.accelerators.tvm.machine.instructions import BY_NAME, INSTRUCTIONS, Used
from partita.accelerators.tvm.machine.machine import Machine, with_instruction
from partita.accelerators.tvm.machine.processor import host_features
from partita.graph.types import Array
from tests.accelerators.tvm.quantizing import Layer, dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, number
from tests.close import is_close

pytest.importorskip("tvm")

NAMES = [instruction.name for instruction in INSTRUCTIONS if instruction.multiplies == "int8"]

LAYERS = {
    "image": Layer(3, 16, (11, 19), (3, 5), (2, 2), pads=(1, 2, 1, 2)),
    "pixels": Layer(64, 40, (5, 7)),
    "samples": Layer(8, 20, (9, 7), strides=(2, 2), dtype="int8", point=-3, stored="int8", after=-1),
    "window": Layer(12, 33, (8, 6), (3, 3), dilations=(1, 2), pads=(0, 1, 2, 1), relu=True, batch=2),
    "squares": Layer(12, 33, (8, 7), (3, 3), pads=(1, 1, 1, 1), relu=True, batch=2),
    "squares of groups": Layer(10, 24, (5, 2), (3, 3), pads=(0, 1, 1, 2), group=2, dtype="int8", point=-7),
    "one square": Layer(40, 16, (4, 4), (3, 3)),
    "channels": Layer(7, 5, (4, 6), (2, 2), biased=False),
    "each channel": Layer(20, 20, (9, 8), (3, 3), (2, 1), pads=(1, 1, 1, 1), group=20, batch=2, relu=True),
    "each of few channels": Layer(5, 5, (6, 7), (3, 2), dilations=(2, 1), group=5, dtype="int8", point=4),
    "groups": Layer(16, 36, (6, 6), (3, 3), pads=(1, 1, 1, 1), group=4),
    "groups of odd sizes": Layer(18, 30, (6, 5), (3, 2), pads=(1, 0, 1, 1), group=3, dtype="int8", point=-7),
    "large groups": Layer(24, 72, (8, 7), (3, 3), (1, 2), pads=(1, 1, 1, 1), group=2),
    "many of an image": Layer(3, 40, (9, 11), (5, 5), (2, 1), pads=(2, 2, 2, 2)),
    "several of each channel": Layer(10, 30, (5, 6), (3, 3), pads=(1, 1, 1, 1), group=10, batch=2),
}


def made_by(graph: pt.Graph, inputs: list[Array], name: str, **config: int) -> list[Array]:
    """What an instruction makes."""
    return compiled(graph, INTEGERS=name, **config).run(inputs, [None] * len(graph.outputs))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_convolution_is_exact(kind: str, name: str) -> None:
    layer = LAYERS[kind]
    model = compiled(layer.graph(), INTEGERS=name, NUM_THREADS=1)
    kernels = [launch.layer_type for launch in model.launches if launch.layer_type not in ("Transpose", "Shift")]
    root = "Depthwise" if layer.group == layer.channels else "Product"
    kernels = [kernel for kernel in kernels if kernel != "Expand"]
    assert kernels == [f"{root}+Relu+QuantizeLinear" if layer.relu else f"{root}+QuantizeLinear"]
    x = layer.given()
    assert np.array_equal(model.run([x], [None])[0], layer.expected(x))


def cut_of(layer: Layer, name: str) -> ByteCut:
    """How an instruction's kernel cuts a layer."""
    pads = layer.pads
    spans = [(k - 1) * d + 1 for k, d in zip(layer.taps, layer.dilations, strict=True)]
    seen = (layer.size[0] + pads[0] + pads[2], layer.size[1] + pads[1] + pads[3])
    rows, columns = ((n - span) // step + 1 for n, span, step in zip(seen, spans, layer.strides, strict=True))
    window = Window(layer.size, (rows, columns), layer.taps, layer.strides, layer.dilations, (pads[0], pads[1]))
    shape = ByteShape(layer.batch, window, layer.channels, layer.outs, layer.group, layer.channels <= 4)
    return make_cut(shape, with_instruction(Machine("cpu", "haswell", 1, 8, 16), name))


def test_an_instruction_with_room_for_larger_numbers_computes_squares() -> None:
    several = {kind: layer for kind, layer in LAYERS.items() if layer.group < layer.channels}
    wanted = {"squares", "squares of groups", "one square", "groups"}
    assert {kind for kind, layer in several.items() if cut_of(layer, "avx2").shape.is_winograd} == wanted
    assert not any(cut_of(LAYERS["squares"], name).shape.is_winograd for name in NAMES if name != "avx2")
    deepest = Layer(1218, 8, (2, 2), (3, 3), pads=(1, 1, 1, 1))
    deeper = attrs.evolve(deepest, channels=1219)
    assert cut_of(deepest, "avx2").shape.is_winograd and not cut_of(deeper, "avx2").shape.is_winograd


def test_with_many_columns_half_of_the_multiplications_are_left_out() -> None:
    several = {kind: layer for kind, layer in LAYERS.items() if layer.group < layer.channels}
    wanted = {"pixels", "window", "large groups", "many of an image"}
    assert {kind for kind, layer in several.items() if cut_of(layer, "avx2").tile.crosses} == wanted
    assert not any(cut_of(LAYERS["pixels"], name).tile.crosses for name in NAMES if name != "avx2")
    assert cut_of(Layer(18828, 64, (16, 1)), "avx2").tile.crosses and not cut_of(Layer(18832, 64, (16, 1)), "avx2").tile.crosses


@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_with_half_of_the_multiplications_are_exact(weight: int) -> None:
    rows = np.full((16, 18828), 255, "uint8")
    rows[::3] = 0
    x, columns = pt.variable("x", "uint8", rows.shape), np.full((18828, 64), weight, "int8")
    node = pt.op("MatMulInteger", x, pt.constant(columns))
    (sums,) = made_by(pt.apply_pass(pt.Graph([node]), "InferShape"), [rows], "avx2", NUM_THREADS=1)
    assert np.array_equal(sums, np.broadcast_to(18828 * weight * rows[:, :1].astype(int), (16, 64)))


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 1), (-1, 1, -1), (1, 1, -1)])
def test_the_largest_sums_of_squares_are_exact(signs: tuple[int, int, int]) -> None:
    """As many channels as fit, with the signs that make sums of weights and of the image the largest."""
    weight = np.where(np.outer(signs, signs) > 0, 127, -128).astype("int8") * np.ones((8, 1218, 1, 1), "int8")
    image = np.where(np.add.outer(np.arange(6), np.arange(5)) % 3 == 0, 0, 255).astype("uint8")
    given = np.broadcast_to(image, (1, 1218, 6, 5)).copy()
    node = pt.op("ConvInteger", pt.variable("x", "uint8", given.shape), pt.constant(weight))
    (sums,) = made_by(pt.apply_pass(pt.Graph([node]), "InferShape"), [given], "avx2")
    seen = np.lib.stride_tricks.sliding_window_view(image.astype(int), (3, 3))
    assert np.array_equal(sums[0], np.broadcast_to(1218 * (seen * weight[0, 0]).sum((2, 3)), (8, 4, 3)))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Convolutions of every shape, small."""
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    group = draw(st.sampled_from((1, 1, 2, 0)))
    channels = draw(st.integers(2, 40)) if group < 2 else 2 * draw(st.integers(1, 9))
    outs = group * draw(st.integers(1, 40)) if group else channels * draw(st.integers(1, 3))
    group = group or channels
    taps, dilations = pair(1, 3), pair(1, 2)
    pads = (*pair(0, taps[0]), *pair(0, taps[1]))
    sizes = tuple((k - 1) * d + draw(st.integers(1, 9)) for k, d in zip(taps, dilations, strict=True))
    dtype, result = draw(st.sampled_from(("uint8", "int8"))), draw(st.sampled_from(("uint8", "int8")))
    low = 0 if dtype == "uint8" else -128
    strides = pair(1, 2)
    if draw(st.booleans()):
        taps, strides, dilations, sizes = (3, 3), (1, 1), (1, 1), pair(4, 12)
    return Layer(
        channels, outs, sizes, taps, strides, dilations, pads, group, draw(st.integers(1, 2)),
        draw(st.integers(low, low + 255)), dtype, draw(st.integers(0, 100)), result, draw(st.booleans()), draw(st.booleans()),
    )


def check_one(layer: Layer, name: str, threads: int) -> None:
    x = layer.given()
    (result,) = made_by(layer.graph(), [x], name, NUM_THREADS=threads)
    assert np.array_equal(result, layer.expected(x))


@pytest.mark.parametrize(
    "layer",
    [
        Layer(64, 32, (20, 3), (3, 3)),
        Layer(64, 16, (40, 3), (3, 3), (2, 1)),
        Layer(64, 32, (40, 2), strides=(1, 2)),
        Layer(64, 32, (40, 1), (3, 3), pads=(1, 1, 1, 1)),
        Layer(64, 16, (33, 5), (2, 5), (1, 3), pads=(0, 0, 1, 0), batch=2),
    ],
    ids=str,
)
def test_rows_of_a_single_column_are_rows_of_a_tile_register(layer: Layer) -> None:
    assert cut_of(layer, "amx-int8").unit is not None
    check_one(layer, "amx-int8", 1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layer=layers(), threads=st.sampled_from((1, 2)))
@pytest.mark.thinned(2)
def test_any_convolution_is_exact(layer: Layer, name: str, threads: int) -> None:
    check_one(layer, name, threads)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layer=layers(), threads=st.sampled_from((1, 2)))
def test_very_many_convolutions_are_exact(layer: Layer, name: str, threads: int) -> None:
    check_one(layer, name, threads)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["window", "image", "squares", "large groups"])
@pytest.mark.parametrize("name", NAMES[:-1])
def test_an_instruction_and_the_code_that_stands_for_it_make_the_same_bits(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not BY_NAME[name].is_here(host_features()):
        pytest.skip(f"this processor has no {name}")
    layer = LAYERS[kind]
    x = layer.given(5)
    real = made_by(layer.graph(), [x], name)

    def emulated(machine: Machine, name: str) -> Machine:
        return attrs.evolve(machine, instructions=(Used(name, is_emulated=True),)) if name else machine

    monkeypatch.setattr("partita.accelerators.tvm.cpu.with_instruction", emulated)
    assert np.array_equal(real, made_by(layer.graph(), [x], name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "depth", "columns", "turned"), [(1, 64, 40, True), (13, 30, 33, False), (5, 7, 3, True)])
@pytest.mark.thinned(2)
def test_a_product_of_matrices_is_exact(name: str, rows: int, depth: int, columns: int, turned: bool) -> None:
    layer = Layer(depth, columns, (rows, 1))
    weight = layer.weight[:, :, 0, 0]
    inputs = [
        dequantized(pt.variable("x", "uint8", (rows, depth)), layer.scale, layer.point),
        dequantized(weight if turned else weight.T, layer.scales, axis=0 if turned else 1),
        dequantized(layer.bias, layer.scale * layer.scales, axis=0),
    ]
    result = quantized(pt.op("Gemm", *inputs, transB=int(turned)), float(layer.result), layer.after)
    x = integers(0, (rows, depth), "uint8")
    (outcome,) = made_by(pt.apply_pass(pt.Graph([result]), "InferShape"), [x], name)
    assert np.array_equal(outcome, layer.expected(x.T[None, :, :, None])[0, :, :, 0].T)


def test_a_bias_of_numbers_is_added_to_the_numbers() -> None:
    x, weight = pt.variable("x", "uint8", (3, 4, 16)), integers(1, (16, 24), "int8")
    bias = np.random.default_rng(4).standard_normal(24).astype("f")
    node = pt.op("Add", pt.op("MatMul", dequantized(x, 0.02, 7), dequantized(weight, 0.01)), pt.constant(bias))
    model = compiled(pt.apply_pass(pt.Graph([node]), "InferShape"))
    given = integers(0, (3, 4, 16), "uint8")
    assert [launch.layer_type for launch in model.launches] == ["Product+Add"]
    wanted = (given.astype(int) - 7) @ weight.astype(int) * (0.02 * 0.01) + bias
    assert is_close(model.run([given], [None])[0], wanted)


def test_weights_without_a_sign_are_moved_where_they_fit() -> None:
    weight = integers(1, (8, 4), "uint8")
    weight[0, 0] = 255
    x, given = pt.variable("x", "uint8", (3, 8)), integers(0, (3, 8), "uint8")
    for point, op in ((128, "Product"), (117, "MatMul")):
        node = pt.op("MatMul", dequantized(x, 0.5, 3), dequantized(weight, 0.25, point, dtype="uint8"))
        model = compiled(pt.apply_pass(pt.Graph([node]), "InferShape"))
        assert op in model.launches[-1].layer_type
        wanted = (given.astype(int) - 3) @ (weight.astype(int) - point) * 0.125
        assert np.allclose(model.run([given], [None])[0], wanted)


def test_a_clip_between_a_convolution_and_its_rounding_is_part_of_it() -> None:
    layer = Layer(8, 16, (4, 4))
    x = pt.variable("x", "uint8", (1, 8, 4, 4))
    inputs = dequantized(x, layer.scale, layer.point), dequantized(layer.weight, layer.scales, axis=0)
    clipped = pt.op("Clip", pt.op("Conv", *inputs), number(0.0), number(6.0))
    model = compiled(pt.apply_pass(pt.Graph([quantized(clipped, 0.0625, 0)]), "InferShape"))
    assert "Product+Clip+QuantizeLinear" in [launch.layer_type for launch in model.launches]
    given = layer.given()
    numbers = (layer.sums(given) - layer.bias[:, None, None]).astype("f") * (layer.scale * layer.scales)[:, None, None]
    assert np.array_equal(model.run([given], [None])[0], np.rint(np.clip(numbers, 0, 6) / np.float32(0.0625)).astype("uint8"))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_a_machine_without_any_of_the_instructions_has_the_plain_way(lanes: int) -> None:
    machine = Machine("cpu", "generic", 1, lanes)
    assert instruction_for_bytes(machine).function is None and instruction_for_bytes(machine).lanes == lanes
    assert instruction_for_bytes(with_instruction(machine, "avx2")).lanes == 8
