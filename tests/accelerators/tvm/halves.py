"""Models whose numbers are stored in two bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype

import partita as pt
from partita.graph.rewrite import rewrite
from partita.graph.types import TensorType

KINDS: dict[str, Any] = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

FLOAT32 = 1
"""ONNX's number for the element type."""


def narrowed(graph: pt.Graph, dtype: str) -> pt.Graph:
    """The model with every float32 tensor stored in another type. The largest numbers, as masks have them, stay numbers."""
    kind = KINDS[dtype]
    most = float(ml_dtypes.finfo(kind).max)

    def visit(node: pt.Node, rewriter: Any) -> None:
        types: tuple[Any, ...] = node.output_types
        kinds = tuple(TensorType(dtype, t.shape) if getattr(t, "dtype", "") == "float32" else t for t in types)
        array = node.value
        value = array.clip(-most, most).astype(kind) if array is not None and array.dtype == np.float32 else array
        is_cast = node.op == "Cast" and node.attrs["to"] == FLOAT32
        attributes = {**node.attrs, "to": np_dtype_to_tensor_dtype(kind)} if is_cast else node.attrs
        rewriter.keep(node, rewriter.rebuilt(node, output_types=kinds, value=value, attrs=attributes))

    return rewrite(graph, visit)


def casts_alone(model: Any) -> list[str]:
    """The kernels that do nothing but store a value in another type."""
    ops = {kernel.name: {node.op for node in kernel.body.nodes if node.is_op} for kernel in model.kernels()}
    return [name for name, own in ops.items() if own == {"Cast"}]
