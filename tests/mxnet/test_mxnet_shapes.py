"""Ops that give the same elements another shape or order: MXNet's codes, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph import PartitaError
from partita.graph.interpret import interpret
from partita.graph.readers.mxnet import load_mxnet
from tests.mxnet.test_mxnet_symbol import node, symbol


def computed(op, shape, attributes, like=None):
    """The op's result for 0, 1, 2, ... in this shape, and another input."""
    data = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    if like is None:
        return interpret(load_mxnet(symbol(node(op, "n", 0, attrs=attributes)), shapes={"x": shape}), [data])[0], data
    described = symbol({"op": "null", "name": "y", "inputs": []}, node(op, "n", 0, 1, attrs=attributes))
    graph = load_mxnet(described, shapes={"x": shape, "y": like})
    return interpret(graph, [data, np.zeros(like, np.float32)])[0], data


RESHAPES = [
    ((2, 3, 4), {"shape": "(4, 0, 2)"}, (4, 3, 2)), ((2, 3, 4), {"shape": "(2, 0, 0)"}, (2, 3, 4)),
    ((2, 3, 4), {"shape": "(6, 1, -1)"}, (6, 1, 4)), ((2, 3, 4), {"shape": "(-1,)"}, (24,)),
    ((2, 3, 4), {"shape": "(-2,)"}, (2, 3, 4)), ((2, 3, 4), {"shape": "(2, -2)"}, (2, 3, 4)),
    ((2, 3, 4), {"shape": "(-2, 1, 1)"}, (2, 3, 4, 1, 1)), ((2, 3, 4), {"shape": "(-3, 4)"}, (6, 4)),
    ((2, 3, 4, 5), {"shape": "(-3, -3)"}, (6, 20)), ((2, 3, 4), {"shape": "(0, -3)"}, (2, 12)),
    ((2, 3, 4), {"shape": "(-3, -2)"}, (6, 4)), ((2, 3, 4), {"shape": "(-4, 1, 2, -2)"}, (1, 2, 3, 4)),
    ((2, 3, 4), {"shape": "(2, -4, -1, 3, -2)"}, (2, 1, 3, 4)), ((2, 6, 4), {"shape": "(0, -4, 2, -1, -2)"}, (2, 2, 3, 4)),
    ((2, 3, 4), {"shape": "(-1, -3)"}, (2, 12)), ((2, 3, 4), {"shape": "(24, 1, 1, 1, -2)"}, (24, 1, 1, 1)),
    ((10, 5, 4), {"shape": "(-1, 0)"}, (40, 5)), ((10, 5, 4), {"shape": "(-1, 0)", "reverse": "1"}, (50, 4)),
    ((8, 3, 3, 3, 4, 4), {"shape": "(0, 0, -3, 0, 0)", "reverse": "True"}, (8, 3, 9, 4, 4)),
    ((8, 4), {"shape": "(-1, 2, 4, -4)", "reverse": "1"}, None),
    ((4, 6), {"shape": "(0, 2, 3, -4)", "reverse": "1"}, (4, 2, 3)),
    ((4, 6), {"target_shape": "(0, 3)"}, (8, 3)), ((4, 6), {"target_shape": "(2, 12)"}, (2, 12)),
    ((4, 6), {"target_shape": "(9, 2, 3)", "keep_highest": "True"}, (4, 2, 3)),
    ((4, 6), {"target_shape": "(3, 0)", "keep_highest": "True"}, (4, 6)),
    ((4, 6), {"shape": "(6, 4)", "target_shape": "(24,)"}, (6, 4)),
]


@pytest.mark.parametrize(("shape", "attributes", "expected"), RESHAPES)
def test_a_reshape(shape, attributes, expected):
    if expected is None:
        with pytest.raises(PartitaError, match="a dimension of 4 cannot be split into 4 and 2"):
            computed("Reshape", shape, attributes)
        return
    result, data = computed("Reshape", shape, attributes)
    np.testing.assert_array_equal(result, data.reshape(expected), strict=True)


LIKE = [
    ((4, 6), (3, 8), {}, (3, 8)),
    ((30, 7), (15, 2, 4), {"lhs_begin": "0", "lhs_end": "1", "rhs_begin": "0", "rhs_end": "2"}, (15, 2, 7)),
    ((2, 30, 7), (5, 6, 4), {"lhs_begin": "1", "lhs_end": "-1", "rhs_begin": "-3", "rhs_end": "-1"}, (2, 5, 6, 7)),
    ((2, 12), (9, 3, 4), {"lhs_begin": "1", "rhs_begin": "1"}, (2, 3, 4)),
    ((2, 3, 4), (9, 6), {"lhs_end": "2", "rhs_begin": "1"}, (6, 4)),
]


