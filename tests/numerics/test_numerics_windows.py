"""Convolution and pooling against nested loops in float64, with odd sizes, strides, pads, dilations and groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph.numerics import evaluate


@dataclass(frozen=True)
class Geometry:
    """Sizes that leave at least one whole window."""

    sizes: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
        }


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """One to three spatial axes; padding is smaller than the kernel, as engines demand of pooling."""
    axes = draw(st.integers(1, 3))
    per_axis = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides, dilations = draw(per_axis), draw(per_axis), draw(per_axis)
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [extent + draw(st.integers(0, 5)) for extent in extents]
    return Geometry(sizes, kernel, strides, dilations, pads)


def _windows(g: Geometry, ceil_mode: bool = False) -> Any:
    """For each output pixel, the input pixels that its taps fall on, in padded coordinates."""
    counts = []
    for i, size in enumerate(g.sizes):
        room = size + g.pads[i] + g.pads[i + len(g.sizes)] - ((g.kernel[i] - 1) * g.dilations[i] + 1)
        count = -(-room // g.strides[i]) + 1 if ceil_mode else room // g.strides[i] + 1
        if ceil_mode and (count - 1) * g.strides[i] >= size + g.pads[i]:
            count -= 1
        counts.append(count)
    for position in product(*map(range, counts)):
        taps = [
            (
                tap,
                tuple(
                    o * s + t * d - p
                    for o, s, t, d, p in zip(position, g.strides, tap, g.dilations, g.pads, strict=False)
                ),
            )
            for tap in product(*map(range, g.kernel))
        ]
        yield counts, position, taps


def _inside(pixel: tuple[int, ...], sizes: list[int]) -> bool:
    return all(0 <= p < size for p, size in zip(pixel, sizes, strict=True))


def _numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@settings(max_examples=150, deadline=None)
@given(geometries(), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(0, 99))
def test_conv(g: Geometry, group: int, inputs: int, outputs: int, seed: int) -> None:
    x = _numbers(seed, 2, group * inputs, *g.sizes)
    w = _numbers(seed + 1, group * outputs, inputs, *g.kernel)
    b = _numbers(seed + 2, group * outputs)
    (output,) = evaluate("Conv", [x, w, b], {**g.attrs, "group": group}, version=11, n_outputs=1)
    wanted = np.zeros_like(output)
    for counts, position, taps in _windows(g):
        assert list(output.shape[2:]) == counts
        for o in range(group * outputs):
            first = o // outputs * inputs
            at = (slice(None), o, *position)
            wanted[at] = b[o]
            for (tap, source), c in product(taps, range(inputs)):
                if _inside(source, g.sizes):
                    wanted[at] += x[(slice(None), first + c, *source)] * w[(o, c, *tap)]
    np.testing.assert_allclose(output, wanted, rtol=1e-10, atol=1e-10)
    assert output.dtype == np.float64


@settings(max_examples=150, deadline=None)
@given(geometries(), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(0, 99))
def test_conv_transpose(g: Geometry, group: int, inputs: int, outputs: int, seed: int) -> None:
    x = _numbers(seed, 2, group * inputs, *g.sizes)
    w = _numbers(seed + 1, group * inputs, outputs, *g.kernel)
    n = len(g.sizes)
    pads = [0] * n + g.pads[n:]
    attrs = {**g.attrs, "group": group, "pads": pads}
    (output,) = evaluate("ConvTranspose", [x, w], attrs, version=11, n_outputs=1)
    full = [
        (i - 1) * s + (k - 1) * d + 1
        for i, s, k, d in zip(g.sizes, g.strides, g.kernel, g.dilations, strict=True)
    ]
    wanted = np.zeros((2, group * outputs, *full))
    for position in product(*map(range, g.sizes)):
        for tap, c, o in product(product(*map(range, g.kernel)), range(group * inputs), range(outputs)):
            target = tuple(
                p * s + t * d for p, s, t, d in zip(position, g.strides, tap, g.dilations, strict=True)
            )
            at = (slice(None), c // inputs * outputs + o, *target)
            wanted[at] += x[(slice(None), c, *position)] * w[(c, o, *tap)]
    kept = tuple(slice(0, size - p) for size, p in zip(full, pads[n:], strict=True))
    np.testing.assert_allclose(output, wanted[(slice(None), slice(None), *kept)], rtol=1e-10, atol=1e-10)


@settings(max_examples=150, deadline=None)
@given(geometries(), st.booleans(), st.integers(0, 99))
def test_max_pool(g: Geometry, ceil_mode: bool, seed: int) -> None:
    x = _numbers(seed, 2, 3, *g.sizes)
    attrs = {**g.attrs, "ceil_mode": int(ceil_mode)}
    output, indices = evaluate("MaxPool", [x], attrs, version=12, n_outputs=2)
    (alone,) = evaluate("MaxPool", [x], attrs, version=12, n_outputs=1)
    for counts, position, taps in _windows(g, ceil_mode):
        assert list(output.shape[2:]) == counts
        seen = [x[(slice(None), slice(None), *source)] for _, source in taps if _inside(source, g.sizes)]
        if seen:
            np.testing.assert_array_equal(output[(slice(None), slice(None), *position)], np.max(seen, axis=0))
    np.testing.assert_array_equal(output, alone)
    np.testing.assert_array_equal(x.reshape(-1)[indices][np.isfinite(output)], output[np.isfinite(output)])


@settings(max_examples=150, deadline=None)
@given(geometries(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_average_pool(g: Geometry, ceil_mode: bool, count_pads: bool, seed: int) -> None:
    x = _numbers(seed, 1, 2, *g.sizes)
    attrs = {**g.attrs, "ceil_mode": int(ceil_mode), "count_include_pad": int(count_pads)}
    (output,) = evaluate("AveragePool", [x], attrs, version=19, n_outputs=1)
    n = len(g.sizes)
    padded = [size + g.pads[i] + g.pads[i + n] for i, size in enumerate(g.sizes)]
    for counts, position, taps in _windows(g, ceil_mode):
        assert list(output.shape[2:]) == counts
        total = sum(x[(slice(None), slice(None), *s)] for _, s in taps if _inside(s, g.sizes))
        shifted = [tuple(p + pad for p, pad in zip(s, g.pads, strict=False)) for _, s in taps]
        stated = sum(_inside(s, padded) for s in shifted)
        real = sum(_inside(s, g.sizes) for _, s in taps)
        divisor = max(stated if count_pads else real, 1)
        np.testing.assert_allclose(
            output[(slice(None), slice(None), *position)], np.broadcast_to(total / divisor, (1, 2)), atol=1e-12
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_summed_in_float32(dtype: str) -> None:
    """4,096 ones: a float16 sum of them is right, but one that goes on in steps of 1 stops at 2,048."""
    import ml_dtypes

    kind = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}[dtype]
    x = np.ones((1, 4096, 2, 2)).astype(kind)
    (y,) = evaluate("Conv", [x, np.ones((1, 4096, 1, 1)).astype(kind)], {}, version=22, n_outputs=1)
    assert y.dtype == kind
    np.testing.assert_array_equal(y.astype(np.float32), 4096)


def test_the_mean_of_padding_alone() -> None:
    attrs = {"kernel_shape": [3, 3], "pads": [2, 1, 2, 1], "count_include_pad": 1}
    (means,) = evaluate("AveragePool", [np.ones((1, 2, 0, 5), np.float32)], attrs, version=22, n_outputs=1)
    assert np.array_equal(means, np.zeros((1, 2, 2, 5), np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_root_mean_square_of_many_halves(dtype: str) -> None:
    x, scale = np.full((2, 4096), 3).astype(dtype), np.ones(4096).astype(dtype)
    (normal,) = evaluate("RMSNormalization", [x, scale], {}, version=23, n_outputs=1)
    assert normal.dtype == x.dtype and (normal == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("op", "sizes", "attributes", "version", "value"),
    [
        ("Attention", [(1, 1, 1, 4), (1, 1, 4096, 4), (1, 1, 4096, 4)], {}, 23, 1),
        ("Attention", [(1, 1, 4), (1, 4096, 4), (1, 4096, 4)], {"q_num_heads": 1, "kv_num_heads": 1}, 23, 1),
        ("Sum", [(2, 3)] * 300, {}, 13, 300),
    ],
)
def test_sums_of_many_halves(
    op: str, sizes: list[tuple[int, ...]], attributes: dict[str, int], version: int, value: float, dtype: str
) -> None:
    """An attention to equal values has that value; in bfloat16 a sum that goes on in steps of 1 stops at 256."""
    inputs = [np.ones(shape).astype(dtype) for shape in sizes]
    (y,) = evaluate(op, inputs, attributes, version=version, n_outputs=1)
    assert y.dtype == inputs[0].dtype
    np.testing.assert_array_equal(y, np.full(y.shape, value).astype(dtype))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_products_of_halves(exclusive: int, reverse: int) -> None:
    x = np.full((3, 300), 1.0078125).astype("bfloat16")
    (y,) = evaluate("CumProd", [x, np.array(1)], {"exclusive": exclusive, "reverse": reverse}, version=26, n_outputs=1)
    exact = np.broadcast_to(1.0078125 ** (np.arange(300) + 1 - exclusive), x.shape)
    np.testing.assert_allclose(y.astype(np.float64), exact[:, ::-1] if reverse else exact, rtol=2**-8)


def test_attention_keeps_the_types_of_its_values() -> None:
    q, v = np.ones((1, 1, 2, 4)).astype("bfloat16"), np.ones((1, 1, 3, 4), np.float32)
    results = evaluate("Attention", [q, v.astype("bfloat16"), v], {}, version=23, n_outputs=4)
    assert [y.dtype.name for y in results] == ["bfloat16", "bfloat16", "float32", "bfloat16"]


def test_a_causal_mask_is_asked_for_by_one() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 4)).astype(np.float32)
    plain, odd, causal = (evaluate("Attention", [x] * 3, {"is_causal": n}, version=23, n_outputs=1)[0] for n in (0, 2, 1))
    np.testing.assert_array_equal(plain, odd)
    assert not np.array_equal(plain, causal)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_position_that_is_nan_gives_nan(mode: str, padding: str) -> None:
    image, positions = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.zeros((1, 1, 2, 2), np.float32)
    positions[0, 0, 0, 1] = np.nan
    attributes = {"mode": mode, "padding_mode": padding}
    (y,) = evaluate("GridSample", [image, positions], attributes, version=21, n_outputs=1)
    assert np.isnan(y[0, 0, 0, 0]) and np.isfinite(y[0, 0, 0, 1])


def test_sums_of_bytes_wrap_around() -> None:
    x, w, points = np.zeros((1, 70_000), np.uint8), np.full((70_000, 1), 255, np.uint8), [np.uint8(255), np.uint8(0)]
    wanted = -70_000 * 255 * 255 + 2**32
    for op, inputs in (("MatMulInteger", [x, w]), ("ConvInteger", [x[None], w.T[None]])):
        (sums,) = evaluate(op, [*inputs, *points], {}, version=10, n_outputs=1)
        assert sums.dtype == np.int32 and sums.item() == wanted, op


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool", "Conv"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_padding_to_the_same_size_makes_nothing_of_nothing(op: str, step: int) -> None:
    attrs = {"kernel_shape": [2], "auto_pad": "SAME_UPPER", "strides": [step], "dilations": [2]}
    x = np.zeros((1, 4, 0), np.float32)
    inputs = [x, np.ones((4, 4, 2), np.float32)] if op == "Conv" else [x]
    (y,) = evaluate(op, inputs, attrs, version=19, n_outputs=1)
    assert y.shape == (1, 4, 0)


def test_regions_of_no_extent_and_too_many_images() -> None:
    image, attrs = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6), {"output_height": 2, "output_width": 3}
    regions = np.array([[3, 3, 3, 3], [4, 1, 2, 5]], np.float32)
    (y,) = evaluate("RoiAlign", [image, regions, np.zeros(2, np.int64)], attrs, version=16, n_outputs=1)
    assert not y.any() and y.shape == (2, 1, 2, 3)
    with pytest.raises(ValueError, match="there are 2 regions, and the images of 3"):
        evaluate("RoiAlign", [image, regions, np.zeros(3, np.int64)], attrs, version=16, n_outputs=1)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (2, 1, 1, 4)])
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_a_causal_mask_beside_one_that_is_broadcast(shape: tuple[int, ...], kind: type) -> None:
    """The evaluator hides the future in as many rows and columns as the mask has that it is given."""
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((2, 4, 3)).astype(np.float32) for _ in "qkv")
    mask = np.ones(shape, bool) if kind is bool else random.random(shape).astype(np.float32)
    heads = {"q_num_heads": 1, "kv_num_heads": 1, "is_causal": 1}
    masks = (mask, np.broadcast_to(mask, (*shape[:-2], 4, 4)))
    results = [evaluate("Attention", [q, k, v, m], heads, version=23, n_outputs=1)[0] for m in masks]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 6), (4, 6), (2, 1, 1, 1), (2, 1, 4, 1)])
def test_a_mask_with_one_column_covers_the_past_too(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((2, 1, 4, 3)).astype(np.float32) for _ in "qkv")
    past = [random.standard_normal((2, 1, 2, 3)).astype(np.float32) for _ in "kv"]
    mask = random.random(shape).astype(np.float32)
    masks = (mask, np.broadcast_to(mask, (*shape[:-2], 4, 6)))
    results = [evaluate("Attention", [q, k, v, m, *past], {"is_causal": 1}, version=23, n_outputs=1)[0] for m in masks]
    np.testing.assert_array_equal(*results)


def test_attention_of_an_empty_batch() -> None:
    q, k = np.ones((0, 4, 3), np.float32), np.ones((0, 5, 3), np.float32)
    outputs = evaluate("Attention", [q, k, k], {"q_num_heads": 1, "kv_num_heads": 1}, version=23, n_outputs=3)
    assert [y.shape for y in outputs] == [(0, 4, 3), (0, 1, 5, 3), (0, 1, 5, 3)]
