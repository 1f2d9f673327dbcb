"""What a graph requires of the sizes of its inputs: calls that fit are taken, and those that contradict something are errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.symbols import symbols_of
from partita.graph.types import TensorType
from partita.passes.infer.contract import Contract, shapes_of
from partita.passes.infer.reading import Reading

Shape = tuple[Any, ...]


def ones(*shape: int) -> Node:
    return pt.constant(np.ones(shape, np.float32))


def integers(*rows: Any) -> Node:
    return pt.constant(np.array(rows, np.int64))


def scalar(number: int) -> Node:
    return pt.constant(np.array(number, np.int64))


def x(*shape: int | str) -> Node:
    return pt.variable("x", "float32", shape)


def y(*shape: int | str) -> Node:
    return pt.variable("y", "float32", shape)


def positions(table: int) -> Node:
    """Tokens with the first positions of a table added, as BERT does."""
    tokens = pt.variable("x", "int64", ("N", "T"))
    first = pt.op("Slice", integers(*range(table)), integers(0), pt.op("Shape", tokens, start=1, end=2), integers(0))
    return pt.op("Add", pt.op("Gather", ones(9, 8), tokens), pt.op("Gather", ones(table, 8), first))


def heads(node: Node, count: int) -> Node:
    """The last dimension split into heads by sizes that the graph works out."""
    batch = pt.op("Shape", node, start=0, end=2)
    return pt.op("Reshape", node, pt.op("Concat", batch, integers(count, -1), axis=0))


def last_three(node: Node) -> Node:
    """The last three positions of a value, from the end where it has fewer."""
    count = pt.op("Shape", node)
    first, end = (pt.op("Squeeze", size, integers(0)) for size in (pt.op("Sub", count, integers(3)), count))
    return pt.op("Range", first, end, scalar(1))


def four_fewer(node: Node) -> Node:
    """As many columns as there are rows, but four: of none the number is kept, and of -1 left open, as that of the rows is."""
    columns = pt.op("Sub", pt.op("Shape", node, end=1), integers(4))
    return pt.op("Reshape", node, pt.op("Concat", integers(-1), columns, axis=0))


def parts(node: Node, *sizes: int) -> Node:
    """A dimension split into these parts."""
    names = tuple([f"part{i}" for i in range(len(sizes))])
    return pt.op("Split", node, integers(*sizes)).evolve(output_names=names, output_types=(None,) * len(sizes))


LOOK_UPS = "a dimension and the indices into it do not go together"
OPERANDS = "the sizes of the operands do not go together"

CASES: dict[str, tuple[Any, list[Any], list[Any], str]] = {
    "Add": (lambda: pt.op("Add", x("N", 4), ones(3, 4)), [(3, 4), (1, 4)], [(2, 4), (6, 4), (0, 4)], OPERANDS),
    "Where": (
        lambda: pt.op("Where", pt.constant(np.ones((3, 1), bool)), x("N", 4), ones(4)), [(3, 4), (1, 4)], [(4, 4)], OPERANDS,
    ),
    "Mean": (lambda: pt.op("Mean", x("N"), ones(3), ones(1)), [(3,), (1,)], [(0,), (2,)], OPERANDS),
    "two symbols": (
        lambda: pt.op("Mul", x("N", "T"), y("M", 1)), [((2, 5), (2, 1)), ((1, 5), (3, 1)), ((0, 5), (1, 1))],
        [((2, 5), (3, 1)), ((0, 5), (2, 1))], OPERANDS,
    ),
    "a table": (lambda: positions(6), [(2, 6), (0, 3), (2, 1)], [(2, 7), (1, 40)], OPERANDS),
    "Gather": (lambda: pt.op("Gather", x("N", 4), integers(0, 3)), [(4, 4), (9, 4)], [(3, 4), (0, 4)], f"{LOOK_UPS}: "),
    "Gather from the end": (lambda: pt.op("Gather", x(4, "N"), integers(-3), axis=1), [(4, 3)], [(4, 2)], f"{LOOK_UPS}: 2"),
    "Gather, the last three": (
        lambda: pt.op("Gather", x("N", 4), last_three(y("M"))), [((5, 4), (5,)), ((5, 4), (2,)), ((3, 4), (0,))],
        [((4, 4), (5,)), ((1, 4), (0,)), ((2, 4), (0,))], LOOK_UPS,
    ),
    "GatherND": (lambda: pt.op("GatherND", x("N", "M"), integers([1, -5])), [(2, 5)], [(1, 5), (2, 4)], LOOK_UPS),
    "GatherND, batches": (
        lambda: pt.op("GatherND", x(2, "M", 3), integers([1, 2], [4, 0]), batch_dims=1), [(2, 5, 3)], [(2, 4, 3)],
        f"{LOOK_UPS}: 4",
    ),
    "ScatterND": (lambda: pt.op("ScatterND", x("N", 4), integers([100]), ones(1, 4)), [(101, 4)], [(100, 4), (25, 4)], LOOK_UPS),
    "ScatterElements": (
        lambda: pt.op("ScatterElements", x("N", 4), integers([1, 2, 0, -3]), ones(1, 4)), [(3, 4)], [(2, 4), (0, 4)], LOOK_UPS,
    ),
    "BatchNormalization": (
        lambda: pt.op("BatchNormalization", x("N", "C", 8, 8), *[ones(3)] * 4), [(2, 3, 8, 8)], [(2, 5, 8, 8), (2, 1, 8, 8)],
        "the sizes of the statistics and the channels of the data",
    ),
    "GroupNormalization": (
        lambda: pt.op("GroupNormalization", x("N", "C", 5), ones(4), ones(4), num_groups=2), [(2, 4, 5)], [(2, 8, 5), (2, 6, 5)],
        "the sizes of the scales and the channels of the data",
    ),
    "LayerNormalization": (
        lambda: pt.op("LayerNormalization", x("N", "C"), ones(4)), [(2, 4)], [(2, 3), (2, 1)],
        "the sizes of the scale and of the data",
    ),
    "PRelu": (lambda: pt.op("PRelu", x("N", "C"), ones(3)), [(2, 3)], [(2, 4), (2, 1)], "the sizes of the slope and of the data"),
    "Clip": (
        lambda: pt.op("Clip", x("N"), y("M")), [((3,), (1,))], [((3,), (2,)), ((3,), (0,))],
        "the size of input 1 and that of a single",
    ),
    "MatMul": (lambda: pt.op("MatMul", x("N", "K"), ones(4, 2)), [(3, 4)], [(3, 5), (3, 1)], "the depths of both matrices"),
    "Gemm, bias": (
        lambda: pt.op("Gemm", x("N", 4), ones(4, 5), ones(3, 5)), [(3, 4)], [(2, 4), (1, 4)],
        "the sizes of the bias and of the product",
    ),
    "Concat": (
        lambda: pt.op("Concat", x("N", 4), ones(3, 2), axis=1), [(3, 4)], [(2, 4), (1, 4)], "the sizes of what is joined",
    ),
    "Conv": (
        lambda: pt.op("Conv", x(1, "C", 9, 9), ones(4, 3, 3, 3)), [(1, 3, 9, 9)], [(1, 4, 9, 9)],
        "the channels of the data and of the",
    ),
    "Conv, groups": (
        lambda: pt.op("Conv", x(1, "C", 9, 9), ones(4, 3, 3, 3), group=2), [(1, 6, 9, 9)], [(1, 3, 9, 9)],
        "the channels of the data",
    ),
    "a window": (
        lambda: pt.op("MaxPool", x(1, 2, "H", "W"), kernel_shape=[3, 3]), [(1, 2, 3, 5), (1, 2, 2, 5)], [(1, 2, 1, 5)],
        "the padded data and the window",
    ),
    "TopK": (lambda: pt.op("TopK", x("N"), integers(3)), [(3,), (9,)], [(2,), (0,)], "a dimension and k do not go together: "),
    "Split": (lambda: parts(x("N"), 2, 3), [(5,)], [(6,), (4,)], "the sum of the parts and the whole"),
    "Slice, backwards from before the first": (
        lambda: pt.op("Add", pt.op("Slice", x("N"), *map(integers, (-5, -9, 0, -1))), ones(3)), [(7,), (5,), (2,)], [(6,), (0,)],
        OPERANDS,
    ),
    "Reshape": (
        lambda: pt.op("Reshape", x("N"), integers(2, -1)), [(4,), (0,)], [(5,)], "the numbers of elements before and after",
    ),
    "Reshape, two open": (
        lambda: four_fewer(x("N", 4)), [(5, 4), (4, 4)], [(3, 4)], "one and the sizes that are left open do not go together: 1",
    ),
    "Reshape, nothing": (
        lambda: pt.op("Reshape", x("N", "T", 4), integers(0, -1)), [(2, 0, 4), (2, 3, 4)], [(0, 3, 4)],
        "the sizes beside the one that is left open and 1 do not go together",
    ),
    "heads": (lambda: heads(x("N", "T", "E"), 4), [(2, 3, 8)], [(2, 3, 9)], "the numbers of elements before and after"),
    "Expand": (
        lambda: pt.op("Expand", x("N", 1), integers(3, 4)), [(3, 1), (1, 1)], [(2, 1), (0, 1)],
        "the sizes of the data and those that",
    ),
    "Pad": (
        lambda: pt.op("Pad", x("N"), integers(3, 0), mode="reflect"), [(4,), (3,)], [(0,)],
        "a dimension and what its padding reads",
    ),
    "Pad, cut off": (
        lambda: pt.op("Pad", x("N"), integers(-3, -2)), [(5,), (9,)], [(4,), (0,)], "a padded dimension and nothing",
    ),
    "DequantizeLinear": (
        lambda: pt.op("DequantizeLinear", pt.variable("x", "int8", ("N", "C")), ones(3)), [(2, 3)], [(2, 4), (2, 1)],
        "the sizes of the scales and those that the data have to have",
    ),
    "a scale and a zero point of one number": (
        lambda: pt.op("DequantizeLinear", pt.variable("x", "int8", ("N", "C")), y("K"), pt.constant(np.array(1, np.int8))),
        [((2, 3), (1,))], [((2, 3), (3,))], "the sizes of the zero points and of the scales",
    ),
    "LSTM": (
        lambda: pt.op("LSTM", x("T", "N", 3), ones(1, 8, 3), ones(1, 8, 2), None, None, ones(1, 2, 2), hidden_size=2),
        [(5, 2, 3)],
        [(5, 3, 3), (5, 1, 3)], "the sizes of input 5 and those that it has to have",
    ),
    "Einsum": (
        lambda: pt.op("Einsum", x("N", "K"), ones(4, 2), equation="nk,km->nm"), [(3, 4)], [(3, 5)],
        "the sizes of 'k' do not go together",
    ),
    "com.microsoft": (
        lambda: pt.op("BiasGelu", x("N", "C"), ones(3), domain="com.microsoft"), [(2, 3)], [(2, 4), (2, 2)], OPERANDS,
    ),
    "two constants of an op without a rule": (
        lambda: pt.op("Add", pt.op("STFT", x("N", "T", 1), scalar(2), ones(4), scalar(4)), ones(1, 3, 3, 2)), [(1, 8, 1)],
        [(1, 10, 1)],
        OPERANDS,
    ),
    "an op without a rule": (
        lambda: pt.op("Add", pt.op("DFT", x("N", "T", 1), None, scalar(1)), ones(1, 5, 2)),
        [(2, 5, 1)], [(2, 4, 1)], OPERANDS,
    ),
}


def _calls(listed: list[Any]) -> Iterator[Any]:
    """Calls of one input are written as its sizes alone."""
    for call in listed:
        yield (call,) if all(isinstance(size, int) for size in call) else call


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_contradict_something_are_an_error(name: str) -> None:
    build, fitting, contradicting, message = CASES[name]
    contract = Contract(pt.apply_pass(Graph([build()]), "InferShape", strict=False))
    for call in _calls(fitting):
        contract.check(call)
    for call in _calls(contradicting):
        with pytest.raises(pt.PartitaError) as caught:
            contract.check(call)
        assert message in caught.value.cause
        assert f"x is {list(call[0])}" in str(caught.value)
    assert contract.fitting == set(_calls(fitting))


def test_a_contradiction_of_all_sizes_is_an_error_of_each_call() -> None:
    contract = Contract(Graph([pt.op("MatMul", x("N", 4), ones(5, 2))]))
    for _ in range(2):
        with pytest.raises(pt.PartitaError, match="the depths of both matrices do not go together: 4 and 5"):
            contract.check(((3, 4),))


def test_calls_are_read_as_what_they_hold() -> None:
    body = Graph([pt.op("Add", pt.variable("a", "float32", ("N", 4)), ones(3, 4))])
    graph = Graph([pt.call(body, name="part").evolve(inputs=(pt.op("Neg", x("N", 4))[0],))])
    Contract(graph).check(((3, 4),))
    with pytest.raises(pt.PartitaError, match="node 'add_0'.*: 2 and 3"):
        Contract(graph).check(((2, 4),))


def opened(graph: Graph) -> Graph:
    """The graph with a symbol for every size of its inputs."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        known = node.output_types[0] if node.is_variable else None
        if isinstance(known, TensorType) and known.rank is not None:
            symbols = tuple([f"{node.name}_{d}" for d in range(known.rank)])
            rewriter.keep(node, node.evolve(output_types=(TensorType(known.dtype, symbols),)))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node).evolve(output_types=(None,) * len(node.output_names)))
        else:
            rewriter.keep(node)

    return pt.apply_pass(rewrite(graph, visit), "InferShape", strict=False)


