"""Weights as bytes and half bytes, and graphs that read them."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np

import partita as pt
from partita.graph.types import Array
from tests.accelerators.tvm.running import normals

LOW = {"int8": -128, "uint8": 0, "int4": -8, "uint4": 0}
HIGH = {"int8": 127, "uint8": 255, "int4": 7, "uint4": 15}


@attrs.frozen
class Weight:
    """A stored matrix, depth by columns."""

    depth: int
    columns: int
    dtype: str = "int8"
    block: int = 0
    """How many numbers of the depth have a scale; 0: a column has one."""
    point: int | None = None
    """A zero point that all share; -1: each has its own."""
    turned: bool = False
    """Does the constant have its columns first?"""
    single: bool = False
    """Is there one scale for all?"""
    scaled: str = "float32"
    """The element type of the scales."""

    @property
    def kind(self) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, self.dtype) if "4" in self.dtype else self.dtype)

    def node(self) -> pt.Node:
        """The weight as numbers."""
        random = np.random.default_rng(7)
        rows = -(-self.depth // self.block) if self.block else 1
        shape = () if self.single else (rows, self.columns) if self.block else (self.columns,)
        low, high = LOW[self.dtype], HIGH[self.dtype]
        arrays = [random.integers(low, high + 1, (self.depth, self.columns)), random.uniform(0.01, 0.02, shape)]
        if self.point is not None:
            arrays.append(random.integers(low, high + 1, shape) if self.point == -1 else np.full(shape, self.point))
        kinds = (self.kind, self.scaled, self.kind)
        ready = [array.astype(kind) for array, kind in zip(arrays, kinds)]
        axis = 0 if self.block else 1
        if self.turned:
            ready, axis = [np.ascontiguousarray(array.T) for array in ready], 1 - axis
        block = {"block_size": self.block} if self.block else {}
        return pt.op("DequantizeLinear", *map(pt.constant, ready), axis=axis, **block)

    def product(self, rows: int, kind: str = "float32") -> pt.Graph:
        """Numbers times the matrix; a Gemm where its columns come first."""
        x, weight = pt.variable("x", kind, (rows, self.depth)), self.node()
        node = pt.op("Gemm", x, weight, transB=1) if self.turned else pt.op("MatMul", x, weight)
        return typed(node)


def typed(*outputs: pt.Node) -> pt.Graph:
    return pt.apply_pass(pt.Graph(list(outputs)), "InferShape")


def rows_of(graph: pt.Graph, seed: int = 0) -> Array:
    """Numbers for the first input."""
    value_type = graph.inputs[0].output_types[0]
    return normals(seed)(*value_type.shape).astype(value_type.dtype)  # type: ignore[union-attr]
