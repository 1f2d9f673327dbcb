"""FLOPs against numbers that are known from the literature, and against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.flops import Flops, count_flops, count_text
from partita.graph.readers.zoo import _light


def counted(*outputs: pt.Node) -> Flops:
    return count_flops(pt.apply_pass(pt.Graph(list(outputs)), "InferShape"))


@pytest.mark.parametrize(
    ("model", "gmac"),
    [("resnet50", 4.089), ("squeezenet", 0.349), ("densenet121", 2.834), ("vgg19", 19.632)],
)
def test_models(model: str, gmac: float) -> None:
    """torchvision's tables say 4.09, 0.35, 2.83 and 19.63."""
    result = count_flops(pt.apply_pass(_light(model), "InferShape"))
    assert result.macs / 1e9 == pytest.approx(gmac, abs=5e-4)
    assert result.unknown == ()
    assert sum(result.by_node.values()) == sum(result.by_op.values()) == result.flops


def test_products() -> None:
    x = pt.variable("x", "float32", (2, 6, 8, 8))
    w = pt.constant(np.zeros((4, 3, 3, 3), np.float32))
    conv = pt.op("Conv", x, w, group=2)
    assert counted(conv).macs == 2 * 4 * 6 * 6 * 3 * 9
    a, b = pt.variable("a", "float32", (5, 2, 3)), pt.variable("b", "float32", (3, 7))
    assert counted(pt.op("MatMul", a, b)).macs == 5 * 2 * 3 * 7
    assert counted(pt.op("Gemm", pt.variable("c", "float32", (3, 2)), b, transA=1)).macs == 2 * 3 * 7
    assert counted(pt.op("Einsum", a, b, equation="nij,jk->nik")).macs == 5 * 2 * 3 * 7


def test_the_rest_counts_its_elements() -> None:
    x = pt.variable("x", "float32", (2, 3))
    result = counted(pt.op("ReduceSum", pt.op("Transpose", pt.op("Relu", x)), keepdims=0))
    assert result == Flops(0, 12, {"ReduceSum": 6, "Relu": 6}, result.by_node, ())


def test_a_body_counts_at_each_call_and_a_loop_its_rounds() -> None:
    inner = pt.variable("inner", "float32", (4,))
    body = pt.Graph([pt.op("Relu", pt.op("Exp", inner))], name="body")
    x = pt.variable("x", "float32", (4,))
    first, second = pt.call(body, name="first"), pt.call(body, name="second")
    first = first.evolve(inputs=(x[0],))
    result = counted(second.evolve(inputs=(first[0],)))
    assert result.flops == 16
    assert result.by_node == {"first": 8, "second": 8}


def test_what_is_not_known_is_named() -> None:
    x = pt.variable("x", "float32", ("N", 3))
    result = counted(pt.op("Relu", x, name="relu"), pt.op("Mine", x, name="mine", domain="my.domain"))
    assert result.unknown == ("relu", "mine")
    assert result.flops == 0


def test_numbers_for_people() -> None:
    assert [count_text(n) for n in (0, 999, 1000, 999_600, 8_205_900_000)] == ["0 ", "999 ", "1 k", "999.6 k", "8.206 G"]
