"""The door: names, errors, attributes, randomness, bodies."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest

from partita.graph.numerics import NoNumerics, evaluate, supports
from partita.graph.numerics.registry import absent, find, numerics


def test_unknown_op_names_cause_place_and_remedy() -> None:
    with pytest.raises(NoNumerics) as caught:
        evaluate("Fancy", [np.ones(2)], {}, domain="my.ops", version=3, n_outputs=1)
    assert str(caught.value) == (
        "no numpy meaning is known for my.ops::Fancy at opset 3; "
        "give the op one when you register it, or run the node on a device that supports it"
    )
    assert (caught.value.op, caught.value.domain, caught.value.version) == ("Fancy", "my.ops", 3)


def test_supports() -> None:
    assert supports("Softmax", "", 9)
    assert supports("Softmax", "ai.onnx", 9)
    assert supports("TreeEnsemble", "ai.onnx.ml", 5)
    assert not supports("TreeEnsemble", "ai.onnx.ml", 3)
    assert not supports("Fancy", "", 21)
    assert supports("ZipMap", "ai.onnx.ml", 1)
    assert not supports("CastMap", "ai.onnx.ml", 1)


def test_text_attributes_may_be_bytes() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    attrs = {"kernel_shape": [3, 3], "auto_pad": b"SAME_UPPER"}
    (y,) = evaluate("MaxPool", [x], attrs, version=12, n_outputs=1)
    assert y.shape == x.shape


def test_too_many_outputs() -> None:
    with pytest.raises(ValueError, match="Relu has 1 outputs here but 2 are asked for"):
        evaluate("Relu", [np.ones(2, np.float32)], {}, version=14, n_outputs=2)


def test_overlapping_meanings_are_refused() -> None:
    with pytest.raises(ValueError, match="two meanings of Softmax overlap"):
        numerics("Softmax", since=12, why=absent())(lambda x: x)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("RandomNormal", {"shape": [3, 4]}),
        ("RandomUniform", {"shape": [3, 4], "low": 2.0, "high": 3.0}),
        ("RandomNormalLike", {}),
        ("RandomNormalLike", {"dtype": 11}),
        ("RandomUniformLike", {}),
        ("RandomUniformLike", {"dtype": 11}),
        ("Bernoulli", {}),
        ("Bernoulli", {"dtype": 11}),
        ("Multinomial", {"sample_size": 40}),
    ],
)
def test_seeds(op: str, attrs: dict[str, Any]) -> None:
    inputs = [] if "shape" in attrs else [np.full((3, 4), 0.5, np.float32)]

    def draw(**more: Any) -> np.ndarray:
        return evaluate(op, inputs, attrs | more, version=22, n_outputs=1)[0]

    np.testing.assert_array_equal(draw(seed=1.5), draw(seed=1.5), strict=True)
    assert draw().dtype == (np.float64 if "dtype" in attrs else np.int32 if op == "Multinomial" else np.float32)
    assert any((draw() != draw(seed=2.0)).any() for _ in range(9))


def test_dropout_in_training() -> None:
    x = np.ones(10_000, np.float32)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    y, mask = evaluate("Dropout", inputs, {"seed": 3}, version=13, n_outputs=2)
    assert 0.7 < mask.mean() < 0.8
    np.testing.assert_allclose(y, mask / np.float32(0.75))


def test_loop_without_iterations_gives_empty_arrays() -> None:
    class Body:
        output_types = [(np.dtype(bool), ()), (np.dtype(np.float32), (2,)), (np.dtype(np.int64), (3,))]

        def __call__(self, inputs: Any) -> Any:
            raise AssertionError("the body must not run")

    state = np.ones(2, np.float32)
    results = evaluate("Loop", [np.array(0), None, state], {"body": Body()}, version=13, n_outputs=2)
    np.testing.assert_array_equal(results[0], state)
    assert results[1].shape == (0, 3)
    assert results[1].dtype == np.int64


def test_scan_directions_and_axes() -> None:
    x = np.arange(6.0).reshape(2, 3)

    def body(inputs: Any) -> Any:
        total = inputs[0] + inputs[1]
        return [total, total]

    attrs = {
        "body": body,
        "num_scan_inputs": 1,
        "scan_input_axes": [1],
        "scan_input_directions": [1],
        "scan_output_axes": [1],
        "scan_output_directions": [1],
    }
    total, sums = evaluate("Scan", [np.zeros(2), x], attrs, version=16, n_outputs=2)
    np.testing.assert_array_equal(total, x.sum(axis=1))
    np.testing.assert_array_equal(sums, x[:, ::-1].cumsum(axis=1)[:, ::-1])


def test_import_leaves_the_reference_evaluator_alone() -> None:
    check = "import sys, graph.numerics; print('onnx.reference' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_meaning_takes_all_attributes_and_inputs_of_its_schemas() -> None:
    """For each op and opset: a keyword for each attribute, a position for each input."""
    lacking = []
    for schema in onnx.defs.get_all_schemas_with_history():
        meaning = find(schema.name, schema.domain, schema.since_version)
        if meaning is None or schema.deprecated:
            continue
        parameters = inspect.signature(meaning.function).parameters.values()
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - set(meaning.wants)
        wanted = set(schema.attributes) - {"consumed_inputs"}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            named = wanted
        places = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            places = schema.max_input
        needed = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        if not wanted <= named or places < schema.max_input or needed > schema.min_input:
            lacking.append((schema.name, schema.since_version, wanted - named, places, needed))
    assert not lacking


@pytest.mark.parametrize(
    ("position", "wanted"), [(None, [1, 2, 9]), (0, [9, 1, 2]), (2, [1, 2, 9]), (-2, [9, 1, 2]), (-1, [1, 9, 2])]
)
def test_an_item_goes_into_a_sequence(position: int | None, wanted: list[int]) -> None:
    """ONNX's own reference puts what goes to the end (position 2) first."""
    items = [np.array(1), np.array(2)]
    result = [] if position is None else [np.array(position)]
    (output,) = evaluate("SequenceInsert", [items, np.array(9), *result], {}, version=11, n_outputs=1)
    assert [int(item) for item in output] == wanted and len(items) == 2
    (only,) = evaluate("SequenceInsert", [[], np.array(9), np.array(0)], {}, version=11, n_outputs=1)
    assert [int(item) for item in only] == [9]
    with pytest.raises(ValueError, match="position 3 is outside of a sequence of 2"):
        evaluate("SequenceInsert", [items, np.array(9), np.array(3)], {}, version=11, n_outputs=1)


