"""Opsets below 7, which no engine runs any more: what the specification of the time says, spelled out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from partita.graph.numerics import evaluate

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5
C = np.array([1, 2, 3], np.float32)


def run(op: str, inputs: list[Any], version: int, n_outputs: int = 1, **attrs: Any) -> Any:
    """The first output, or all of them if several are asked for."""
    outputs = evaluate(op, inputs, attrs, version=version, n_outputs=n_outputs)
    return outputs if n_outputs > 1 else outputs[0]


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Greater": np.greater,
    "Less": np.less,
}


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize("op", BINARY)
def test_axis_places_the_second_input(op: str, version: int) -> None:
    wanted = BINARY[op](X, C[:, None])
    np.testing.assert_array_equal(run(op, [X, C], version, broadcast=1, axis=1), wanted)
    np.testing.assert_array_equal(run(op, [X, C], version, broadcast=1, axis=-2), wanted)
    suffix = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(run(op, [X, suffix], version, broadcast=1), BINARY[op](X, suffix))
    np.testing.assert_array_equal(run(op, [X, X], version), BINARY[op](X, X))


def test_logic_with_axis() -> None:
    a, b = X > 0, C > 1
    np.testing.assert_array_equal(run("And", [a, b], 1, broadcast=1, axis=1), a & b[:, None])
    np.testing.assert_array_equal(run("Or", [a, b], 1, broadcast=1, axis=1), a | b[:, None])
    np.testing.assert_array_equal(run("Xor", [a, b], 1, broadcast=1, axis=1), a ^ b[:, None])


def test_attributes_that_became_inputs() -> None:
    np.testing.assert_array_equal(run("Reshape", [X], 1, shape=[0, -1]), X.reshape(2, 12))
    np.testing.assert_array_equal(
        run("Tile", [X, np.array([2.0]), np.array([1.0])], 1), np.tile(X, (1, 2, 1))
    )
    np.testing.assert_array_equal(run("Slice", [X], 1, starts=[1], ends=[3], axes=[2]), X[:, :, 1:3])
    np.testing.assert_array_equal(run("Squeeze", [X[:, :1]], 1, axes=[1]), X[:, 0])
    np.testing.assert_array_equal(run("Unsqueeze", [X], 1, axes=[0, 4]), X[None, ..., None])
    np.testing.assert_array_equal(
        run("Pad", [X], 1, paddings=[0, 1, 0, 0, 0, 2], value=9.0),
        np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=9),
    )
    values, places = run("TopK", [X], 1, n_outputs=2, k=2, axis=1)
    np.testing.assert_array_equal(values, X[:, :0:-1])
    np.testing.assert_array_equal(places[:, :, 0], [[2, 1], [2, 1]])


def test_defaults_that_changed() -> None:
    np.testing.assert_array_equal(run("Concat", [X, X], 1), np.concatenate([X, X], 1))
    rows = X.reshape(2, 12)
    weights = np.exp(rows - rows.max(axis=1, keepdims=True))
    wanted = (weights / weights.sum(axis=1, keepdims=True)).reshape(X.shape)
    np.testing.assert_allclose(run("Softmax", [X], 1), wanted, rtol=1e-6)
    np.testing.assert_allclose(np.exp(run("LogSoftmax", [X], 1)), wanted, rtol=1e-5)
    assert run("Hardmax", [X], 1).sum() == 2
    assert run("Hardmax", [X], 13).sum() == 6


def test_split_by_input_and_by_attribute() -> None:
    for outputs in (
        run("Split", [X, np.array([1.0, 3.0])], 1, n_outputs=2, axis=2),
        run("Split", [X], 1, n_outputs=2, axis=2, split=[1, 3]),
    ):
        np.testing.assert_array_equal(outputs[0], X[:, :, :1])
        np.testing.assert_array_equal(outputs[1], X[:, :, 1:])


def test_cast_by_name() -> None:
    for name, dtype in (("FLOAT16", np.float16), ("INT64", np.int64), ("BOOL", np.bool_)):
        np.testing.assert_array_equal(run("Cast", [X], 1, to=name), X.astype(dtype), strict=True)


def test_gemm_and_prelu() -> None:
    a, b = X[0], X[1].T
    np.testing.assert_allclose(run("Gemm", [a, b, C], 6, broadcast=1, beta=2.0), a @ b + 2 * C)
    np.testing.assert_array_equal(run("PRelu", [X, C], 6), np.where(X < 0, C[:, None] * X, X))
    np.testing.assert_array_equal(run("PRelu", [X, C[:1] * 2], 1), np.where(X < 0, 2 * X, X))


@pytest.mark.parametrize("version", [1, 6])
def test_batch_normalization_of_one_output_is_inference(version: int) -> None:
    y = run(
        "BatchNormalization",
        [X, C, C, C, C],
        version,
        is_test=1,
        epsilon=0.0,
        consumed_inputs=[0, 0, 0, 1, 1],
    )
    column = C[:, None]
    np.testing.assert_allclose(y, column * (X - column) / np.sqrt(column) + column, rtol=1e-5)


@pytest.mark.parametrize("version", [6, 7, 9])
def test_batch_normalization_in_training(version: int) -> None:
    outputs = run("BatchNormalization", [X, C, C, C, C], version, n_outputs=5, momentum=0.75)
    mean, var = X.mean(axis=(0, 2)), X.var(axis=(0, 2))
    np.testing.assert_allclose(outputs[1], 0.75 * C + 0.25 * mean, rtol=1e-6)
    np.testing.assert_allclose(outputs[2], 0.75 * C + 0.25 * var, rtol=1e-6)
    np.testing.assert_allclose(outputs[3], mean, rtol=1e-6)
    np.testing.assert_allclose(outputs[4], var, rtol=1e-6)


def test_images() -> None:
    image = X.reshape(1, 2, 3, 4)
    wanted = image.repeat(2, axis=2).repeat(3, axis=3)
    scales = {"height_scale": 2.0, "width_scale": 3.0}
    np.testing.assert_array_equal(run("Upsample", [image], 1, mode="nearest", **scales), wanted)
    blocks = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    y = run("DepthToSpace", [blocks], 1, blocksize=2)
    np.testing.assert_array_equal(y, [[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]])
    np.testing.assert_allclose(
        run("LpPool", [image], 1, kernel_shape=[3, 4], p=2.0).ravel(),
        np.linalg.norm(X.reshape(2, 12), axis=1),
        rtol=1e-6,
    )


def test_clip_and_max() -> None:
    np.testing.assert_array_equal(run("Clip", [X], 1, min=-1.0, max=4.0), np.clip(X, -1, 4))
    np.testing.assert_array_equal(run("Clip", [X], 6), X)
    np.testing.assert_array_equal(run("Max", [X, -X], 1), np.abs(X))
    np.testing.assert_array_equal(run("Mean", [X, X, -X], 1), (X / 3).astype(np.float32))


def test_dropout() -> None:
    y, mask = run("Dropout", [X], 6, n_outputs=2, is_test=1)
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == X.dtype
    for version, dtype in ((7, np.float32), (10, np.bool_), (13, np.bool_)):
        y, mask = run("Dropout", [X], version, n_outputs=2)
        np.testing.assert_array_equal(y, X)
        np.testing.assert_array_equal(mask, np.ones(X.shape, dtype), strict=True)


def test_scan_of_opset_8_goes_sample_by_sample() -> None:
    def body(inputs: list[Any]) -> list[Any]:
        total = inputs[0] + inputs[1]
        return [total, total * 2]

    state, scanned = run(
        "Scan",
        [np.array([2, 3]), np.zeros((2, 4), np.float32), X],
        8,
        n_outputs=2,
        body=body,
        num_scan_inputs=1,
    )
    np.testing.assert_array_equal(state, [X[0, :2].sum(axis=0), X[1].sum(axis=0)])
    np.testing.assert_array_equal(scanned[1], 2 * X[1].cumsum(axis=0))
    np.testing.assert_array_equal(scanned[0, 2], 0)
