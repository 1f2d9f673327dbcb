"""Transposed convolutions and resizes of quantized values, held against exact sums and against numpy."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.machine.instructions import INSTRUCTIONS
from partita.graph.interpret import interpret
from partita.graph.types import Array
from tests.accelerators.tvm.quantizing import dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")

NAMES = [row.name for row in INSTRUCTIONS if row.multiplies == "int8"]


@attrs.frozen
class Transposed:
    """A transposed convolution between DequantizeLinear and QuantizeLinear."""

    channels: int
    outs: int
    size: tuple[int, int]
    taps: tuple[int, int] = (2, 2)
    strides: tuple[int, int] = (2, 2)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    more: tuple[int, int] = (0, 0)
    dtype: str = "uint8"
    point: int = 9
    batch: int = 1
    is_bias_whole: bool = True
    for_each: bool = True
    dilations: tuple[int, int] = (1, 1)
    group: int = 1

    scale = np.float32(0.02)
    result = np.float32(0.3)

    @property
    def weight(self) -> Array:
        return integers(1, (self.channels, self.outs // self.group, *self.taps), "int8")

    @property
    def scales(self) -> Array:
        count = self.outs // self.group if self.for_each else 1
        depth = self.channels // self.group * self.taps[0] * self.taps[1]
        return np.random.default_rng(2).uniform(0.02, 0.04, count).astype("f") / np.float32(np.sqrt(depth))

    @property
    def bias(self) -> Array:
        return np.random.default_rng(3).integers(-3000, 3000, self.outs).astype(np.int32)

    @property
    def given(self) -> Array:
        return integers(0, (self.batch, self.channels, *self.size), self.dtype)

    def graph(self) -> pt.Graph:
        """The op by itself."""
        x = dequantized(pt.variable("x", self.dtype, self.given.shape), self.scale, self.point)
        scales = self.scales if self.for_each else self.scales[0]
        weight = dequantized(self.weight, scales, axis=1)
        factor = self.scale * (np.tile(scales, self.group) if self.for_each else scales)
        whole = dequantized(self.bias, factor, axis=0)
        numbers = pt.constant(np.asarray(self.bias * factor, np.float32))
        bias = whole if self.is_bias_whole else numbers
        node = pt.op(
            "ConvTranspose", x, weight, bias, strides=self.strides, pads=self.pads, output_padding=self.more,
            dilations=self.dilations, group=self.group,
        )
        return pt.apply_pass(pt.Graph([quantized(node, float(self.result), 3)]), "InferShape")

    def expected(self) -> Array:
        """The exact sums, scaled once, rounded half to even, saturated."""
        x, weight = self.given.astype(np.int64) - self.point, self._spread_weight()
        (down, across), (top, left, bottom, right) = self.strides, self.pads
        spread = [(n - 1) * s + k + m for n, s, k, m in zip(self.size, self.strides, weight.shape[2:], self.more, strict=True)]
        total = np.zeros((self.batch, self.outs, *spread), np.int64)
        for y, z in np.ndindex(*self.size):
            total[:, :, y * down :, z * across :][:, :, : weight.shape[2], : weight.shape[3]] += np.einsum(
                "nc,cohw->nohw", x[:, :, y, z], weight
            )
        total = total[:, :, top : spread[0] - bottom, left : spread[1] - right] + self.bias[:, None, None]
        scales = np.tile(self.scales, self.group if self.for_each else 1).astype("d")
        factor = (self.scale.astype("d") * scales).astype("f").astype("d") / self.result.astype("d")
        numbers = total.astype("f") * factor.astype("f")[:, None, None]
        return np.clip(np.rint(numbers) + 3, 0, 255).astype("uint8")

    def _spread_weight(self) -> Array:
        """[channels, results, taps] with zeros between the groups and between the taps."""
        own = self.outs // self.group
        sizes = [(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True)]
        spread = np.zeros((self.channels, self.outs, *sizes), np.int64)
        for channel, weight in enumerate(self.weight):
            first = channel // (self.channels // self.group) * own
            spread[channel, first : first + own, :: self.dilations[0], :: self.dilations[1]] = weight
        return spread


CASES = {
    "phases": Transposed(16, 8, (5, 7)),
    "overlapping": Transposed(12, 20, (4, 6), (4, 4), (2, 2), (1, 1, 1, 1), dtype="int8", point=-3),
    "unequal": Transposed(6, 5, (4, 3), (3, 2), (2, 3), (1, 0, 0, 1), (1, 0), batch=2),
    "one scale": Transposed(8, 17, (3, 5), (3, 3), (1, 1), (1, 1, 1, 1), for_each=False),
}

IN_GROUPS = {
    "groups": Transposed(12, 18, (4, 5), (3, 2), group=3, pads=(1, 0, 0, 1), dtype="int8", point=5, for_each=False),
    "each channel": Transposed(20, 40, (4, 3), (4, 4), (2, 2), (1, 1, 1, 1), group=20),
    "dilated": Transposed(8, 6, (5, 4), (3, 2), (1, 2), (2, 0, 1, 0), dilations=(2, 3), group=2),
    "one result of each group": Transposed(9, 3, (5, 4), (2, 3), (1, 1), (1, 0, 0, 1), group=3),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_transposed_convolution_is_exact(kind: str, name: str) -> None:
    case = CASES[kind]
    model = compiled(case.graph(), INTEGERS=name)
    types = [launch.layer_type for launch in model.launches]
    assert "Product+QuantizeLinear" in types and "Interleave" in types
    assert np.array_equal(model.run([case.given], [None])[0], case.expected())


@pytest.mark.parametrize("kind", IN_GROUPS)
def test_groups_and_taps_that_are_spread_are_exact(kind: str) -> None:
    case = IN_GROUPS[kind]
    model = compiled(case.graph())
    root = "Depthwise" if case.group == case.channels else "Product"
    assert f"{root}+QuantizeLinear" in [launch.layer_type for launch in model.launches]
    assert np.array_equal(model.run([case.given], [None])[0], case.expected())


def test_a_bias_of_numbers_is_added_before_the_phases_are_dealt_out() -> None:
    case = attrs.evolve(CASES["phases"], is_bias_whole=False)
    (result,) = compiled(case.graph()).run([case.given], [None])
    off = np.abs(result.astype(int) - case.expected())
    assert off.max() <= 1 and (off > 0).mean() < 5e-3


@st.composite
def cases(draw: st.DrawFn) -> Transposed:
    """Transposed convolutions of every shape, small."""
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    taps, strides = pair(1, 4), pair(1, 3)
    pads = tuple(draw(st.integers(0, (k - 1) // 2)) for k in (*taps, *taps))
    more = tuple(draw(st.integers(0, s - 1)) for s in strides)
    dtype = draw(st.sampled_from(("uint8", "int8")))
    low = 0 if dtype == "uint8" else -128
    group = draw(st.sampled_from((1, 1, 2, 5)))
    return Transposed(
        group * draw(st.integers(1, 8)), group * draw(st.integers(1, 9)), pair(2, 6), taps, strides,
        pads, more, dtype, draw(st.integers(low, low + 255)), draw(st.integers(1, 2)), for_each=draw(st.booleans()),  # type: ignore[arg-type]
        dilations=draw(st.sampled_from(((1, 1), (1, 1), (1, 2), (2, 1)))), group=group,
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
@pytest.mark.thinned(2)
def test_any_transposed_convolution_is_exact(case: Transposed, name: str) -> None:
    assert np.array_equal(compiled(case.graph(), INTEGERS=name).run([case.given], [None])[0], case.expected())


def resized(mode: str, channels: int, **attributes: object) -> pt.Graph:
    """A convolution of bytes whose result is made larger."""
    x = dequantized(pt.variable("x", "uint8", (2, 8, 5, 6)), 0.05, 100)
    weight = dequantized(integers(1, (channels, 8, 1, 1), "int8"), 0.002)
    first = dequantized(quantized(pt.op("Conv", x, weight), 0.05, 90), 0.05, 90, dtype="uint8")
    scales = pt.constant(np.array([1, 1, 2, 3], "f"))
    larger = pt.op("Resize", first, None, scales, mode=mode, **attributes)
    return pt.apply_pass(pt.Graph([quantized(larger, 0.05, 90)]), "InferShape")


@pytest.mark.parametrize("channels", [16, 5])
def test_pixels_that_are_taken_as_they_are_stay_bytes(channels: int) -> None:
    graph = resized("nearest", channels, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    model, x = compiled(graph), integers(0, (2, 8, 5, 6), "uint8")
    assert [launch.layer_type for launch in model.launches][1:3] == ["Product+QuantizeLinear", "Resize"]
    assert (model.run([x], [None])[0] != interpret(graph, [x])[0]).mean() < 5e-3


@pytest.mark.parametrize("channels", [16, 21])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_mixtures_of_pixels_are_made_and_rounded_in_one_kernel(mode: str, channels: int) -> None:
    graph = resized("linear", channels, coordinate_transformation_mode=mode)
    model, x = compiled(graph), integers(0, (2, 8, 5, 6), "uint8")
    assert [launch.layer_type for launch in model.launches][1:3] == ["Product+QuantizeLinear", "Mix+QuantizeLinear"]
    off = np.abs(model.run([x], [None])[0].astype(int) - interpret(graph, [x])[0])
    assert off.max() <= 1 and (off > 0).mean() < 0.2


def of_rank(rank: int, dilations: list[int] | None, is_quantized: bool) -> pt.Graph:
    """A transposed convolution of signals, images or volumes."""
    sizes, draw = [50, 9, 7][:rank], np.random.default_rng(0)
    weight = draw.integers(-127, 127, (16, 8) + (3,) * rank)
    x, step, small = pt.variable("x", "float32", (1, 16, *sizes)), np.float32(0.05), np.float32(0.01)
    attributes = {"strides": [2] * rank} | ({} if dilations is None else {"dilations": dilations})
    if not is_quantized:
        return pt.Graph([pt.op("ConvTranspose", x, pt.constant((weight * small).astype("f")), **attributes)])
    scale, point = pt.constant(step), pt.constant(np.uint8(128))
    given = pt.op("DequantizeLinear", pt.op("QuantizeLinear", x, scale, point), scale, point)
    taps = pt.op("DequantizeLinear", pt.constant(weight.astype(np.int8)), pt.constant(small), pt.constant(np.int8(0)))
    result = pt.op("QuantizeLinear", pt.op("ConvTranspose", given, taps, **attributes), scale, point)
    return pt.Graph([pt.op("DequantizeLinear", result, scale, point)])


@pytest.mark.parametrize("is_quantized", [True, False])
@pytest.mark.parametrize(("rank", "dilations"), [(1, None), (1, [1]), (1, [2]), (3, None), (3, [1, 1, 1])])
def test_signals_and_volumes_are_enlarged_too(rank: int, dilations: list[int] | None, is_quantized: bool) -> None:
    """The stated dilations have as many numbers as there are positions, or are left out."""
    graph = of_rank(rank, dilations, is_quantized)
    model = compiled(graph)
    given = np.random.default_rng(1).standard_normal([int(size) for size in graph.inputs[0].output_types[0].shape]).astype("f")
    (result,), (wanted,) = model.run([given]), interpret(graph, [given])
    assert np.abs(result - wanted).max() <= (0.0501 if is_quantized else 1e-4)
    assert not is_quantized or (result != wanted).mean() < 0.02
    if rank == 1 and dilations != [2]:
        assert not any(schedule in ("generic", "parallel") for schedule in schedules(model)), schedules(model)