def test_limits_of_boxes_may_be_scalars() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], "float32")
    scores = np.array([[[0.9, 0.75, 0.6]]], "float32")
    limits = [np.array(3), np.array(0.5, "float32"), np.array(0.65, "float32")]
    for count, wanted in ((3, [[0, 0, 0]]), (2, [[0, 0, 0], [0, 0, 2]]), (1, [[0, 0, 0], [0, 0, 1], [0, 0, 2]])):
        given = [limits[0], *limits[1:count]] if count > 1 else [limits[0], np.array(1.0, "float32")]
        (output,) = evaluate("NonMaxSuppression", [boxes, scores, *given], {}, version=11, n_outputs=1)
        assert output.tolist() == wanted
    (none,) = evaluate("NonMaxSuppression", [boxes, scores], {}, version=11, n_outputs=1)
    assert none.shape == (0, 3) and none.dtype == np.int64


def test_the_error_function_of_a_scalar() -> None:
    (output,) = evaluate("Erf", [np.array(0.5, "float32")], {}, version=13, n_outputs=1)
    assert output.shape == () and abs(float(output) - 0.5204999) < 1e-6


def test_a_float_attribute_is_what_a_file_would_hold() -> None:
    """In a file it has single precision, so that it would be another number after it was written and read."""
    x = np.array([-1.0])
    assert evaluate("LeakyRelu", [x], {"alpha": 0.1}, version=16, n_outputs=1)[0] == -float(np.float32(0.1))


