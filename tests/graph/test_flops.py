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


def zeros(*shape: int) -> pt.Node:
    return pt.constant(np.zeros(shape, np.float32))


def value(name: str, *shape: int | str) -> pt.Node:
    return pt.variable(name, "float32", shape)


IMAGE_SIZE = 2 * 6 * 8 * 8
QKV = {"q": (5, 32), "k": (7, 16), "v": (7, 12)}
IMAGE, ROWS = value("x", 2, 6, 8, 8), value("r", 5, 2, 4)


@pytest.mark.parametrize(
    ("node", "macs", "flops"),
    [
        (pt.op("ConvTranspose", IMAGE, zeros(6, 2, 3, 3), group=2), 2 * 6 * 64 * 2 * 9, None),
        (pt.op("MatMul", value("a", 3), value("b", 3)), 3, None),
        (pt.op("Gemm", value("a", 2, 3), value("b", 3, 7)), 2 * 3 * 7, None),
        (pt.op("Gemm", value("a", 2, 3), value("b", 7, 3), transB=1), 2 * 3 * 7, None),
        (pt.op("Einsum", value("a", 2, 3), value("b", 3, 4), value("c", 4, 5), equation="ij, jk, kl -> il"), 240, None),
        (pt.op("Einsum", value("a", 2, 3), equation="ij->ji"), 6, None),
        (pt.op("GRU", ROWS, zeros(1, 9, 4), zeros(1, 9, 3), hidden_size=3), 10 * (36 + 27), None),
        (pt.op("LSTM", ROWS, zeros(2, 12, 4), zeros(2, 12, 3), hidden_size=3, direction="bidirectional"), 20 * (48 + 36), None),
        (pt.op("Attention", value("q", 2, 4, 5, 8), value("k", 2, 4, 7, 8), value("v", 2, 4, 7, 6), opset=23), 40 * 7 * 14, None),
        (pt.op("Attention", *(value(name, 2, *rest) for name, rest in QKV.items()), q_num_heads=4, kv_num_heads=2, opset=23),
         2 * 5 * 7 * (32 + 24), None),
        (pt.op("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]), 0, IMAGE_SIZE),
        (pt.op("GlobalAveragePool", IMAGE), 0, IMAGE_SIZE),
        (pt.op("ArgMax", IMAGE, axis=1), 0, IMAGE_SIZE),
        (pt.op("Softmax", IMAGE), 0, IMAGE_SIZE),
        (pt.op("Add", IMAGE, value("one", 1)), 0, IMAGE_SIZE),
        (pt.op("Slice", IMAGE, *(pt.constant(np.array([i])) for i in (0, 1, 0))), 0, 0),
        (pt.op("Shape", IMAGE), 0, 0),
    ],
    ids=str,
)
def test_what_an_op_counts(node: pt.Node, macs: int, flops: int | None) -> None:
    graph = pt.Graph([node], opsets={"": 23})
    result = count_flops(pt.apply_pass(graph, "InferShape"))
    assert (result.macs, result.flops, result.unknown) == (macs, 2 * macs if flops is None else flops, ())
    assert result.by_op == ({} if not result.flops else {node.op: result.flops})


@pytest.mark.parametrize(
    "node",
    [
        pt.op("Conv", value("x", "N", 6, 8, 8), zeros(4, 6, 3, 3), name="it"),
        pt.op("ConvTranspose", value("x", "N", 6, 8, 8), zeros(6, 4, 3, 3), name="it"),
        pt.op("MatMul", value("a", "N", 3), value("b", 3, 7), name="it"),
        pt.op("GRU", value("r", "T", 2, 4), zeros(1, 9, 4), zeros(1, 9, 3), hidden_size=3, name="it"),
        pt.op("Einsum", value("a", "N", 3), value("b", 3, 4), equation="ij,jk->ik", name="it"),
        pt.op("Einsum", value("a", 2, 3), value("b", 3, 4), equation="...j,jk->...k", name="it"),
        pt.op("ReduceSum", value("x", "N", 3), name="it"),
        pt.op("MaxPool", value("x", "N", 6, 8, 8), kernel_shape=[2, 2], name="it"),
    ],
    ids=str,
)
def test_unknown_sizes_are_not_counted(node: pt.Node) -> None:
    result = counted(node)
    assert (result.flops, result.unknown, result.by_op, result.by_node["it"]) == (0, ("it",), {}, 0)


def test_rounds_of_loops_and_scans() -> None:
    """A loop counts its trips if they are constant, a scan the length of what it reads; of two branches the dearer one counts."""
    step, going, state = (pt.variable(name, dtype, ()) for name, dtype in (("i", "int64"), ("c", "bool"), ("s", "float32")))
    body = pt.Graph([pt.op("Identity", going), pt.op("Exp", state)], [step, going, state])
    start, yes = value("start"), pt.constant(np.array(True))
    assert counted(pt.op("Loop", pt.constant(np.array(7)), yes, start, body=body)).by_op == {"Exp": 7}
    trips = pt.variable("trips", "int64", ())
    assert counted(pt.op("Loop", trips, yes, start, body=body, name="loop")).unknown == ("loop",)
    carried, row = value("carried", 3), value("row", 3)
    sums = pt.Graph([pt.op("Add", carried, row)], [carried, row])
    rows = pt.op("Scan", value("first", 3), value("rows", 5, 3), body=sums, num_scan_inputs=1)
    assert counted(rows).by_op == {"Add": 15}
    sides = pt.op("Scan", value("first", 3), value("rows", 3, 4), body=sums, num_scan_inputs=1, scan_input_axes=[1])
    assert counted(sides).by_op == {"Add": 12}
    assert counted(pt.op("Scan", value("first", 3), value("rows", "T", 3), body=sums, num_scan_inputs=1)).flops == 0
    cheap, dear = (pt.Graph([pt.op("Exp", pt.constant(np.zeros(n, np.float32)))]) for n in (3, 4))
    assert counted(pt.op("If", pt.variable("which", "bool", ()), then_branch=cheap, else_branch=dear)).by_op == {"Exp": 4}


def test_numbers_for_people() -> None:
    assert [count_text(n) for n in (0, 999, 1000, 999_600, 8_205_900_000)] == ["0 ", "999 ", "1 k", "999.6 k", "8.206 G"]
