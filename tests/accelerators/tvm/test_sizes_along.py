"""A cut between shape arithmetic and what it sizes: a selector's, or an op's of another device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.tvm.any_size import attention, numbers
from tests.close import assert_close

DATA = Path(__file__).parents[2] / "data" / "torch"


class Products(pt.SubgraphProperty):
    """Takes some ops, and leaves the shape arithmetic to whoever compiles the rest."""

    name = "mine"

    def create_subgraph_selector(self) -> pt.SubgraphSelector:
        return pt.ContainOpSelector({"MatMul", "Add", "Softmax"})


def whole(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def partitioned(graph: pt.Graph) -> pt.Graph:
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=Products())


def check(graph: pt.Graph, model: Any, feeds: list[dict[str, np.ndarray[Any, Any]]]) -> None:
    """All of it is compiled once, and right."""
    assert {unit.device.label for unit in model.units} == {"cpu"}
    assert all("compiled once for any size" in unit.compiled.notes for unit in model.units), model.report.notes
    reference = pt.compile(graph, "reference")
    for feed in feeds:
        for a, b in zip(model(feed), reference(feed), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_an_attention_whose_products_a_selector_takes() -> None:
    graph = attention(mask=True)
    feeds = [{"x": numbers(n, s, 32), "mask": numbers(n, 1, 1, s)} for n, s in [(1, 1), (2, 7), (3, 16)]]
    check(graph, pt.compile(partitioned(graph), "cpu"), feeds)


def test_what_is_measured_inside_a_subgraph_leaves_it(tmp_path: Path) -> None:
    """The selector takes the product from between the sizes and their Reshape, and what has the sizes was not an output."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    hidden = pt.op("Exp", x, name="hidden")
    rows = pt.op("Mul", pt.op("Shape", pt.op("Transpose", hidden, perm=[1, 0, 2], name="turned"), end=1), whole(2))
    product = pt.op("MatMul", hidden, pt.constant(numbers(4, 4)), name="product")
    wanted = pt.op("Concat", whole(-1), rows, whole(2), axis=0)
    halves = pt.op("Reshape", product, wanted, name="halves")
    graph = pt.Graph([pt.op("Relu", halves), pt.op("MatMul", halves, pt.constant(numbers(2, 3)))], [x])
    model = pt.compile(partitioned(graph), "cpu")
    feeds = [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 7), (5, 3)]]
    check(graph, model, feeds)
    names = [node.name for unit in model.units for node in unit.body.nodes if node.is_op]
    assert len(names) == len(set(names)), "copies have names of their own"
    model.export(tmp_path / "net.partita")
    check(graph, pt.import_model(tmp_path / "net.partita"), feeds)
    (first, *_) = model.graph.nodes[1:]
    assert "turned" in first.output_names, "the call gives what was measured in it"


def test_sizes_that_values_say_stay_refused() -> None:
    """Neither copies nor a wrong answer: where they are known only while the model runs, another device has to take it."""
    x, said = pt.variable("x", "float32", ("N", 4)), pt.variable("said", "int64", (2,))
    product = pt.op("MatMul", x, pt.constant(numbers(4, 4)))
    graph = pt.Graph([pt.op("Reshape", product, pt.op("Mul", said, whole(1, 1)), name="y")], [x, said])
    with pytest.raises(pt.PartitaError, match="the sizes of 'y' depend on values"):
        pt.compile(partitioned(graph), "cpu")
    model = pt.compile(partitioned(graph), "HETERO:cpu,reference")
    assert model(numbers(3, 4), np.array([2, 6]))[0].shape == (2, 6)


def test_an_op_of_another_device_between_sizes_and_their_reader() -> None:
    """The Reshape behind it went to the last resort, and with it what stands beside it."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    wanted = pt.op("Concat", pt.op("Shape", x, end=2), whole(2, 2), axis=0)
    there = pt.op("Tanh", x, name="there")
    graph = pt.Graph([pt.op("Relu", pt.op("Reshape", there, wanted, name="halves"))], [x])
    model = pt.compile(graph, "HETERO:cpu,reference", forbid={"there": "cpu"})
    assert not model.report.moves
    assert [unit.device.label for unit in model.units if "halves" in unit.ops] == ["cpu"]
    feed = {"x": numbers(2, 5, 4)}
    np.testing.assert_allclose(model(feed)[0], pt.compile(graph, "reference")(feed)[0], rtol=1e-5)


@pytest.mark.slow
def test_bert_whose_products_a_selector_takes() -> None:
    graph = pt.load(DATA / "bert_dynamic.onnx")
    model = pt.compile(partitioned(graph), "cpu")
    random = np.random.default_rng(3)
    feeds = []
    for n, s in [(1, 1), (2, 7)]:
        kinds = {"int64": np.ones((n, s), np.int64), "float32": numbers(n, s)}
        feed = {node.name: kinds[node[0].type.dtype] for node in graph.inputs}  # type: ignore[union-attr]
        feed[graph.inputs[0].name] = random.integers(0, 20, (n, s))
        feeds.append(feed)
    check(graph, model, feeds)


@pytest.mark.parametrize("measure", ["Shape", "Size"])
def test_what_measures_is_copied_into_the_call_that_needs_it(measure: str) -> None:
    x = pt.variable("x", "float32", ("N", "S", 4))
    size = pt.op(measure, x, name="size", **({"start": 1, "end": 2} if measure == "Shape" else {}))
    vector = size if measure == "Shape" else pt.op("Unsqueeze", size, whole(0), name="vector")
    wanted = pt.op("Concat", vector, whole(-1), axis=0)
    there = pt.op("Tanh", pt.op("Concat", x, x, axis=1), name="there")
    graph = pt.Graph([pt.op("Relu", pt.op("Reshape", there, wanted, name="halves"))], [x])
    model = pt.compile(graph, "HETERO:cpu,reference", forbid={"there": "cpu", "size": "cpu"})
    assert not model.report.moves
    assert [unit.device.label for unit in model.units if "halves" in unit.ops] == ["cpu"]
    feed = {"x": numbers(2, 5, 4)}
    np.testing.assert_allclose(model(feed)[0], pt.compile(graph, "reference")(feed)[0], rtol=1e-5)


def test_a_users_op_named_shape_is_no_shape() -> None:
    """Its result is known when it has run, so that no kernel can be made of a Reshape to it."""
    pt.register_op("Shape", "my", shape=lambda types, attributes: pt.TensorType("int64", (2,)))
    try:
        sizes = pt.op("Shape", pt.variable("n", "float32", (2,)), domain="my", name="sizes")
        shaped = pt.Graph([pt.op("Reshape", pt.variable("x", "float32", (4, 6)), sizes, name="shaped")])
        answers = accelerator("cpu").query(pt.apply_pass(shaped, "InferShape"))
        assert "depend on values: those of 'sizes'" in str(answers["shaped"])
    finally:
        pt.unregister_op("Shape", "my")
