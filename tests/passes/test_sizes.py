"""What inference says of sizes is what comes out: ONNX's node tests, random attributes, and cases that ONNX's own gets wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, TensorType, constant, op, variable
from partita.graph.errors import TypeMismatch
from partita.graph.interpret import interpret
from partita.graph.readers.onnx import load_onnx
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.infer import infer, reading
from tests.numerics.driver import from_proto
from tests.passes.node_models import node_tests
from tests.passes.shape_cases import outcome


def without_types(g: Graph) -> Graph:
    def visit(node: Any, rewriter: Rewriter) -> None:
        rewriter.keep(
            node,
            rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)) if node.is_op else None,
        )

    return rewrite(g, visit)


def test_onnxs_node_tests() -> None:
    wrong = []
    compared = 0
    for case in node_tests():
        inferred = infer(without_types(load_onnx(case.model)), strict=False)
        for _, outputs in case.data_sets:
            for entry, data in zip(inferred.outputs, outputs, strict=True):
                value, kind = from_proto(data), entry.type
                if isinstance(value, np.ndarray) and isinstance(kind, TensorType):
                    compared += 1
                    if not says(kind, value):
                        wrong.append(
                            f"{case.name}: {kind} inferred, {value.dtype}{list(value.shape)} computed"
                        )
    assert not wrong and compared > 1500


def says(kind: TensorType, value: np.ndarray[Any, Any]) -> bool:
    """Is the array of that type?"""
    dtype = "string" if value.dtype.kind in "OSU" else value.dtype.name
    if dtype != kind.dtype or kind.shape is None:
        return dtype == kind.dtype
    return len(kind.shape) == value.ndim and all(
        not isinstance(size, int) or size == n for size, n in zip(kind.shape, value.shape, strict=True)
    )


def check(first: int, count: int) -> None:
    listed = [outcome(seed) for seed in range(first, first + count)]
    wrong = [
        f"seed {seed}: {said}" for seed, said in enumerate(listed, first) if said not in ("right", "refused")
    ]
    assert not wrong and listed.count("right") > 0.95 * count


def test_random_attributes() -> None:
    check(0, 400)


@pytest.mark.slow
def test_many_random_attributes() -> None:
    check(10_000, 4000)


def sizes(g: Graph, *arrays: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The first output's inferred shape, and the computed one."""
    kind = infer(g).outputs[0].type
    assert isinstance(kind, TensorType)
    return kind.shape, interpret(g, list(arrays))[0].shape


@pytest.mark.parametrize("version", [11, 18, 19, 21, 22])
@pytest.mark.parametrize("name", ["MaxPool", "AveragePool", "LpPool"])
def test_no_window_of_a_pool_begins_in_the_padding(name: str, version: int) -> None:
    if name == "LpPool" and version < 18:
        pytest.skip("LpPool has no ceil_mode yet")
    x = variable("x", "float32", ("N", 2, 9))
    pool = {"kernel_shape": [2], "strides": [2], "pads": [0, 1], "ceil_mode": 1}
    shape = [("N", 2, 5), (1, 2, 5)]
    g = Graph([op(name, x, opset=version, **pool)], opsets={"": version})
    assert list(sizes(g, np.zeros((1, 2, 9), np.float32))) == shape
    narrow = Graph(
        [op(name, x, opset=version, **{**pool, "pads": [1, 1], "strides": [3]})], opsets={"": version}
    )
    assert list(sizes(narrow, np.zeros((1, 2, 9), np.float32))) == [("N", 2, 4), (1, 2, 4)]
    last = Graph(
        [op(name, x, opset=version, **{**pool, "kernel_shape": [1], "strides": [3], "pads": [0, 1]})],
        opsets={"": version},
    )
    assert list(sizes(last, np.zeros((1, 2, 9), np.float32))) == [("N", 2, 3), (1, 2, 3)], (
        "ONNX says 4 below opset 22"
    )


def test_a_pool_of_unknown_sizes() -> None:
    x = variable("x", "float32", ("N", 2, "H", 7))
    y = op("MaxPool", x, n_outputs=2, opset=18, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    graph = infer(Graph(list(y.outputs), opsets={"": 18}))
    for entry, dtype in zip(graph.outputs, ("float32", "int64"), strict=True):
        kind = entry.type
        assert isinstance(kind, TensorType) and kind.dtype == dtype and kind.shape is not None
        assert (kind.shape[:2], kind.shape[3]) == (("N", 2), 4) and not isinstance(kind.shape[2], int)


@pytest.mark.parametrize(
    ("attributes", "kernel", "length"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [3]}, 1, 25),
        ({"auto_pad": "SAME_LOWER", "output_padding": [1], "strides": [2]}, 3, 18),
        ({"auto_pad": "SAME_UPPER", "output_padding": [1]}, 2, 9),
    ],
)
def test_a_transposed_convolution_that_pads_by_itself(
    attributes: dict[str, Any], kernel: int, length: int
) -> None:
    x = variable("x", "float32", ("N", 1, 9))
    w = constant(np.ones((1, 2, kernel), np.float32), "w")
    g = Graph([op("ConvTranspose", x, w, **attributes)])
    assert sizes(g, np.zeros((1, 1, 9), np.float32)) == (("N", 2, length), (1, 2, length))


