"""A body of ONNX's ops for one node of onnxruntime's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partita.graph.build import constant, op, variable
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, TensorType, Type, dtype_name, numpy_dtype

Values = Sequence[Any]
"""For each input of a node its array, where it is known; else None."""


class NoBody(GraphError):
    """Such a node cannot be written in ONNX's ops."""


class NotYet(NoBody):
    """It cannot be as long as so little is known of its inputs; of others it may be."""


class Writing:
    """A body that is being written; its inputs are named x0, x1, … after the node's."""

    def __init__(self, node: Node, types: Sequence[Type | None], values: Values, version: int) -> None:
        self.node = node
        self.types = types
        self.values = values
        self.version = version
        given = [i for i, entry in enumerate(node.inputs) if entry is not None]
        self._inputs = {i: variable(f"x{i}", type=types[i]) for i in given}

    def head_size(self, width: int, heads: int) -> int:
        """The size of each of so many heads, which together make a row of this width."""
        if not 0 < heads <= width or width % heads:
            raise NoBody(f"rows of {width} numbers cannot be divided into {heads} heads", where=self.where)
        return width // heads

    def has(self, i: int) -> bool:
        """Is this input there?"""
        return i in self._inputs

    def input(self, i: int) -> NodeEntry:
        """The body's input for the node's input of this number."""
        if i not in self._inputs:
            raise NoBody(f"its input {i} is absent", where=self.where)
        return self._inputs[i][0]

    @property
    def where(self) -> str:
        """The node, for messages."""
        return f"node {self.node.name!r} ({self.node.op})"

    def attr(self, name: str, default: Any) -> Any:
        """An attribute of the node, or its default."""
        return self.node.attrs.get(name, default)

    def attrs(self, *names: str) -> dict[str, Any]:
        """Those of these attributes that the node has."""
        return {name: self.node.attrs[name] for name in names if name in self.node.attrs}

    def type(self, i: int) -> TensorType:
        """The type of an input."""
        known = self.types[i]
        if not isinstance(known, TensorType):
            raise NotYet(f"the type of its input {i} is unknown", where=self.where)
        return known

    def rank(self, i: int) -> int:
        """How many dimensions an input has."""
        rank = self.type(i).rank
        if rank is None:
            raise NotYet(f"the rank of its input {i} is unknown", where=self.where)
        return rank

    def known(self, i: int) -> Array:
        """The array of an input, which has to be constant."""
        if self.values[i] is None:
            raise NotYet(f"its input {i} is not constant", where=self.where)
        return np.asarray(self.values[i])

    def op(self, name: str, *inputs: NodeEntry | None, **attributes: Any) -> NodeEntry:
        """One of ONNX's ops."""
        return op(name, *inputs, opset=self.version, **attributes)[0]

    def ops(self, name: str, count: int, *inputs: NodeEntry | None, **attributes: Any) -> list[NodeEntry]:
        """One of ONNX's ops with several results."""
        return list(op(name, *inputs, opset=self.version, n_outputs=count, **attributes).outputs)

    def array(self, values: Any, dtype: Any = np.int64) -> NodeEntry:
        """A constant."""
        return constant(np.asarray(values, dtype))[0]

    def like(self, i: int, value: float) -> NodeEntry:
        """A number in the element type of an input."""
        return self.array(value, numpy_dtype(self.type(i).dtype))

    # -- scales and zero points ----------------------------------------------------------------------------

    def single(self, i: int) -> NodeEntry:
        """An input that is one number, as a scalar."""
        entry = self.input(i)
        if self.values[i] is not None:
            value = np.asarray(self.values[i])
            if value.size != 1:
                raise NoBody(f"its input {i} is {value.size} numbers, and has to be one", where=self.where)
            return constant(value.reshape(()))[0]
        return entry if self.type(i).shape == () else self.op("Reshape", entry, self.array(np.array([], np.int64)))

    def is_single(self, i: int) -> bool:
        """Is this input absent, or one number?"""
        shape = self.type(i).shape if self.has(i) else ()
        return shape is not None and all(size == 1 for size in shape)

    def numbers(self, x: int, scale: int, point: int, axis: int | None = None) -> NodeEntry:
        """The numbers that an input's integers stand for; with an axis its scales may be several."""
        if axis is None or (self.is_single(scale) and self.is_single(point)):
            given = [self.single(scale), self.single(point) if self.has(point) else None]
            return self.op("DequantizeLinear", self.input(x), *given)
        if not self.has(point):
            return self.op("DequantizeLinear", self.input(x), self.input(scale), axis=axis)
        given = [self._as_many(scale, point), self._as_many(point, scale)]
        return self.op("DequantizeLinear", self.input(x), *given, axis=axis)

    def _as_many(self, i: int, other: int) -> NodeEntry:
        """An input, repeated where it is one number and the other input is several: ONNX has a zero point for each scale."""
        if not self.is_single(i) or self.is_single(other):
            return self.input(i)
        value, several = self.values[i], self.values[other]
        if value is not None and several is not None:
            return constant(np.broadcast_to(np.asarray(value).reshape(()), np.shape(several)))[0]
        return self.op("Expand", self.single(i), self.op("Shape", self.input(other)))

    def integers(self, x: NodeEntry, scale: int, point: int, like: int) -> NodeEntry:
        """Numbers as integers with an input's scale and zero point; without one, it is a zero of the type of the input `like`."""
        return self.op("QuantizeLinear", x, self.single(scale), self.single(point) if self.has(point) else self.like(like, 0))

    # -- shapes --------------------------------------------------------------------------------------------

    def transposed(self, x: NodeEntry, perm: Sequence[int]) -> NodeEntry:
        """The value with its dimensions in this order."""
        return x if list(perm) == sorted(perm) else self.op("Transpose", x, perm=list(perm))

    def channels_first(self, x: NodeEntry, rank: int, compute: Callable[[NodeEntry], NodeEntry]) -> NodeEntry:
        """What `compute` makes of an image whose channels come last, again with its channels last."""
        if not self.attr("channels_last", 0):
            return compute(x)
        first = self.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
        return self.op("Transpose", compute(first), perm=[0, *range(2, rank), 1])

    def done(self, *outputs: NodeEntry) -> Graph:
        """The body with these results."""
        count = len([name for name in self.node.output_names if name])
        if len(outputs) < len(self.node.output_names):
            raise NoBody(f"of its {count} results only {len(outputs)} are known", where=self.where)
        return Graph(list(outputs[: len(self.node.output_names)]), list(self._inputs.values()), "parts", {"": self.version})


def types_of(values: Values) -> list[Type | None]:
    """The types of arrays."""
    arrays = [None if value is None else np.asarray(value) for value in values]
    return [None if array is None else TensorType(dtype_name(array.dtype), array.shape) for array in arrays]
