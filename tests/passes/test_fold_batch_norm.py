"""FoldBatchNorm: the batch norm disappears into the weights of the op before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, Node, NodeEntry, constant, op, variable
from partita.graph.types import numpy_dtype
from partita.passes import apply_pass
from partita.passes.fold_batch_norm import is_inference

from .before_after import same_values

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def weight(name: str, *shape: int) -> Node:
    return constant(draw(*shape), name)


def norm(x: Node | NodeEntry, channels: int, name: str = "bn", opset: int = 21, **attributes: Any) -> Node:
    scale, shift, mean = (weight(f"{name}_{part}", channels) for part in ("scale", "shift", "mean"))
    variance = constant(RNG.random(channels).astype(np.float32) + 0.5, f"{name}_variance")
    return op("BatchNormalization", x, scale, shift, mean, variance, name=name, opset=opset, **attributes)


def image() -> Node:
    return variable("x", "float32", (2, 4, 6, 6))


def rows() -> Node:
    return variable("x", "float32", (2, 4))


CASES = {
    "Conv": lambda: op("Conv", image(), weight("w", 6, 4, 3, 3), name="mul"),
    "Conv with a bias": lambda: op("Conv", image(), weight("w", 6, 4, 3, 3), weight("b", 6), name="mul", pads=[1, 1, 1, 1]),
    "Conv without its bias": lambda: op("Conv", image(), weight("w", 6, 4, 3, 3), None, name="mul"),
    "Conv in groups": lambda: op("Conv", image(), weight("w", 6, 2, 3, 3), name="mul", group=2),
    "ConvTranspose": lambda: op("ConvTranspose", image(), weight("w", 4, 6, 3, 3), name="mul"),
    "ConvTranspose in groups": lambda: op("ConvTranspose", image(), weight("w", 4, 3, 3, 3), weight("b", 6), name="mul", group=2),
    "Gemm": lambda: op("Gemm", rows(), weight("w", 4, 6), name="mul"),
    "Gemm, transposed": lambda: op("Gemm", rows(), weight("w", 6, 4), weight("b", 6), name="mul", transB=1, alpha=0.5, beta=2.0),
    "Gemm with a scalar": lambda: op("Gemm", rows(), weight("w", 4, 6), weight("b"), name="mul", beta=0.0),
    "Gemm with a column": lambda: op("Gemm", rows(), weight("w", 4, 6), weight("b", 2, 1), name="mul"),
    "MatMul": lambda: op("MatMul", rows(), weight("w", 4, 6), name="mul"),
}


@pytest.mark.parametrize("case", CASES)
def test_folds(case: str) -> None:
    multiply = CASES[case]()
    g = Graph([op("Relu", norm(multiply, 6), name="y")])
    result = apply_pass(g, ["FoldBatchNorm", "EliminateDead"])
    assert [node.op for node in result.nodes if node.is_op] == ["Gemm" if multiply.op == "MatMul" else multiply.op, "Relu"]
    assert result["mul"].output_names == ("bn",), "the op keeps its name, the value the batch norm's"
    x = g.inputs[0][0].type
    same_values(g, result, [draw(*x.shape)], 1e-5)


def test_a_chain_folds_link_by_link() -> None:
    first = norm(op("Conv", image(), weight("w", 6, 4, 3, 3), name="c1"), 6, "bn1")
    second = norm(op("Conv", op("Relu", first, name="r"), weight("w2", 3, 6, 1, 1), name="c2"), 3, "bn2")
    g = Graph([second], output_names=["y"])
    result = apply_pass(g, ["FoldBatchNorm", "EliminateDead"])
    assert [node.op for node in result.nodes if node.is_op] == ["Conv", "Relu", "Conv"] and result.output_names == ("y",)
    same_values(g, result, [draw(2, 4, 6, 6)], 1e-5)


def conv(**changes: Any) -> Node:
    return op("Conv", image(), weight("w", 6, 4, 3, 3), name="mul").evolve(**changes)


def two_readers() -> Graph:
    c = conv()
    return Graph([norm(c, 6), op("Relu", c, name="r")])


def computed_weight() -> Graph:
    w = variable("w", "float32", (6, 4, 3, 3))
    return Graph([norm(op("Conv", image(), w, name="mul"), 6)])


def on_another_device() -> Graph:
    g = Graph([norm(conv(), 6)])
    g["mul"].affinity, g["bn"].affinity = "cuda", "cpu"
    return g


def unknown_weight() -> Graph:
    g = Graph([norm(conv(), 6)])
    g["w"].value[1, 2, 0, 1] = np.nan
    return g


def not_finite() -> Graph:
    bad = norm(conv(), 6)
    zero = constant(np.full(6, -1, np.float32), "negative")
    return Graph([bad.evolve(inputs=(*bad.inputs[:4], zero[0]))])


@pytest.mark.parametrize("case", CASES)
def test_without_scaled_weights_the_ops_and_types_are_the_same(case: str) -> None:
    g = apply_pass(Graph([op("Relu", norm(CASES[case](), 6), name="y")]), "InferShape")
    folded, typed = apply_pass(g, "FoldBatchNorm"), apply_pass(g, "FoldBatchNorm", scale_weights=False)
    assert [(n.name, n.op, n.output_types) for n in typed.nodes] == [(n.name, n.op, n.output_types) for n in folded.nodes]
    assert typed["bn_weight"].value is g["w"].value


def too_large(dtype: str) -> Graph:
    """One of the weights becomes infinite in its type."""
    w = draw(6, 4, 3, 3)
    w[3, 2, 1, 0] = -1.0
    parts = [constant(np.full(6, number, np.float32), name) for number, name in ((6e4, "s"), (0, "h"), (0, "m"), (0.1, "v"))]
    x = variable("x", dtype, (2, 4, 6, 6))
    mul = op("Conv", x, constant(w.astype(numpy_dtype(dtype)), "w"), name="mul")
    return Graph([op("BatchNormalization", mul, *parts, name="bn")])


def computed_bias() -> Graph:
    return Graph([norm(op("Conv", image(), weight("w", 6, 4, 3, 3), variable("b", "float32", (6,))), 6)])


KEPT = {
    "a weight is not a number": unknown_weight,
    "a weight would be infinite": lambda: too_large("float16"),
    "the product is an output": lambda: Graph([norm(c := conv(), 6), c]),
    "the product is read twice": two_readers,
    "the weights are computed": computed_weight,
    "the bias is computed": computed_bias,
    "the two are on different devices": on_another_device,
    "the new weights would not be finite": not_finite,
    "it trains": lambda: Graph([norm(conv(), 6, training_mode=1)]),
    "it trains, by default, in old opsets": lambda: Graph([norm(conv(), 6, opset=6)], opsets={"": 6}),
    "each element has its own mean": lambda: Graph([norm(conv(), 6, opset=8).evolve(attrs={"spatial": 0})], opsets={"": 8}),
    "the rows of several products are its channels": lambda: Graph(
        [norm(op("MatMul", variable("x", "float32", (4, 4)), weight("w", 5, 4, 6), name="mul"), 4)]
    ),
    "nothing comes before it": lambda: Graph([norm(image(), 4)]),
}


@pytest.mark.parametrize("case", KEPT)
def test_stays(case: str) -> None:
    g = KEPT[case]()
    assert apply_pass(g, "FoldBatchNorm", verify=False) is g
    assert apply_pass(g, "FoldBatchNorm", scale_weights=False, verify=False) is g


@pytest.mark.parametrize(("opset", "attributes"), [(6, {"is_test": 1}), (8, {}), (9, {}), (14, {"training_mode": 0})])
def test_inference_by_opset(opset: int, attributes: dict[str, int]) -> None:
    g = Graph([norm(conv(), 6, opset=opset, **attributes)], opsets={"": opset})
    result = apply_pass(g, ["FoldBatchNorm", "EliminateDead"])
    assert [node.op for node in result.nodes if node.is_op] == ["Conv"]
    same_values(g, result, [draw(2, 4, 6, 6)], 1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"domain": "my"},
        {"attrs": {"training_mode": 1}},
        {"output_names": ("bn", "mean_out"), "output_types": (None, None)},
    ],
)
def test_a_norm_that_does_more_or_is_another_is_left_alone(changed: dict[str, Any]) -> None:
    folded = norm(op("Conv", image(), weight("w", 6, 4, 3, 3), name="mul"), 6)
    assert is_inference(folded, Graph([folded]))
    g = Graph([folded.evolve(**changed)], opsets={"": 21, "my": 1})
    assert not is_inference(g["bn"], g)


def test_before_opset_7_a_norm_says_whether_it_infers() -> None:
    for is_test, expected in ((0, False), (1, True)):
        node = norm(image(), 4, opset=6, is_test=is_test)
        assert is_inference(node, Graph([node], opsets={"": 6})) is expected


@pytest.mark.parametrize("with_bias", [False, True])
def test_the_new_weights_are_where_the_former_were(with_bias: bool) -> None:
    kernel, bias = weight("w", 4, 3, 1, 1).evolve(affinity="A"), weight("b", 4).evolve(affinity="B")
    conv = op("Conv", variable("x", "float32", (1, 3, 5, 5)), kernel, *[bias] * with_bias, name="conv")
    result = apply_pass(Graph([norm(conv, 4)]), "FoldBatchNorm")
    folded = result["conv"]
    assert [entry.node.affinity for entry in folded.inputs[1:]] == ["A", "B" if with_bias else "A"]
    assert [entry.name for entry in folded.inputs[1:]] == ["bn_weight", "bn_bias"]
