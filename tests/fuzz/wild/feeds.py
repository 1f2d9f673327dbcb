"""Inputs for models that nothing is known of: drawn in several ways, until onnxruntime runs with them."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Feeds = dict[str, Any]

WAYS = (("plain", 2), ("plain", 1), ("plain", 4), ("zeros", 2), ("ones", 1), ("zeros", 1), ("plain", 8), ("positive", 3))
"""Ways to draw, each with the size of dimensions that are not fixed."""


def drawn(model: Any) -> Iterator[tuple[str, Feeds]]:
    """Inputs for a session of onnxruntime, a way at a time, each with its name."""
    for way, size in WAYS:
        rng = np.random.default_rng(zlib.crc32(way.encode()) + size)
        try:
            yield f"{way} {size}", {one.name: _value(one.type, one.shape, way, size, rng) for one in model.get_inputs()}
        except NotImplementedError:
            return


def kept_beside(path: str) -> Iterator[tuple[str, Feeds]]:
    """The inputs that lie beside a model as files, the way that ONNX's own tests keep them."""
    proto = onnx.load(path, load_external_data=False)
    constants = {one.name for one in proto.graph.initializer}
    inputs = [one for one in proto.graph.input if one.name not in constants]
    folder = os.path.join(os.path.dirname(path), "test_data_set_0")
    files = [os.path.join(folder, f"input_{i}.pb") for i in range(len(inputs))]
    if files and all(map(os.path.exists, files)) and all(one.type.HasField("tensor_type") for one in inputs):
        try:
            yield "files", {one.name: _tensor(file) for one, file in zip(inputs, files, strict=True)}
        except Exception:  # noqa: BLE001  (other people's files: what cannot be read is drawn)
            return


def _tensor(file: str) -> Any:
    proto = onnx.TensorProto()
    with open(file, "rb") as stream:
        proto.ParseFromString(stream.read())
    return numpy_helper.to_array(proto)


def _value(kind: str, shape: Any, way: str, size: int, rng: np.random.Generator) -> Any:
    sequence = re.fullmatch(r"seq\((.*)\)", kind)
    if sequence:
        return [_value(sequence[1], [size], way, size, rng) for _ in range(2)]
    optional = re.fullmatch(r"optional\((.*)\)", kind)
    if optional:
        return _value(optional[1], shape, way, size, rng)
    tensor = re.fullmatch(r"tensor\((\w+)\)", kind)
    if tensor is None:
        raise NotImplementedError(kind)
    sizes = tuple(one if isinstance(one, int) and one >= 0 else size for one in shape or ())
    if int(np.prod(sizes)) > 30_000_000:
        raise NotImplementedError("it is too large")
    return _array(tensor[1], sizes, way, rng)


def _array(dtype: str, sizes: tuple[int, ...], way: str, rng: np.random.Generator) -> Any:
    if dtype == "string":
        array = np.empty(sizes, object)
        array.reshape(-1)[:] = [rng.choice(["a", "b c", "1", "é"]) for _ in range(array.size)]
        return array
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    if dtype not in ("float32", "float64", "float16", "bool") and not re.fullmatch(r"u?int(8|16|32|64)", dtype):
        raise NotImplementedError(dtype)
    if way in ("zeros", "ones"):
        return np.full(sizes, int(way == "ones")).astype(dtype)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, sizes)).astype(bool)
    if "float" in dtype:
        numbers = np.asarray(rng.standard_normal(sizes))
        return (np.abs(numbers) if way == "positive" else numbers).astype(dtype)
    return np.asarray(rng.integers(0, 100 if dtype in ("uint8", "int8") else 3, sizes)).astype(dtype)
