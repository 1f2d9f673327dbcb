"""A one-node model at every opset, for the comparison with onnxruntime.

A case names an op, a range of opsets, its inputs and its attributes; it is run at each opset of the range at which
the op's schema changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx

_FIRST = 7  # onnxruntime has no kernels for older opsets,
_LAST = 26  # and none yet for newer ones
_rng = np.random.default_rng(7)


def restart() -> None:
    """Begin a file of cases: its random inputs are the same whatever was imported before."""
    _rng.bit_generator.state = np.random.default_rng(7).bit_generator.state


@cache
def _changes() -> dict[str, set[int]]:
    """The opsets at which the schema of each of ONNX's own ops changed."""
    changes: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            changes.setdefault(schema.name, set()).add(schema.since_version)
    return changes


def f32(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return _rng.standard_normal(shape).astype(np.float32)


def pos(*shape: int) -> np.ndarray:
    """Positive numbers."""
    return (_rng.random(shape) + 0.1).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    """A vector of integers."""
    return np.array(values, np.int64)


def u8(*shape: int) -> np.ndarray:
    """Bytes."""
    return _rng.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    """Signed 7-bit numbers: with all 8 bits onnxruntime's sums saturate on CPUs without VNNI."""
    return _rng.integers(-64, 64, shape).astype(np.int8)


@dataclass(frozen=True)
class Case:
    """One op, its inputs and attributes, and the opsets at which they are valid."""

    op: str
    inputs: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    since: int = _FIRST
    until: int = _LAST
    outputs: int = 1

    def versions(self) -> Iterator[int]:
        """The opsets of the range at which the schema changed, and the range's first."""
        changes = _changes()[self.op]
        start = max(self.since, _FIRST, min(changes))
        yield from sorted(v for v in changes | {start} if start <= v <= self.until)

    def model(self, version: int) -> onnx.ModelProto:
        """The one-node model at an opset."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        outs = [f"y{i}" for i in range(self.outputs)]
        node = onnx.helper.make_node(self.op, names, outs, **self.attrs)
        values = [
            onnx.helper.make_tensor_value_info(
                f"x{i}", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for i, x in enumerate(self.inputs)
            if x is not None
        ]
        graph = onnx.helper.make_graph(
            [node], self.op, values, [onnx.ValueInfoProto(name=name) for name in outs]
        )
        return onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=8
        )
