"""How kernels are shared out among threads."""

from __future__ import annotations

import math

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction.convolution import bands
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteCut, ByteShape, make_cut
from partita.accelerators.tvm.kernels.shared.window import Window
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine
from tests.accelerators.tvm.quantizing import Layer
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")

LAYERS = [
    (56, 64, 64, 3), (56, 64, 256, 1), (28, 128, 128, 3), (14, 256, 256, 3), (14, 1024, 256, 1), (7, 512, 512, 3),
    (7, 512, 2048, 1),
]
"""Size, channels, results and taps of ResNet-50's layers."""


def cut_of(size: int, channels: int, outs: int, taps: int, threads: int) -> ByteCut:
    machine = Machine("cpu", "znver5", threads, 16, 32, (Used("avx512-vnni"),))
    window = Window((size, size), (size, size), (taps, taps), (1, 1), (1, 1), (taps // 2, taps // 2))
    return make_cut(ByteShape(1, window if taps > 1 else window.flat(), channels, outs, 1, False), machine)


@pytest.mark.parametrize("threads", [2, 4])
def test_no_thread_has_much_more_to_do_than_others(threads: int) -> None:
    for layer in LAYERS:
        cut, alone = cut_of(*layer, threads), cut_of(*layer, 1)
        whole = alone.bands * alone.cycles(1)
        most = math.ceil(cut.bands * cut.parts / threads) * cut.cycles(cut.parts)
        assert cut.bands * cut.parts >= threads and most * threads < 1.25 * whole, (layer, cut.bands, cut.parts)


def test_threads_share_the_weights_where_they_outweigh_the_image() -> None:
    cut = cut_of(7, 512, 2048, 1, 4)
    assert cut.bands == 1 and cut.parts >= 4


LARGE = {
    "in bands": Layer(48, 48, (14, 13), (3, 3), pads=(1, 1, 1, 1), relu=True),
    "each channel, in bands": Layer(96, 96, (21, 20), (3, 3), pads=(1, 1, 1, 1), group=96, batch=2),
    "in ranges of panels": Layer(160, 344, (5, 5), (3, 3), pads=(1, 1, 1, 1)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_what_threads_share_is_exact(kind: str) -> None:
    layer = LARGE[kind]
    model, x = compiled(layer.graph(), NUM_THREADS=3), layer.given()
    assert np.array_equal(model.run([x], [None])[0], layer.expected(x))


def text_for(node: pt.Node, threads: int) -> str:
    """The kernel of a graph of one output, for a processor of AVX-512."""
    draft = draft_kernel(make_body(pt.apply_pass(pt.Graph([node]), "InferShape")), Machine("cpu", "znver4", threads, 16, 32))
    assert draft is not None and draft.kernel is not None
    return str(draft.kernel)


def test_the_attention_of_one_token_is_shared_among_threads() -> None:
    query, key, value = (pt.variable(name, "float32", (12, rows, 64)) for name, rows in (("q", 1), ("k", 129), ("v", 129)))
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1]))
    assert "parallel task < 12" in text_for(pt.op("MatMul", pt.op("Softmax", scores), value), 2)


@pytest.mark.parametrize(("threads", "tasks"), [(2, 4), (4, 4)])
def test_a_row_by_a_matrix_is_cut_into_equal_shares(threads: int, tasks: int) -> None:
    weight = pt.constant(np.ones((1024, 1000), np.float32))
    assert f"parallel task < {tasks}" in text_for(pt.op("MatMul", pt.variable("x", "float32", (1, 1024)), weight), threads)


def test_bands_that_do_not_fit_a_cache_are_a_multiple_of_the_threads() -> None:
    window = Window((224, 224), (224, 224), (3, 3), (1, 1), (1, 1), (1, 1))
    shape = bands.BlockedShape(window=window, batch=1, channels=64, outs=64, groups=1, plain=False, shuffled=False)
    alone, two, four = (bands.cut_bands(shape, Machine("cpu", "znver4", threads, 16, 32)) for threads in (1, 2, 4))
    assert alone.down > 16 and two.down % 2 == 0 and four.down % 4 == 0


def test_a_pool_of_many_numbers_is_shared_among_threads() -> None:
    weight = pt.constant(np.ones((32, 32, 1, 1), np.float32))
    conv = pt.op("Conv", pt.variable("x", "float32", (1, 32, 56, 56)), weight)
    pool = pt.op("MaxPool", conv, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    model = pt.compile(pt.Graph([pt.op("Conv", pool, weight)]), "cpu", {"NUM_THREADS": 2})
    (kernel,) = (kernel for kernel in model.kernels() if "pool" in kernel.schedule)
    assert "parallel task" in kernel.text