@pytest.mark.parametrize("factor", [0.7, 0.35, 0.29, 1 / 49])
@pytest.mark.parametrize("version", [7, 9, 10, 11, 18])
def test_a_resize_multiplies_in_single_precision(factor: float, version: int) -> None:
    """Ten times 0.7 is 7, as for onnxruntime: ONNX says 6, which no engine makes."""
    size, listed = {0.7: 10, 0.35: 20, 0.29: 100}.get(factor, 49), np.array([1, 1, factor], np.float32)
    x, by = variable("x", "float32", ("N", 1, size)), constant(listed)
    if version < 10:
        given = (by,) if version == 9 else ()
        node = op("Upsample", x, *given, opset=version, **({} if given else {"scales": listed.tolist()}))
    else:
        node = op("Resize", x, *([] if version == 10 else [None]), by, opset=version)
    inferred, computed = sizes(Graph([node], opsets={"": version}), np.zeros((1, 1, size), np.float32))
    assert computed == (1, 1, round(size * factor)) and inferred[1:] == computed[1:]


def test_a_resize_of_a_chosen_dimension_by_a_factor_that_is_rounded() -> None:
    x, by = variable("x", "float32", (2, 10, "W")), constant(np.array([0.7], np.float32))
    given = np.zeros((2, 10, 3), np.float32)
    inferred, computed = sizes(Graph([op("Resize", x, None, by, axes=[-2], opset=18)], opsets={"": 18}), given)
    assert (inferred[:2], computed) == ((2, 7), (2, 7, 3))
    with pytest.raises(TypeMismatch, match="the number of factors and of dimensions do not go together: 1 and 3"):
        infer(Graph([op("Resize", x, None, by, opset=18)], opsets={"": 18}))


def test_a_kernel_that_is_larger_than_the_data() -> None:
    x = variable("x", "float32", (1, 1, 3))
    g = Graph([op("MaxPool", x, kernel_shape=[4], strides=[2])])
    assert sizes(g, np.zeros((1, 1, 3), np.float32)) == ((1, 1, 1), (1, 1, 1)), (
        "onnxruntime has one window too"
    )


def test_a_range_that_runs_backwards_from_before_the_first_element() -> None:
    x = variable("x", "float32", (3,))
    bounds = [constant(np.array([v], np.int64), f"c{i}") for i, v in enumerate((-5, -(2**63), 0, -1))]
    g = Graph([op("Slice", x, *bounds)])
    assert sizes(g, np.zeros(3, np.float32)) == ((1,), (1,)), "the first element, as ONNX clamps it"


@pytest.mark.parametrize("onesided", [None, 0, 1])
def test_a_spectrum_is_one_sided_unless_it_says_otherwise(onesided: int | None) -> None:
    x = variable("x", "float32", (1, 16, 1))
    given = {} if onesided is None else {"onesided": onesided}
    step, length = constant(np.array(4), "step"), constant(np.array(8), "length")
    result = sizes(Graph([op("STFT", x, step, None, length, **given)]), np.zeros((1, 16, 1), np.float32))
    assert result == ((1, 3, 8 if onesided == 0 else 5, 2),) * 2


@pytest.mark.parametrize("wanted", [[2, 9], [14, 9], [1, 2, 2, 9]])
def test_a_transposed_convolution_whose_result_has_given_sizes(wanted: list[int]) -> None:
    x = variable("x", "float32", ("N", 4, 3, 5))
    w = constant(np.ones((4, 1, 3, 2), np.float32), "w")
    g = Graph([op("ConvTranspose", x, w, strides=[3, 2], group=2, output_shape=wanted)])
    assert sizes(g, np.zeros((1, 4, 3, 5), np.float32)) == (("N", 2, *wanted[-2:]), (1, 2, *wanted[-2:]))


@pytest.mark.parametrize("slot", [2, 3])
def test_a_resize_to_a_vector_of_unknown_length(slot: int) -> None:
    x = variable("x", "float32", (1, 1, 2, 4))
    given = variable("given", "float32" if slot == 2 else "int64", ("K",))
    y = op("Resize", x, *[None] * (slot - 1), given, mode="linear")
    kind = infer(Graph([op("Relu", y)])).outputs[0].type
    assert kind is None or not any(isinstance(size, int) for size in kind.shape or ())


