"""Conversions of torch's ops, without torch: each one written with ONNX's ops on numpy arrays computes what torch documents."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from partita.graph.numerics import evaluate
from partita.graph.readers import torch_ops
from partita.graph.types import Array

INF, NAN = np.inf, np.nan


class DataType(enum.IntEnum):
    """The element types of the exporter."""

    FLOAT, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 9, 10, 11, 16

    def is_integer(self) -> bool:
        return self in (DataType.INT32, DataType.INT64)

    def is_floating_point(self) -> bool:
        return not self.is_integer() and self != DataType.BOOL


CODES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


@attrs.frozen(slots=True, eq=False)
class Tensor:
    """An array in place of the exporter's value."""

    array: Array

    @property
    def dtype(self) -> DataType:
        return DataType(CODES[self.array.dtype.name])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


class Opset:
    """ONNX's ops as functions that compute at once."""

    def __getattr__(self, op: str) -> Callable[..., Tensor]:
        def computed(*inputs: Tensor, **attributes: Any) -> Tensor:
            arrays = [each.array for each in inputs]
            plain = {key: int(value) if isinstance(value, DataType) else value for key, value in attributes.items()}
            return Tensor(np.asarray(evaluate(op, arrays, plain, version=18, n_outputs=1)[0]))

        return computed


@pytest.fixture(autouse=True)
def exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", SimpleNamespace(opset18=Opset(), ir=SimpleNamespace(DataType=DataType)))


def result(function: Callable[..., Tensor], *arrays: Any, **options: Any) -> Array:
    with np.errstate(all="ignore"):
        return function(*(Tensor(np.asarray(array)) for array in arrays), **options).array


FLOATS = np.array([-INF, -7.5, -1.5, -0.3, -0.0, 0.0, 0.3, 1.0, 1.5, 7.5, INF, NAN], np.float32)
EACH, OTHER = (side.reshape(-1) for side in np.meshgrid(FLOATS, FLOATS))


def same(given: Array, wanted: Any) -> None:
    """Equal to a few units in the last place, with the signs of zeros."""
    assert given.dtype == wanted.dtype
    np.testing.assert_allclose(given, wanted, rtol=1e-6, atol=0)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(given[zero]), np.signbit(wanted[zero]))


def test_angles_of_all_signs() -> None:
    same(result(torch_ops.atan2, EACH, OTHER), np.arctan2(EACH, OTHER))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_sign_bits(dtype: str) -> None:
    numbers = FLOATS[1:-2].astype(dtype)
    wanted = np.signbit(numbers) if dtype.startswith("f") else numbers < 0 if dtype == "int64" else np.zeros(9, bool)
    np.testing.assert_array_equal(result(torch_ops.signbit, numbers), wanted)


def test_steps() -> None:
    values = np.full(12, 0.25, np.float32)
    same(result(torch_ops.heaviside, FLOATS, values), np.array([0, 0, 0, 0, 0.25, 0.25, 1, 1, 1, 1, 1, 0], np.float32))


def test_logarithms_of_sigmoids() -> None:
    numbers = np.array([-200, -20, -1, 0, 1, 20, 200], np.float32)
    wanted = -np.logaddexp(0, -numbers.astype(np.float64))
    np.testing.assert_allclose(result(torch_ops.log_sigmoid, numbers), wanted, rtol=1e-6, atol=3e-9)


def test_logits_without_and_with_an_edge() -> None:
    numbers = np.array([0, 0.05, 0.1, 0.5, 0.75, 0.9, 0.95, 1, NAN], np.float32)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(result(torch_ops.logit, numbers), np.log(numbers / (1 - numbers)), rtol=1e-5, atol=1e-7)
    clipped = np.clip(numbers.astype(np.float64), 0.1, 0.9)
    wanted = np.log(clipped / (1 - clipped))
    np.testing.assert_allclose(result(torch_ops.logit, numbers, eps=0.1), wanted, rtol=1e-5, atol=1e-7)


WHOLE = np.array([-7, -6, -2, -1, 0, 1, 2, 6, 7])


@pytest.mark.parametrize("divisor", [-3, -2, 2, 3])
def test_quotients_of_integers(divisor: int) -> None:
    by = np.full(9, divisor)
    np.testing.assert_array_equal(result(torch_ops.divide, WHOLE, by, rounding_mode="floor"), WHOLE // divisor)
    np.testing.assert_array_equal(result(torch_ops.divide, WHOLE, by, rounding_mode="trunc"), np.trunc(WHOLE / divisor))
    exact = result(torch_ops.divide, WHOLE, by)
    assert exact.dtype == np.float32
    np.testing.assert_allclose(exact, WHOLE / divisor, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_quotients_rounded_down(dtype: str) -> None:
    pairs = [(1.5, 0.3), (-1.5, 0.3), (7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (0, 5), (1, 0), (-1, 0), (0, 0)]
    x, y = (np.array(side, dtype) for side in zip(*pairs))
    with np.errstate(all="ignore"):
        same(result(torch_ops.floor_divide, x, y), np.floor_divide(x, y))


def test_quotients_rounded_to_zero() -> None:
    x = np.array([7, -7, 1.9, -1.9, 0.5], np.float32)
    for mode, wanted in ((None, x / 2), ("trunc", np.trunc(x / 2)), ("floor", np.floor(x / 2))):
        np.testing.assert_array_equal(result(torch_ops.divide, x, np.full(5, 2, np.float32), rounding_mode=mode), wanted)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_whether_any_is_not_zero(dtype: str) -> None:
    numbers = np.array([[[0, 0], [0, -3]], [[0, 0], [0, 0]], [[2, 0], [0, 0]]]).astype(dtype)
    np.testing.assert_array_equal(result(torch_ops.is_any, numbers), numbers.any())
    for dims in (0, -1, [0, 2], [1]):
        axes = tuple(dims) if isinstance(dims, list) else dims
        for keep in (False, True):
            wanted = numbers.any(axis=axes, keepdims=keep)
            np.testing.assert_array_equal(result(torch_ops.is_any, numbers, dim=dims, keepdim=keep), wanted)
    assert result(torch_ops.is_any, np.array(3).astype(dtype)) and not result(torch_ops.is_any, np.array(0).astype(dtype))


def test_a_copy_has_the_type_and_the_shape_of_its_target() -> None:
    copied = result(torch_ops.copied, np.zeros((2, 3), np.float32), np.array([1, 2, 3]))
    np.testing.assert_array_equal(copied, np.array([[1, 2, 3], [1, 2, 3]], np.float32), strict=True)
