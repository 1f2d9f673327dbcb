"""Element types that a kernel reads and stores: weights in them, their text, and why it computes in float32 where a narrower type
was requested.

A large constant that is narrowed keeps its array at first; only its node has the narrow type. The user's arrays stay as they are
until the kernels' layouts are made of them, so that there is no third copy between the user's weights and the kernels'. Arrays
that the compiler made are converted one by one, each freed at once, so that they never all exist in both types."""

from __future__ import annotations

import math

import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.graph.graph import Graph
from partita.graph.mapped_arrays import new_array
from partita.graph.types import Array, dtype_name, numpy_dtype

LATER = 1 << 16
"""Constants of at least this many bytes are converted when their kernel's layout is made."""


def as_stored(array: Array, dtype: str) -> Array:
    """The array in that element type; unchanged if it has that type.

    Finite values beyond float16 become its largest; infinities stay."""
    if dtype == dtype_name(array.dtype):
        return array
    if dtype == "float16":
        limit = float(np.finfo(np.float16).max)
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    stored = new_array(array.shape, numpy_dtype(dtype))
    stored[...] = array
    return stored


WIDE = "partita.wide"
"""Metadata: why an op computes in float32 although its graph uses a narrower type."""


def element_types(body: Body) -> str:
    """Element types of the kernel's input values and its largest weight matrix, "->" those of its results; a single type if all
    are the same."""
    inputs = [node[0] for node in body.graph.inputs]
    matrices = [entry for entry in inputs[body.values :] if len(shape_of(entry)) > 1]
    largest = sorted(matrices, key=lambda entry: math.prod(shape_of(entry)))[-1:]
    read = ", ".join(dict.fromkeys(element_of(entry) for entry in (*inputs[: body.values], *largest)))
    stored = ", ".join(dict.fromkeys(element_of(entry) for entry in body.graph.outputs))
    return stored if read in ("", stored) else f"{read} -> {stored}"


def why_wide(body: Graph) -> str:
    """Reasons why ops of a call's body compute in float32; empty if there are none."""
    return "; ".join(dict.fromkeys(node.metadata[WIDE] for node in body.nodes if WIDE in node.metadata))
