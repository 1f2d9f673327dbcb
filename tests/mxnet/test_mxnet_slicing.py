"""Parts of an input, at the ends of what the parameters may be."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph import ReadError
from partita.graph.interpret import interpret
from partita.graph.ops.onnx_crashes import MOST
from partita.graph.readers.mxnet import load_mxnet
from tests.mxnet.test_mxnet_symbol import node, symbol

DATA = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 4)
IMAGE = np.arange(2 * 7 * 6, dtype=np.float32).reshape(1, 2, 7, 6)


def computed(op, data, count=1, **attributes):
    heads = [[1, i, 0] for i in range(count)]
    graph = load_mxnet(symbol(node(op, "n", 0, attrs=attributes), heads=heads), shapes={"x": data.shape})
    return interpret(graph, [data])


PARTS = [
    ("slice", {"begin": "(0, 1)", "end": "(2, 5)"}, DATA, DATA[0:2, 1:5]),
    ("slice", {"begin": "(None, 1)", "end": "(1, None)"}, DATA, DATA[:1, 1:]),
    ("slice", {"begin": "(None, None)", "end": "(None, None)", "step": "(None, -2)"}, DATA, DATA[:, ::-2]),
    ("slice", {"begin": "(None, 5)", "end": "(None, 1)", "step": "(1, -1)"}, DATA, DATA[:, 5:1:-1]),
    ("slice", {"begin": "(1,)", "end": "(2,)", "step": "(1,)"}, DATA, DATA[1:2]),
    ("slice_axis", {"axis": "1", "begin": "2", "end": "None"}, DATA, DATA[:, 2:]),
    ("slice_axis", {"axis": "-2", "begin": "-3", "end": "-1"}, DATA, DATA[:, -3:-1]),
    ("reverse", {"axis": "(0, 2)"}, DATA, DATA[::-1, :, ::-1]),
    ("flip", {"axis": "1"}, DATA, DATA[:, ::-1]),
    ("Crop", {"h_w": "(3, 2)"}, IMAGE, IMAGE[:, :, :3, :2]),
    ("Crop", {"h_w": "(3, 2)", "offset": "(4, 1)"}, IMAGE, IMAGE[:, :, 4:7, 1:3]),
    ("Crop", {"h_w": "(4, 6)", "center_crop": "True"}, IMAGE, IMAGE[:, :, 1:5, :6]),
    ("Crop", {"h_w": "(7, 6)", "center_crop": "True"}, IMAGE, IMAGE),
    ("Pad", {"mode": "edge", "pad_width": "(0, 0, 1, 2, 0, 3)"}, DATA, np.pad(DATA, ((0, 0), (1, 2), (0, 3)), "edge")),
    ("Pad", {"mode": "reflect", "pad_width": "(0, 0, 1, 0)"}, DATA[0], np.pad(DATA[0], ((0, 0), (1, 0)), "reflect")),
    (
        "Pad", {"mode": "constant", "pad_width": "(0, 1, 0, 0, 2, 0)", "constant_value": "2.5"}, DATA,
        np.pad(DATA, ((0, 1), (0, 0), (2, 0)), constant_values=2.5),
    ),
    ("Pad", {"mode": "constant", "pad_width": "(0, 1, 0, 0)"}, DATA[0], np.pad(DATA[0], ((0, 1), (0, 0)))),
]


@pytest.mark.parametrize(("op", "attributes", "data", "expected"), PARTS)
def test_a_part_is_as_numpy_has_it(op, attributes, data, expected):
    (result,) = computed(op, data, **attributes)
    np.testing.assert_array_equal(result, expected, strict=True)


LIKE = [
    ("slice_like", {}, DATA, (1, 4, 3), DATA[:1, :4, :3]),
    ("slice_like", {"axes": "(1,)"}, DATA, (1, 4, 3), DATA[:, :4]),
    ("slice_like", {"axes": "(0, -1)"}, DATA, (1, 2), DATA[:1, :, :2]),
    ("Crop", {"num_args": "2"}, IMAGE, (9, 9, 4, 5), IMAGE[:, :, :4, :5]),
    ("Crop", {"num_args": "2", "offset": "(3, 1)"}, IMAGE, (9, 9, 4, 5), IMAGE[:, :, 3:, 1:]),
    ("Crop", {"num_args": "2", "center_crop": "True"}, IMAGE, (1, 1, 3, 2), IMAGE[:, :, 2:5, 2:4]),
]


@pytest.mark.parametrize(("op", "attributes", "data", "like", "expected"), LIKE)
def test_a_part_of_the_size_of_another_input(op, attributes, data, like, expected):
    other = {"op": "null", "name": "y", "inputs": []}
    graph = load_mxnet(symbol(other, node(op, "n", 0, 1, attrs=attributes)), shapes={"x": data.shape, "y": like})
    (result,) = interpret(graph, [data, np.zeros(like, np.float32)])
    np.testing.assert_array_equal(result, expected, strict=True)


SPLITS = [
    ("SliceChannel", {"num_outputs": "3"}, np.split(DATA, 3, 1)),
    ("SliceChannel", {"num_outputs": "1"}, [DATA]),
    ("split", {"num_outputs": "2", "axis": "-1"}, np.split(DATA, 2, -1)),
    ("SliceChannel", {"num_outputs": "6", "squeeze_axis": "True"}, [DATA[:, i] for i in range(6)]),
    ("SliceChannel", {"num_outputs": "2", "axis": "0", "squeeze_axis": "1"}, [DATA[0], DATA[1]]),
    ("_split_v2", {"sections": "2", "axis": "1"}, np.split(DATA, 2, 1)),
    ("_split_v2", {"indices": "(0, 2, 5)"}, np.split(DATA, [2, 5], 1)),
    ("_split_v2", {"indices": "(2, 5)", "axis": "1"}, np.split(DATA, [2, 5], 1)),
    ("_split_v2", {"indices": "(2, 2)", "axis": "-2"}, np.split(DATA, [2, 2], 1)),
    ("_split_v2", {"indices": "(0, 6)", "axis": "1"}, [DATA, DATA[:, 6:]]),
    ("_split_v2", {"indices": "(0, 1)", "axis": "0", "squeeze_axis": "True"}, [DATA[0], DATA[1]]),
    ("_split_v2", {"indices": "()", "axis": "0"}, [DATA]),
]


@pytest.mark.parametrize(("op", "attributes", "expected"), SPLITS)
def test_all_parts_are_as_numpy_has_them(op, attributes, expected):
    results = computed(op, DATA, len(expected), **attributes)
    for result, part in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, part, strict=True)


def test_an_axis_of_one_that_is_squeezed():
    (result,) = computed("SliceChannel", DATA[:, :1], num_outputs="1", squeeze_axis="True")
    np.testing.assert_array_equal(result, DATA[:, 0], strict=True)


WRONG = [
    ("slice", {"begin": "(0, 1)", "end": "(2,)"}, "'begin' must be as long as end and step, but is '(0, 1)'"),
    ("slice", {"begin": "(0,)", "end": "(2,)", "step": "(1, 1)"}, "'begin' must be as long as end and step, but is '(0,)'"),
    ("slice", {"begin": "()", "end": "()"}, "'begin' must be as long as end and step, but is '()'"),
    ("slice", {"begin": "(0,)", "end": "(2,)", "step": "(0,)"}, "'step' must be other than 0, but is '(0,)'"),
    ("reverse", {"axis": "()"}, "'axis' must be given, but is '()'"),
    ("SliceChannel", {"num_outputs": "4"}, "'num_outputs' must be a divisor of the axis's size 6, but is '4'"),
    ("SliceChannel", {"num_outputs": "0"}, "'num_outputs' must be 1 or more, but is '0'"),
    ("SliceChannel", {"num_outputs": "3", "squeeze_axis": "True"}, "'squeeze_axis' must be False where a part is longer than 1"),
    ("_split_v2", {"indices": "(2, 7)", "axis": "1"}, "'indices' must be rising from 0 to at most 6, but is '(2, 7)'"),
    ("_split_v2", {"indices": "(3, 2)", "axis": "1"}, "'indices' must be rising from 0 to at most 6, but is '(3, 2)'"),
    ("Pad", {"mode": "edge", "pad_width": "(0, 1, 2)"}, "'pad_width' must be two numbers, 0 or more, for each axis"),
    ("Pad", {"mode": "edge", "pad_width": "(0, -1)"}, "'pad_width' must be two numbers, 0 or more, for each axis"),
    ("Pad", {"mode": "edge", "pad_width": "()"}, "'pad_width' must be two numbers, 0 or more, for each axis"),
]


@pytest.mark.parametrize(("op", "attributes", "said"), WRONG)
def test_parameters_that_name_no_part(op, attributes, said):
    with pytest.raises(ReadError) as refused:
        computed(op, DATA, **attributes)
    assert said in str(refused.value)


def test_parts_of_an_axis_of_unknown_size_are_limited_in_number():
    most = MOST - 1
    graph = load_mxnet(symbol(node("SliceChannel", "n", 0, attrs={"num_outputs": str(most)})), shapes={"x": (2, None)})
    assert len(graph["n"].output_names) == most
    with pytest.raises(ReadError, match="'num_outputs' must be a divisor of the axis's size, but is '32768'"):
        load_mxnet(symbol(node("SliceChannel", "n", 0, attrs={"num_outputs": str(MOST)})), shapes={"x": (2, None)})


def test_a_crop_of_smaller_data():
    with pytest.raises(ReadError, match=r"\(8, 6\) cannot be cropped from smaller data"):
        computed("Crop", IMAGE, h_w="(8, 6)", center_crop="True")