def test_a_loss_where_logits_lie_far_apart() -> None:
    x, labels = np.array([[0, 65504, 65504]], np.float32), np.array([0])
    loss, likely = evaluate("SoftmaxCrossEntropyLoss", [x, labels], {}, version=13, n_outputs=2)
    np.testing.assert_allclose(loss, 65504 + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(likely, [[-65504 - np.log(2), -np.log(2), -np.log(2)]], rtol=1e-6)


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_of_no_class(op: str, reduction: str, label: int) -> None:
    x, labels = np.zeros((2, 3), np.float32), np.array([1, label])
    with pytest.raises(ValueError, match=f"the label {label} is none of 3 classes"):
        evaluate(op, [x, labels], {"reduction": reduction}, version=13, n_outputs=1)
    (loss,) = evaluate(op, [x, labels], {"reduction": reduction, "ignore_index": label}, version=13, n_outputs=1)
    each = np.log(3) if op == "SoftmaxCrossEntropyLoss" else 0
    np.testing.assert_allclose(loss, [each, 0] if reduction == "none" else each, rtol=1e-6)
    words = {"reduction": reduction, "ignore_index": label}
    (loss,) = evaluate(op, [x[:, :1], np.array([0, label])], words, version=13, n_outputs=1)
    np.testing.assert_allclose(loss, [0, 0] if reduction == "none" else 0)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("length", [-1, 5])
def test_a_sequence_that_is_longer_than_the_data(op: str, length: int) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x, w, r = (np.zeros(shape, np.float32) for shape in ((4, 2, 3), (1, 2 * gates, 3), (1, 2 * gates, 2)))
    with pytest.raises(ValueError, match=f"the length {length} of a sequence is not between 0 and 4"):
        evaluate(op, [x, w, r, None, np.array([4, length], np.int32)], {"hidden_size": 2}, version=14, n_outputs=1)


@pytest.mark.parametrize("columns", [2, 3])
def test_quantized_products_by_row_and_column(columns: int) -> None:
    """A square one too, where a vector by row also fits the columns."""
    random = np.random.default_rng(3)
    a, b = random.integers(0, 99, (2, 5), np.uint8), random.integers(-50, 50, (5, columns), np.int8)
    a_scale, b_scale = np.array([0.1, 0.01], np.float32), np.linspace(0.01, 0.1, columns, dtype=np.float32)
    a_point, b_point = np.array([3, 50], np.uint8), np.arange(columns, dtype=np.int8)
    y_scale, y_point = np.array([2, 0.5], np.float32), np.array([100, 120], np.uint8)
    exact = ((a - np.float64(a_point)[:, None]) * a_scale[:, None]) @ ((b - np.float64(b_point)) * b_scale)
    wanted = np.clip(np.rint(exact / y_scale[:, None] + y_point[:, None]), 0, 255)
    inputs = [a, a_scale, a_point, b, b_scale, b_point, y_scale, y_point]
    (output,) = evaluate("QLinearMatMul", inputs, {}, version=21, n_outputs=1)
    assert output.dtype == np.uint8
    np.testing.assert_array_equal(output, wanted)


def test_a_nan_that_no_position_reads_changes_nothing() -> None:
    image = np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6)
    spoilt = image.copy()
    spoilt[0, 0, 0, 0] = np.nan
    given = np.array([[2, 2, 5, 4], [-9, -9, -5, -5], [0, 0, 2, 2]], np.float32), np.zeros(3, np.int64)
    means = [evaluate("RoiAlign", [x, *given], {"sampling_ratio": 2}, version=22, n_outputs=1)[0] for x in (image, spoilt)]
    np.testing.assert_array_equal(means[1].ravel()[:2], means[0].ravel()[:2])
    assert np.isnan(means[1].ravel()[2])
    grid = np.array([[[[-3, -3], [0.1, 0.2], [-1.1, -1.1]]]], np.float32)
    for mode, is_read in (("linear", True), ("nearest", False), ("cubic", True)):
        samples = [evaluate("GridSample", [x, grid], {"mode": mode}, version=22, n_outputs=1)[0].ravel() for x in (image, spoilt)]
        np.testing.assert_array_equal(samples[1][:2], samples[0][:2])
        assert np.isnan(samples[1][2]) == is_read


