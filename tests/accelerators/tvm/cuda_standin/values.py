"""What `cuda`'s kernels compute, on a stand-in for NVIDIA's driver: the parts of nets for images and for text.

`tests/accelerators/tvm/test_cuda_runs.py` runs these in a process that finds the stand-in."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.opencl_nets import Value, numbers
from tests.accelerators.tvm.quantizing import Layer

PLAIN = {"ISOLATE": False}


def weight(*shape: int, seed: int = 0) -> Value:
    return pt.constant(numbers(*shape, seed=seed) / 4)


def image_net() -> pt.Graph:
    """Convolutions, one with a residual and one of each channel by itself, pools, and a layer of products."""
    x = pt.variable("x", "float32", (1, 3, 16, 16))
    first = pt.op("Relu", pt.op("Conv", x, weight(8, 3, 3, 3), weight(8), pads=[1, 1, 1, 1], strides=[2, 2]))
    each = pt.op("Conv", first, weight(8, 1, 3, 3), pads=[1, 1, 1, 1], group=8)
    joined = pt.op("Relu", pt.op("Add", pt.op("Conv", each, weight(8, 8, 1, 1)), first))
    pooled = pt.op("MaxPool", joined, kernel_shape=[2, 2], strides=[2, 2])
    flat = pt.op("Flatten", pt.op("GlobalAveragePool", pooled))
    return pt.Graph([pt.op("Softmax", pt.op("Gemm", flat, weight(8, 10), weight(10)))], inputs=[x], name="image")


def text_net() -> pt.Graph:
    """An embedding, a norm, attention with four heads, and the largest of each row."""
    ids, shape = pt.variable("ids", "int64", (2, 5)), pt.constant(np.array([2, 5, 4, 8]))
    read = pt.op("Gather", weight(11, 32), ids)
    normed = pt.op("LayerNormalization", read, weight(32), weight(32), axis=-1)

    def head(seed: int) -> Value:
        product = pt.op("MatMul", normed, weight(32, 32, seed=seed))
        return pt.op("Transpose", pt.op("Reshape", product, shape), perm=[0, 2, 1, 3])

    scores = pt.op("MatMul", head(1), pt.op("Transpose", head(2), perm=[0, 1, 3, 2]))
    shares = pt.op("Softmax", pt.op("Mul", scores, pt.constant(np.float32(0.35))), axis=-1)
    heads = pt.op("Transpose", pt.op("MatMul", shares, head(3)), perm=[0, 2, 1, 3])
    out = pt.op("Add", pt.op("MatMul", pt.op("Reshape", heads, pt.constant(np.array([2, 5, 32]))), weight(32, 32)), read)
    return pt.Graph([out, pt.op("ArgMax", out, axis=-1, keepdims=0)], inputs=[ids], name="text")


@pytest.mark.parametrize(("net", "given"), [(image_net(), numbers(1, 3, 16, 16)), (text_net(), np.arange(10).reshape(2, 5))])
def test_the_same_as_the_reference(net: pt.Graph, given: np.ndarray) -> None:
    """Also where the run is recorded, and replayed."""
    model, wanted = pt.compile(net, "cuda", config=PLAIN), pt.compile(net, "reference")(given)
    for _ in range(3):
        for result, exact in zip(model(given), wanted, strict=True):
            np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-5)


def test_an_index_that_is_outside_is_an_error() -> None:
    model = pt.compile(text_net(), "cuda", config=PLAIN)
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 11"):
        model(np.full((2, 5), 11))


def test_quantized_layers_without_tensor_cores() -> None:
    """The very integers: a convolution of bytes that are read by four, and one of each channel by itself."""
    for layer in (Layer(8, 12, (5, 6), (3, 3), pads=(1, 1, 1, 1), relu=True), Layer(6, 6, (5, 6), (3, 3), group=6)):
        model = pt.compile(layer.graph(), "cuda", config={**PLAIN, "ARCH": "sm_75"})
        np.testing.assert_array_equal(model(layer.given())[0], layer.expected(layer.given()))
