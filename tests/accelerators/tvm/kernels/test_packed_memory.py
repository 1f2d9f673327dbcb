"""Packed weights lie in their final memory at once: each page that is touched first costs as much as copying it."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from accelerators.arrays.layout import is_laid_out
from accelerators.arrays.sharing import ALIGNMENT, held_once, is_fixed
from accelerators.tvm.bodies.body import make_body
from accelerators.tvm.kernels.catalogue import draft_kernel
from accelerators.tvm.machine.machine import Machine

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