@pytest.mark.slow
def test_node_tests_of_onnx_are_never_refused() -> None:
    """With a symbol for each size: all calls are valid ones, and sizes that follow are those of the results."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    compared = 0
    for case in cases:
        if not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if not all(isinstance(value, (np.ndarray, np.generic)) for value in inputs):
            continue
        try:
            graph = opened(pt.load(case.model))
        except pt.PartitaError:
            continue
        Contract(graph).check(shapes_of(inputs))
        reading = Reading(graph, shapes_of(inputs))
        for entry, array in zip(graph.outputs, outputs):
            sizes = reading.sizes(entry)
            if isinstance(array, np.ndarray) and sizes is not None and not symbols_of(*sizes):
                assert sizes == array.shape, case.name
                compared += 1
    assert compared > 800


@pytest.mark.parametrize("equation", ["bik,bkj->bij", "...ik,...kj->...ij", "...ik,...kj", "bik,bkj"])
def test_a_letter_of_an_einsum_that_is_1_first_and_more_later(equation: str) -> None:
    left, right = pt.variable("l", "float32", (1, 3, 2)), pt.variable("r", "float32", ("B", 1, 4))
    graph = pt.Graph([pt.op("Einsum", left, right, equation=equation, name="y")])
    shape = {"bik,bkj": (3, 4)}.get(equation, ("B", 3, 4))
    assert pt.apply_pass(graph, "InferShape").outputs[0].type.shape == (shape[-2:] if equation == "bik,bkj" else shape)
    arrays = [np.arange(6, dtype=np.float32).reshape(1, 3, 2), np.ones((2, 1, 4), np.float32)]
    for device in ("reference", "HETERO:cpu,reference"):
        result = pt.compile(graph, device)(*arrays)[0]
        np.testing.assert_allclose(result, np.einsum(equation, np.repeat(arrays[0], 2, 0), np.repeat(arrays[1], 2, 1)))
