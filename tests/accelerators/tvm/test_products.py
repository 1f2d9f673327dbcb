"""Convolutions and matrix products against numpy in double precision, on random shapes, and whole models against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.catalogue import fuse_kernels
from partita.accelerators.tvm.layouts.blocking import block
from partita.accelerators.tvm.machine.machine import Machine
from tests.accelerators.tvm.running import check, compiled, error, normals, products_and_spills, schedules
from tests.drawn import some

pytest.importorskip("tvm")

normal = normals(11)
LIMIT = 5e-6


def convolved(
    x: pt.Node,
    outs: int,
    taps: tuple[int, ...],
    group: int = 1,
    bias: bool = True,
    channels: int = 0,
    **attributes: Any,
) -> pt.Node:
    """A convolution of x, which says how many channels it has or is told, with random weights."""
    channels = (channels or x.output_types[0].shape[1]) // group
    weights = [pt.constant(normal(outs, channels, *taps)), *([pt.constant(normal(outs))] if bias else [])]
    return pt.op("Conv", x, *weights, group=group, **attributes)


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """A convolution of any geometry."""
    rank = draw(st.sampled_from([2, 2, 2, 1, 3]))

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    taps, strides, dilations, before, after = each(1, 4), each(1, 3), each(1, 2), each(0, 2), each(0, 2)
    least = [
        max((k - 1) * d + 1 - p - q, 1) for k, d, p, q in zip(taps, dilations, before, after, strict=True)
    ]
    sizes = [low + more for low, more in zip(least, each(2, 14 if rank < 3 else 5), strict=True)]
    group = draw(st.sampled_from([1, 1, 2, 5]))
    return {
        "shape": (draw(st.integers(1, 2)), group * draw(st.integers(1, 4)), *sizes),
        "outs": group * draw(st.integers(1, 13)),
        "taps": tuple(taps),
        "group": group,
        "bias": draw(st.booleans()),
        "strides": strides,
        "dilations": dilations,
        "pads": before + after,
    }


@some
@given(layers())
def test_convolution_of_any_geometry(layer: dict[str, Any]) -> None:
    layer = dict(layer)
    shape = layer.pop("shape")
    x = pt.variable("x", "float32", shape)
    y = convolved(x, **layer)
    check(pt.Graph([pt.op("Relu", y)], inputs=[x]), [normal(*shape)], LIMIT)


LAYERS = {
    "3x3": {"shape": (1, 16, 14, 14), "outs": 24, "taps": (3, 3), "pads": [1, 1, 1, 1]},
    "small image": {"shape": (2, 13, 7, 7), "outs": 11, "taps": (3, 3), "pads": [1, 1, 1, 1]},
    "1x1": {"shape": (2, 20, 14, 15), "outs": 9, "taps": (1, 1)},
    "1x1 with stride": {"shape": (1, 20, 14, 15), "outs": 9, "taps": (1, 1), "strides": [2, 3]},
    "1x1 with padding": {"shape": (1, 5, 8, 9), "outs": 9, "taps": (1, 1), "pads": [1, 0, 0, 2]},
    "1x1 on few places": {"shape": (1, 5, 3, 3), "outs": 9, "taps": (1, 1)},
    "stem": {"shape": (1, 3, 37, 41), "outs": 16, "taps": (7, 7), "strides": [2, 2], "pads": [3, 3, 3, 3]},
    "depthwise": {"shape": (1, 10, 20, 20), "outs": 10, "taps": (3, 3), "group": 10, "pads": [1, 1, 1, 1]},
    "depthwise with stride": {
        "shape": (2, 6, 21, 20),
        "outs": 12,
        "taps": (5, 5),
        "group": 6,
        "strides": [2, 2],
        "pads": [2, 2, 2, 2],
    },
    "same padding": {
        "shape": (1, 4, 15, 16),
        "outs": 5,
        "taps": (3, 4),
        "strides": [2, 2],
        "auto_pad": "SAME_LOWER",
    },
    "wide filter": {"shape": (1, 2, 30, 30), "outs": 3, "taps": (11, 9), "dilations": [2, 1]},
    "1d": {"shape": (2, 3, 100), "outs": 5, "taps": (5,), "strides": [2], "pads": [2, 2]},
    "3d": {"shape": (1, 3, 6, 7, 12), "outs": 5, "taps": (3, 3, 3), "pads": [1] * 6},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_convolution(layer: str, lanes: int) -> None:
    given_layer = dict(LAYERS[layer])
    shape: Any = given_layer.pop("shape")
    x = pt.variable("x", "float32", shape)
    result = check(pt.Graph([convolved(x, **given_layer)], inputs=[x]), [normal(*shape)], LIMIT)
    kind = {"1d": "convolution", "3d": "convolution", "depthwise": "depthwise"}.get(layer, "blocked convolution")
    assert kind in schedules(result)


def test_convolution_with_all_that_follows() -> None:
    x, other = pt.variable("x", "float32", (2, 8, 9, 9)), pt.variable("other", "float32", (1, 8, 1, 1))
    first = pt.op("LeakyRelu", pt.op("Add", convolved(x, 8, (3, 3), pads=[1, 1, 1, 1]), x), alpha=0.3)
    second = pt.op("Sigmoid", pt.op("Add", other, convolved(first, 8, (1, 1), bias=False, channels=8)))
    g = pt.Graph([second], inputs=[x, other])
    result = schedules(check(g, [normal(2, 8, 9, 9), normal(1, 8, 1, 1)], LIMIT))
    assert result.count("blocked convolution") == 2 and "chain" not in result


@some
@given(st.integers(1, 40), st.integers(1, 80), st.integers(1, 70), st.booleans(), st.booleans())
def test_product_of_any_sizes(rows: int, columns: int, depth: int, turned: bool, biased: bool) -> None:
    x = pt.variable("x", "float32", (rows, depth))
    weight = pt.constant(normal(columns, depth) if turned else normal(depth, columns))
    bias = [pt.constant(normal(columns))] if biased else []
    y = pt.op("Gemm", x, weight, *bias, transB=int(turned), alpha=0.5, beta=2.0)
    check(pt.Graph([pt.op("Relu", y)], inputs=[x]), [normal(rows, depth)], LIMIT)


def test_product_of_a_batch_with_all_that_follows(lanes: int) -> None:
    x, rest = pt.variable("x", "float32", (2, 5, 24)), pt.variable("rest", "float32", (2, 5, 37))
    y = pt.op("Add", pt.op("MatMul", x, pt.constant(normal(24, 37))), pt.constant(normal(37)))
    g = pt.Graph([pt.op("Add", pt.op("Gelu", y), rest)], inputs=[x, rest])
    assert schedules(check(g, [normal(2, 5, 24), normal(2, 5, 37)], LIMIT)) == ["gemm"]


def test_products_of_two_values_are_left_alone() -> None:
    x, y = pt.variable("x", "float32", (20, 20)), pt.variable("y", "float32", (20, 20))
    assert "gemm" not in schedules(
        check(pt.Graph([pt.op("MatMul", x, y)], inputs=[x, y]), [normal(20, 20), normal(20, 20)], LIMIT)
    )


def test_sums_stay_in_registers() -> None:
    x = pt.variable("x", "float32", (1, 32, 28, 28))
    text = compiled(pt.Graph([convolved(x, 32, (1, 1))], inputs=[x]), NUM_THREADS=1).kernels()[1].assembly
    if "vfmadd" in text:
        body = text[text.index("vfmadd") : text.rindex("vfmadd")].splitlines()
        assert sum("(%rsp)" in line for line in body) <= 4


def test_code_for_other_processors(processor: Machine) -> None:
    x = pt.variable("x", "float32", (1, 32, 28, 28))
    g = pt.apply_pass(pt.Graph([convolved(x, 32, (3, 3), pads=[1, 1, 1, 1])], inputs=[x]), ("InferShape",))
    call = next(node for node in fuse_kernels(block(g, processor)).nodes if node.name.startswith("conv_0"))
    products, spills = products_and_spills(call.subgraph, processor)
    assert products >= 35
    assert spills <= 9


@pytest.mark.parametrize("name", ["squeezenet", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_whole_models_agree_with_onnxruntime(name: str, tmp_path: Any) -> None:
    runtime = pytest.importorskip("onnxruntime")
    g = pt.load(f"zoo:{name}")
    pt.save(g, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    x = normal(1, 3, 224, 224)
    (wanted,) = session.run(None, {session.get_inputs()[0].name: x})
    model = compiled(g)
    (output,) = model.run([x])
    assert error(output, wanted) <= 1e-4
    assert "blocked convolution" in schedules(model)


@pytest.mark.parametrize("name", ["g_product", "g_transA", "g_alpha"])
def test_the_pieces_of_a_gemm_take_no_name_of_the_model_s(name: str) -> None:
    x, y = pt.variable(name, "float32", (4, 3)), pt.variable("y", "float32", (4, 5))
    z = pt.variable("z", "float32", (3, 5))
    g = pt.Graph([pt.op("Gemm", x, y, z, name="g", transA=1, alpha=0.5, beta=2.0)], inputs=[x, y, z])
    check(g, [normal(4, 3), normal(4, 5), normal(3, 5)], LIMIT)
