"""Why a product of a quantized model stays in float32, as reports say it, and how many do not."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.packed import DOMAIN as PACKED
from partita.accelerators.tvm.layouts.quantized.notes import quantized_notes
from partita.accelerators.tvm.machine.instructions import Used
from tests.accelerators.tvm.quantizing import dequantized, integers

X = pt.variable("x", "float32", (4, 6))
BYTES, WORDS = pt.variable("b", "uint8", (4, 6)), pt.variable("i", "int16", (4, 6))
IMAGE = pt.variable("m", "uint8", (1, 6, 5, 5))
FLOATS, WEIGHT = pt.constant(np.ones((6, 5), np.float32)), integers(1, (6, 5), "int8")
FORM = "no kernel of integers has its form, or 32 bits might not hold its sums"


def product(left: pt.Node, right: pt.Node, name: str = "it") -> pt.Node:
    return pt.op("MatMul", left, right, name=name)


PRODUCTS: dict[str, tuple[pt.Node, str | None]] = {
    "bytes": (product(dequantized(BYTES, 0.1, 3), dequantized(WEIGHT, 0.1)), FORM),
    "Gemm": (pt.op("Gemm", dequantized(BYTES, 0.1, 3), dequantized(WEIGHT, 0.1), name="it"), FORM),
    "image": (pt.op("Conv", dequantized(IMAGE, 0.1, 3), dequantized(integers(1, (2, 6, 3, 3), "int8"), 0.1), name="it"), FORM),
    "of values": (product(dequantized(BYTES, 0.1, 3), pt.op("Transpose", X)), "its weights are not quantized"),
    "weights alone": (product(X, dequantized(WEIGHT, 0.1)), "what it reads is not quantized"),
    "values alone": (product(dequantized(BYTES, 0.1, 3), FLOATS), "its weights are not quantized"),
    "16 bits": (product(dequantized(WORDS, 0.1, dtype="int16"), dequantized(WEIGHT, 0.1)), "what it reads has 16 bits"),
    "several scales": (
        product(dequantized(BYTES, [0.1] * 6, axis=1), dequantized(WEIGHT, 0.1)), "what it reads has several scales"),
    "one scale of one": (product(dequantized(BYTES, [0.1], axis=1), dequantized(WEIGHT, 0.1)), FORM),
    "whole": (
        pt.op("MatMulInteger", BYTES, pt.constant(WEIGHT), name="it"), "its integers are of a form that no kernel takes"),
    "floats": (product(X, FLOATS), None),
    "of others": (
        product(pt.op("DequantizeLinear", BYTES, pt.constant(np.float32(0.1)), domain="others"), FLOATS), None),
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_why_a_product_stays_in_float32(kind: str) -> None:
    node, reason = PRODUCTS[kind]
    graph = pt.apply_pass(pt.Graph([node], opsets={"": 21, "others": 1}), "InferShape", strict=False)
    notes, wide = quantized_notes([graph["it"]], graph, None)
    assert wide == ({} if reason is None else {"it": reason})
    assert notes == (() if reason is None else (f"in float32, since {reason}: it",))


def test_products_in_integers_are_counted_and_others_listed_by_reason() -> None:
    read, weight = dequantized(BYTES, 0.1, 3), dequantized(WEIGHT, 0.1)
    products = [product(read, weight, name) for name in "cdef"]
    products += [product(X, weight, "g"), product(X, FLOATS, "h"), product(X, FLOATS, "k")]
    graph = pt.apply_pass(pt.Graph(products), "InferShape")
    everything = [graph[name] for name in "cdefghk"]
    left = pt.apply_pass(pt.Graph([graph[name] for name in "efghk"]), "InferShape")
    notes, wide = quantized_notes(everything, left, Used("avx2"))
    assert notes == (
        "2 products in integers, by avx2",
        f"in float32, since {FORM}: e, f",
        "in float32, since what it reads is not quantized: g",
        "in float32, since nothing that it reads is quantized: h, k",
    )
    assert list(wide) == list("efghk")
    stored = pt.op("Any", X, name="g", domain=PACKED)
    notes, wide = quantized_notes(everything, pt.Graph([graph["c"], stored], opsets={"": 21, PACKED: 1}), None)
    assert notes == (
        "3 products in integers, by portable code", "1 product by weights that stay as they are stored",
        f"in float32, since {FORM}: c",
    )
    assert list(wide) == ["c"]
    assert quantized_notes(everything[5:], left, None) == ((), {})