@pytest.mark.parametrize(("shape", "like", "attributes", "expected"), LIKE)
def test_a_reshape_to_dimensions_of_another_input(shape, like, attributes, expected):
    result, data = computed("reshape_like", shape, attributes, like)
    np.testing.assert_array_equal(result, data.reshape(expected), strict=True)


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "expected"),
    [
        ("Flatten", (2, 3, 4), {}, lambda x: x.reshape(2, 12)), ("transpose", (2, 3, 4), {}, lambda x: x.T),
        ("transpose", (2, 3, 4), {"axes": "(1, 2, 0)"}, lambda x: x.transpose(1, 2, 0)),
        ("SwapAxis", (2, 3, 4), {"dim1": "0", "dim2": "-1"}, lambda x: x.swapaxes(0, 2)),
        ("swapaxes", (2, 3, 4), {"dim2": "1"}, lambda x: x.swapaxes(0, 1)),
        ("expand_dims", (2, 3), {"axis": "-1"}, lambda x: x[..., None]),
        ("squeeze", (1, 3, 1), {}, lambda x: x[0, :, 0]), ("squeeze", (1, 3, 1), {"axis": "(-1,)"}, lambda x: x[..., 0]),
        ("squeeze", (1, 1), {}, lambda x: x[0]), ("squeeze", (2, 3), {}, lambda x: x),
        ("depth_to_space", (1, 4, 2, 3), {"block_size": "1"}, lambda x: x),
        ("space_to_depth", (1, 1, 2, 2), {"block_size": "2"}, lambda x: x.reshape(1, 4, 1, 1)),
    ],
)
def test_elements_in_another_order(op, shape, attributes, expected):
    result, data = computed(op, shape, attributes)
    np.testing.assert_array_equal(result, expected(data), strict=True)


WRONG = [
    ("Reshape", {"shape": "()"}, "'shape' must be given, but is '()'"),
    ("Reshape", {"shape": "(-5, 0)"}, "'shape' must be sizes, or MXNet's codes from 0 to -4, but is '(-5, 0)'"),
    ("Reshape", {"shape": "(0, 0, -3)"}, "'shape' must be one that takes at most the 3 dimensions of the data"),
    ("Reshape", {"shape": "(-1, -1, -2)"}, "'shape' must be one with a single -1, but is '(-1, -1, -2)'"),
    ("Reshape", {"shape": "(-4, 0, 2, -2)"}, "'shape' must be one with two sizes after -4, at most one of them -1"),
    ("Reshape", {"shape": "(-4, -1, -1, -2)"}, "'shape' must be one with two sizes after -4, at most one of them -1"),
    ("Reshape", {"shape": "(-4, -2, 1)"}, "'shape' must be one with two sizes after -4, at most one of them -1"),
    ("Reshape", {"shape": "(-4, 2)"}, "'shape' must be one with two sizes after -4, at most one of them -1"),
    ("Reshape", {"shape": "(0, -4, 2, -1, -2)"}, "a dimension of 3 cannot be split into 2 and 1"),
    ("Reshape", {"target_shape": "(0, 0)"}, "'target_shape' must be sizes, at most one of them 0, but is '(0, 0)'"),
    ("Reshape", {"target_shape": "(-2, 3)"}, "'target_shape' must be sizes, at most one of them 0, but is '(-2, 3)'"),
    ("transpose", {"axes": "(0, 1, 3)"}, "axis 3"),
    ("expand_dims", {}, "'axis' must be a whole number, but is missing"),
    ("depth_to_space", {"block_size": "0"}, "'block_size' must be 1 or more, but is '0'"),
]


@pytest.mark.parametrize(("op", "attributes", "said"), WRONG)
def test_codes_that_mean_nothing(op, attributes, said):
    with pytest.raises(PartitaError) as refused:
        computed(op, (2, 3, 4), attributes)
    assert said in str(refused.value)


@pytest.mark.parametrize("span", [{"lhs_begin": "2", "lhs_end": "1"}, {"lhs_end": "4"}, {"lhs_begin": "-4"}])
def test_spans_of_axes_that_are_not_there(span):
    with pytest.raises(PartitaError, match="lhs has no axes"):
        computed("reshape_like", (2, 3, 4), span, (24,))


@pytest.mark.parametrize("op", ["Convolution", "Convolution_v1"])
def test_every_spelling_of_an_op_implies_its_shapes(op):
    variables = [{"op": "null", "name": name, "inputs": []} for name in ("w", "b")]
    window = {"kernel": "(3, 2)", "num_filter": "5"}
    graph = load_mxnet(symbol(*variables, node(op, "n", 0, 1, 2, attrs=window)), shapes={"x": (1, 4, 6, 6)})
    assert [entry[0].type.shape for entry in graph.inputs[1:]] == [(5, 4, 3, 2), (5,)]
