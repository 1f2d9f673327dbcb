"""Packed weights lie in their final memory at once: each page that is touched first costs as much as copying it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import partita as pt
from partita.accelerators.arrays.layout import is_laid_out
from partita.accelerators.arrays.sharing import ALIGNMENT, held_once, is_fixed
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction.packing import Packing
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteShape, make_cut
from partita.accelerators.tvm.layouts.kept_weights import stored_matrix
from partita.accelerators.tvm.layouts.quantized.quantize import quantize
from partita.accelerators.tvm.layouts.quantized.scales import Scaling, sums_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.prepare.quantized_weights import hold_weights
from partita.graph.mapped_arrays import LARGE, has_own_memory

pytest.importorskip("tvm")

MACHINE = Machine("cpu", "generic", 1, 8, 16)


def weights(*shape: int) -> pt.Node:
    return pt.constant(np.random.default_rng(1).standard_normal(shape).astype("f"))


@pytest.mark.parametrize(
    "graph",
    [
        pt.op("MatMul", pt.variable("x", "float32", (9, 70)), weights(70, 90)),
        pt.op("Conv", pt.variable("x", "float32", (1, 3, 20, 20)), weights(24, 3, 3, 3)),
    ],
    ids=["gemm", "convolution"],
)
def test_a_packed_weight_is_not_copied_again(graph: pt.Node) -> None:
    body = make_body(pt.apply_pass(pt.Graph([graph]), "InferShape"))
    draft = draft_kernel(body, MACHINE)
    assert draft is not None and draft.packs
    for position, pack in draft.packs.items():
        packed = np.asarray(pack(body.weights[position - body.values]), order="C")
        assert is_laid_out(packed, ALIGNMENT) and held_once(packed, is_ours=True) is packed


def test_a_quantized_matrix_is_copied_only_into_its_final_memory() -> None:
    """It was copied to turn it round, widened, and put together from panels: BERT took twice the memory."""
    matrix = np.random.default_rng(1).integers(-127, 128, (512, 640)).astype("int8")
    graph = pt.apply_pass(pt.Graph([quantized_product(pt.constant(matrix))]), "InferShape")
    product = next(node for node in quantize(hold_weights(graph), MACHINE).nodes if node.op == "Product")
    weight = product.inputs[1].node.value
    assert np.shares_memory(weight, matrix)
    packed = make_cut(ByteShape.of(product), MACHINE).pack(weight)
    assert packed.nbytes >= LARGE and has_own_memory(packed)


def test_looking_whether_32_bits_hold_the_sums_takes_little_memory() -> None:
    """All weights were widened to words for it: the largest of VGG19 took 200 MB for a moment."""
    weight = np.random.default_rng(1).integers(-128, 128, (1500, 2000, 1, 1)).astype("int8")
    scaling = Scaling(np.float32(0.01).reshape(()), np.zeros((), np.uint8)[()], None)
    tracemalloc.start()
    try:
        assert sums_of(scaling, weight, np.full(1500, 0.01, "f"), None) is not None
        assert tracemalloc.get_traced_memory()[1] < 2 * weight.nbytes
    finally:
        tracemalloc.stop()
    far = np.full((3, 140_000, 1, 1), -128, "int8")
    far[1] = 1
    assert sums_of(scaling, far[1:2], np.float32(0.01).reshape(1), None) is not None
    assert sums_of(scaling, far, np.float32(0.01).reshape(1), None) is None


def quantized_product(matrix: pt.Node) -> pt.Node:
    scale = pt.constant(np.float32(0.01))
    x = pt.op("DequantizeLinear", pt.variable("x", "uint8", (4, 512)), scale)
    return pt.op("MatMul", x, pt.op("DequantizeLinear", matrix, scale))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_matrix_that_stays_packed_is_not_widened(dtype: str) -> None:
    matrix = np.random.default_rng(1).integers(0, 128, (512, 640)).astype(dtype)
    node = pt.op("DequantizeLinear", pt.constant(matrix), pt.constant(np.float32(0.01)))
    stored = stored_matrix(node, False)
    assert stored is not None and np.shares_memory(stored.numbers, matrix)
    packed = Packing(stored.bits, stored.signed, 512, 640, 16).pack(stored.numbers)
    assert has_own_memory(packed) and held_once(packed, is_ours=True) is packed


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ik,jk->ij"])
def test_a_weight_that_is_written_to_after_compiling_stays_what_it_was(equation: str) -> None:
    """The kernels of TVM's importer read weights as they are."""
    table, x = np.zeros((40, 40), "f"), pt.variable("x", "float32", (2, 40))
    graph = pt.Graph([pt.op("Einsum", x, pt.constant(table), equation=equation)], inputs=[x])
    model = pt.compile(graph, "cpu", {"CACHE_DIR": "off"})
    table += 1
    assert not model(np.ones((2, 40), "f"))[0].any()


def test_memory_is_fixed_where_no_array_can_be_written_to() -> None:
    array = np.zeros(4096, "f")
    view = array[:]
    view.flags.writeable = False
    assert not is_fixed(array) and not is_fixed(view), "the one may be written to by way of the other"
    array.flags.writeable = False
    assert is_fixed(array) and is_fixed(view.reshape(64, 64))
    assert not is_fixed(np.frombuffer(bytearray(64), np.uint8)), "nobody knows who has the buffer"