REGION = np.array([[0, 0, 3, 3]], np.float32)
SQUARE = np.ones((1, 1, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "cause"),
    [
        ("TopK", [np.arange(5.0), np.array([-1])], {}, "there are no -1 numbers to choose"),
        ("TopK", [np.arange(5.0), np.array([2**40])], {}, "there are no 1099511627776 numbers to choose among 5"),
        ("Split", [np.arange(5.0), np.array([2, 9])], {}, r"\[2, 9\] are not sizes of parts that add up to 5"),
        ("Split", [np.arange(5.0), np.array([6, -1])], {}, r"\[6, -1\] are not sizes of parts that add up to 5"),
        ("RoiAlign", [SQUARE, REGION, np.array([-1])], {}, "a region is of image -1, and there are 1"),
        ("RoiAlign", [SQUARE, REGION[[0, 0]], np.array([0, 1])], {}, "a region is of image 1, and there are 1"),
        ("RoiAlign", [SQUARE, REGION[[0, 0]], np.array([0])], {}, "there are 2 regions, and the images of 1"),
        ("RoiAlign", [SQUARE, np.zeros((1, 11), np.float32), np.array([0])], {}, "these have the shape"),
        ("Tile", [np.zeros(3, np.float32), np.array([2, 2])], {}, "must be 1 counts, one for each axis, none negative"),
        ("Pad", [np.zeros(3, np.float32), np.array([-2, -2])], {}, "4 elements cannot be cut off axis 0, which has 3"),
        ("Pad", [np.zeros(3, np.float32), np.array([1, 1, 1, 1])], {}, r"4 pads do not fit both ends of axes \[0\] in rank 1"),
        ("Pad", [np.zeros(3), np.array([1, 1]), np.array(0.0), np.array([1])], {}, r"2 pads do not fit both ends of axes \[1\]"),
        ("RoiAlign", [SQUARE, REGION, np.array([2])], {"mode": "max"}, "a region is of image 2, and there are 1"),
        ("MaxUnpool", [SQUARE, np.array([[[[0, 1], [2, -1]]]])], {"kernel_shape": [2, 2]}, "index -1 is outside of 9 numbers"),
        ("MaxUnpool", [SQUARE, np.array([[[[0, 1], [2, 9]]]])], {"kernel_shape": [2, 2]}, "index 9 is outside of 9 numbers"),
    ],
)
def test_what_lies_outside_is_an_error(op: str, inputs: list[np.ndarray], attributes: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        evaluate(op, inputs, attributes, version=22, n_outputs=2 if op == "Split" else 1)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_negative_sampling_ratio_is_chosen_by_the_size_of_the_region(mode: str) -> None:
    """As zero is: onnxruntime takes any number that is not positive so."""
    inputs = [np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), REGION, np.array([0])]
    given = [{"mode": mode, "sampling_ratio": ratio} for ratio in (0, -1)]
    results = [evaluate("RoiAlign", inputs, attributes, version=22, n_outputs=1)[0] for attributes in given]
    np.testing.assert_array_equal(results[1], results[0])


NGRAMS = {"mode": "TF", "max_gram_length": 2, "ngram_counts": [0, 1], "ngram_indexes": [0, 1], "pool_int64s": [1, 1, 2]}
"""The single item 1, and 1 before 2."""


def test_ngrams_of_any_skip_are_counted_at_once() -> None:
    """A file of a hundred bytes asked for 2^62 skips, which were tried one after the other."""
    words, attributes = [np.array([1, 5, 2, 1, 2])], {**NGRAMS, "min_gram_length": 1}
    for skips, pairs in ((0, 1), (1, 2), (3, 3), (2**62, 3)):
        (counted,) = evaluate("TfIdfVectorizer", words, {**attributes, "max_skip_count": skips}, version=9, n_outputs=1)
        assert counted.tolist() == [2, pairs]
    with pytest.raises(ValueError, match="min_gram_length is 0, and an n-gram has one item at least"):
        evaluate("TfIdfVectorizer", words, {**attributes, "min_gram_length": 0, "max_skip_count": 1}, version=9, n_outputs=1)


def test_a_box_that_overlaps_by_just_the_threshold_stays() -> None:
    boxes = np.array([[[0, 0, 1, 2], [0, 0, 1, 1]]], "float32")  # overlap 1 of 2
    scores, most = np.array([[[0.9, 0.8]]], "float32"), np.array([2])
    for limit, kept in ((0.5, 2), (0.49, 1)):
        given = [boxes, scores, most, np.array([limit], "float32")]
        (output,) = evaluate("NonMaxSuppression", given, {}, version=11, n_outputs=1)
        assert len(output) == kept


@pytest.mark.parametrize(
    ("attribute", "value", "dtype"),
    [
        ("value_float", 1.5, "float32"), ("value_floats", [1.5, 2.0], "float32"), ("value_int", 3, "int64"),
        ("value_ints", [3, 4], "int64"), ("value_string", "a", "object"), ("value_strings", ["a", "b"], "object"),
    ],
)
def test_constants_by_each_attribute(attribute: str, value: Any, dtype: str) -> None:
    (array,) = evaluate("Constant", [], {attribute: value}, version=21, n_outputs=1)
    assert (array.tolist(), array.dtype.name) == (value, dtype)