def test_heads_in_an_axis_of_unknown_size() -> None:
    q, k, v = (variable(name, "float32", (1, 3, size)) for name, size in zip("qkv", (8, 8, "V"), strict=True))
    y = op("Attention", q, k, v, n_outputs=4, opset=24, q_num_heads=2, kv_num_heads=2)
    g = Graph(list(y.outputs), opsets={"": 24})
    arrays = [np.zeros((1, 3, size), np.float32) for size in (8, 8, 4)]
    for entry, value in zip(infer(g).outputs, interpret(g, arrays), strict=True):
        assert isinstance(entry.type, TensorType) and says(entry.type, value), f"{entry.type} of {value.shape}"


@pytest.mark.parametrize(
    ("given", "scores"),
    [
        ([("b", "h", "s", 8), ("b", 2, "t", 8), ("b", 2, "t", 6)], ("b", "h", "s", "t")),
        ([(1, 4, 3, 8), (1, 2, "t", 8), (1, 2, "t", 6), (1, 2, 4, 8), (1, 2, 4, 6)], (1, 4, 3, None)),
        ([(1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 6), (1, 2, "p", 8), (1, 2, "p", 6)], (1, 4, 3, None)),
        ([(1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 6), (1, 2, 4, 8), (1, 2, 4, 6)], (1, 4, 3, 9)),
        ([(1, 3, 32), (1, "t", 16), (1, "t", 12)], (1, 4, 3, "t")),
        ([(1, 3, 32), (1, 5, 16), (1, 5, 12), (1, 2, "p", 8), (1, 2, "p", 6)], (1, 4, 3, None)),
    ],
)
def test_scores_for_an_unknown_number_of_keys(given: list[tuple[Any, ...]], scores: tuple[Any, ...]) -> None:
    q, k, v, *past = (variable(f"x{i}", "float32", shape) for i, shape in enumerate(given))
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if len(given[0]) == 3 else {}
    y = op("Attention", q, k, v, None, *past, n_outputs=4, opset=23, **heads)
    g = Graph(list(y.outputs), opsets={"": 23})
    types = [entry.type for entry in infer(g).outputs]
    assert isinstance(types[3], TensorType) and types[3].shape is not None
    assert tuple(size if isinstance(size, int) or size in tuple("bhst") else None for size in types[3].shape) == scores
    free = {"b": 2, "h": 4, "s": 3, "t": 5, "p": 7}
    arrays = [np.zeros([free[size] if isinstance(size, str) else size for size in shape], np.float32) for shape in given]
    for kind, value in zip(types, interpret(g, arrays), strict=True):
        assert kind is None or (isinstance(kind, TensorType) and says(kind, value)), f"{kind} of {value.shape}"


@pytest.mark.parametrize("opset", [9, 11])
def test_axes_of_a_squeeze_in_any_order(opset: int) -> None:
    x = variable("x", "float32", (9, 1, 1, 3))
    g = Graph([op("Squeeze", x, axes=[2, 1], opset=opset)], opsets={"": opset})
    assert sizes(g, np.zeros((9, 1, 1, 3), np.float32)) == ((9, 3), (9, 3))


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
def test_whole_numbers_that_overflow_are_no_contradiction(name: str) -> None:
    large = constant(np.array([2**62 + 5, -(2**62)]), "large")
    other = op("Mul", large, constant(np.array([-1, 1]), "signs")) if name == "Sub" else large
    assert sizes(Graph([op(name, large, other)])) == ((2,), (2,))


@pytest.mark.parametrize("wrong", [{"strides": [0]}, {"dilations": [0]}, {"strides": [2], "dilations": [-1]}, {"strides": [-2]}])
def test_strides_and_dilations_below_one_are_refused(wrong: dict[str, list[int]]) -> None:
    node = op("MaxPool", variable("x", "float32", (1, 2, 8)), name="y", kernel_shape=[2])
    with pytest.raises(TypeMismatch, match="(strides|dilations) and 1 do not go together"):
        infer(Graph([node.evolve(attrs={**node.attrs, **wrong})]))


def test_a_pool_of_a_constant_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may declare a window that takes hours."""
    monkeypatch.setattr(reading, "evaluate_node", lambda node, *_: pytest.fail(f"{node.op} was computed"))
    pool = op("MaxPool", constant(np.ones((1, 1, 9), np.float32)), kernel_shape=[2], strides=[2], ceil_mode=1)
    kind = infer(Graph([pool])).outputs[0].type
    assert isinstance(kind, TensorType) and kind.shape == (1, 1, 5)
