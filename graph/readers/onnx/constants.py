"""The value of a Constant node, which may be in one of several attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.ops.schemas import OpSpec
from partita.graph.readers.onnx.attributes import read_attributes
from partita.graph.readers.onnx.reading import Reading
from partita.graph.readers.onnx.tensors import read_dense

_NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
_STRINGS = "value_string", "value_strings"
_SPARSE_TENSOR = 11


def constant_value(
    reading: Reading, node: Any, spec: OpSpec | None, params: Mapping[str, Any] | None, no_body: Callable[[Any, str], Any]
) -> np.ndarray[Any, Any]:
    """The array of a Constant node; a sparse one becomes dense."""
    where = reading.where(node)
    for attribute in node.attribute:
        if attribute.name in ("sparse_value", "value") and attribute.type == _SPARSE_TENSOR:
            return read_dense(attribute.sparse_tensor, reading.folder, where)
    attributes = read_attributes(reading, node, spec, params, no_body)
    if len(attributes) != 1:
        raise ReadError(f"a Constant has one value, not {len(attributes)}", where=where)
    (key, value), = attributes.items()
    if key in _NUMBERS:
        return np.asarray(value, _NUMBERS[key])
    if key in _STRINGS:
        array = np.empty((len(value),) if isinstance(value, list) else (), object)
        array[...] = value
        return array
    return value  # type: ignore[no-any-return]
