"""Builder of an op's body: the graph of simpler ops that replaces one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from partita.graph.build import CALL_DOMAIN, constant, op, variable
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, TensorType, Type, dtype_name, numpy_dtype

Values = Sequence[Any]
"""The array of each input of a node; None if it is not constant."""

Operand = Node | NodeEntry | Array | int | Sequence[int] | None
"""An input of an op: a value, an array or int64 numbers that become a constant, or None for an absent one."""

AXES_AS_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
"""The opset since which an op's axes are an input instead of an attribute; 18 for the other reductions."""


class NoBody(GraphError):
    """The node cannot be expressed in simpler ops."""


class NotYet(NoBody):
    """The node cannot be expressed in simpler ops until more is known of its inputs."""


class OpBuilder:
    """Creates ONNX ops of one opset. Every op is a method: `b.Reshape(x, [0, -1])` is a Reshape to an int64 constant."""

    version: int
    """The opset."""

    def __getattr__(self, name: str) -> Callable[..., NodeEntry]:
        if not name[:1].isupper():
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return partial(self.op, name)

    def op(self, op_type: str, /, *inputs: Operand, **attributes: Any) -> NodeEntry:
        """The first result of an op."""
        return self.ops(op_type, None, *inputs, **attributes)[0]

    def ops(self, op_type: str, count: int | None, /, *inputs: Operand, **attributes: Any) -> tuple[NodeEntry, ...]:
        """The first `count` results of an op."""
        return op(op_type, *map(as_operand, inputs), opset=self.version, n_outputs=count, **attributes).outputs

    def along(self, op_type: str, x: Operand, axes: Sequence[int], **attributes: Any) -> NodeEntry:
        """A reduction, Squeeze or Unsqueeze of these axes, which are an attribute or an input depending on the opset."""
        if self.version < AXES_AS_INPUT.get(op_type, 18):
            return self.op(op_type, x, axes=list(axes), **attributes)
        return self.op(op_type, x, axes, **attributes)

    def transposed(self, x: NodeEntry, perm: Sequence[int], **attributes: Any) -> NodeEntry:
        """The transposed value; the value itself if the order is unchanged."""
        return x if list(perm) == sorted(perm) else self.op("Transpose", x, perm=list(perm), **attributes)


class BodyBuilder(OpBuilder):
    """Builds the body of one node. The body's inputs are named x0, x1, … by their index in the node; absent ones are left out."""

    def __init__(
        self, node: Node, opsets: Mapping[str, int], types: Sequence[Type | None] | None = None, values: Values | None = None
    ) -> None:
        self.node = node
        self.opsets = opsets
        self.version = opsets.get("", 1)
        self.types = [None if entry is None else entry.type for entry in node.inputs] if types is None else types
        """The types of the node's inputs."""
        constants = [None if entry is None else entry.node.value for entry in node.inputs]
        self.values: Values = constants if values is None else values
        """The arrays of the node's inputs that are constant."""
        present = [i for i, entry in enumerate(node.inputs) if entry is not None]
        self._inputs = {i: variable(f"x{i}", type=self.types[i]) for i in present}

    # -- constants -------------------------------------------------------------------------------------------

    def constant(self, values: Any, dtype: Any = np.int64) -> NodeEntry:
        """A constant."""
        return constant(np.asarray(values, dtype))[0]

    def like(self, i: int, value: float) -> NodeEntry:
        """A constant in the element type of an input."""
        return self.constant(value, numpy_dtype(self.type(i).dtype))

    # -- the node --------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The node's name and op, for messages."""
        return f"node {self.node.name!r} ({self.node.op})"

    def attr(self, name: str, default: Any) -> Any:
        """An attribute of the node, or its default."""
        return self.node.attrs.get(name, default)

    def attrs(self, *names: str) -> dict[str, Any]:
        """The attributes among these that the node has."""
        return {name: self.node.attrs[name] for name in names if name in self.node.attrs}

    def has(self, i: int) -> bool:
        """True for an input that is not absent."""
        return i in self._inputs

    def input(self, i: int) -> NodeEntry:
        """The body's input for the node's input i; NoBody if that is absent."""
        if i not in self._inputs:
            raise NoBody(f"its input {i} is absent", where=self.where)
        return self._inputs[i][0]

    def optional(self, i: int) -> NodeEntry | None:
        """The body's input for the node's input i; None if that is absent."""
        return self._inputs[i][0] if i in self._inputs else None

    def type(self, i: int) -> TensorType:
        """The type of an input."""
        value_type = self.types[i] if i < len(self.types) else None
        if not isinstance(value_type, TensorType):
            raise NotYet(f"the type of its input {i} is unknown", where=self.where)
        return value_type

    def rank(self, i: int) -> int:
        """The number of dimensions of an input."""
        rank = self.type(i).rank
        if rank is None:
            raise NotYet(f"the rank of its input {i} is unknown", where=self.where)
        return rank

    def value(self, i: int) -> Array:
        """The array of an input, which has to be constant."""
        if self.values[i] is None:
            raise NotYet(f"its input {i} is not constant", where=self.where)
        return np.asarray(self.values[i])

    # -- scales and zero points ------------------------------------------------------------------------------

    def is_scalar(self, i: int) -> bool:
        """True for an input that has one element or is absent."""
        shape = self.type(i).shape if self.has(i) else ()
        return shape is not None and all(size == 1 for size in shape)

    def scalar(self, i: int) -> NodeEntry:
        """An input of one element, as a scalar."""
        entry = self.input(i)
        if self.values[i] is not None:
            value = np.asarray(self.values[i])
            if value.size != 1:
                raise NoBody(f"its input {i} is {value.size} numbers, and has to be one", where=self.where)
            return constant(value.reshape(()))[0]
        return entry if self.type(i).shape == () else self.op("Reshape", entry, [])

    def dequantized(self, x: int, scale: int, point: int, axis: int | None = None) -> NodeEntry:
        """The dequantized input; with an axis there may be a scale for each position along it."""
        if axis is None or (self.is_scalar(scale) and self.is_scalar(point)):
            scaling = [self.scalar(scale), self.scalar(point) if self.has(point) else None]
            return self.op("DequantizeLinear", self.input(x), *scaling)
        if not self.has(point):
            return self.op("DequantizeLinear", self.input(x), self.input(scale), axis=axis)
        scaling = [self._as_many(scale, point), self._as_many(point, scale)]
        return self.op("DequantizeLinear", self.input(x), *scaling, axis=axis)

    def _as_many(self, i: int, other: int) -> NodeEntry:
        """An input, repeated to the other input's shape if it is a scalar: ONNX has a zero point for each scale."""
        if not self.is_scalar(i) or self.is_scalar(other):
            return self.input(i)
        value, several = self.values[i], self.values[other]
        if value is not None and several is not None:
            return constant(np.broadcast_to(np.asarray(value).reshape(()), np.shape(several)))[0]
        return self.op("Expand", self.scalar(i), self.op("Shape", self.input(other)))

    def quantized(self, x: NodeEntry, scale: int, point: int, like: int) -> NodeEntry:
        """The value quantized by two inputs; an absent zero point is a zero of the type of the input `like`."""
        return self.op("QuantizeLinear", x, self.scalar(scale), self.scalar(point) if self.has(point) else self.like(like, 0))

    # -- the body --------------------------------------------------------------------------------------------

    def done(self, *outputs: NodeEntry) -> Graph:
        """The body with these results, without those that the node lacks."""
        names = self.node.output_names
        if len(outputs) < len(names):
            count = len([name for name in names if name])
            raise NoBody(f"of its {count} results only {len(outputs)} are known", where=self.where)
        return Graph(list(outputs[: len(names)]), list(self._inputs.values()), "parts", self.opsets)


def as_operand(value: Operand) -> Node | NodeEntry | None:
    """The value itself, or the constant of an array or of int64 numbers."""
    if value is None or isinstance(value, (Node, NodeEntry)):
        return value
    return constant(np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.asarray(value, np.int64))


def static_shape(entry: NodeEntry | None) -> tuple[int, ...] | None:
    """The shape in the value's type; None unless all sizes are integers."""
    shape = entry.type.shape if entry is not None and isinstance(entry.type, TensorType) else None
    sizes = [size for size in shape or () if isinstance(size, int)]
    return None if shape is None or len(sizes) < len(shape) else tuple(sizes)


def body_call(node: Node, body: Graph, name: str, read: Sequence[str] | None = None) -> Node:
    """A call of the body in place of the node, with the op `name`. Its inputs are those of the node's that the body's inputs, or
    `read`, name."""
    by_name = {f"x{i}": entry for i, entry in enumerate(node.inputs)}
    inputs = tuple([by_name[one] for one in read or [inner.name for inner in body.inputs]])
    return node.evolve(op=name, domain=CALL_DOMAIN, inputs=inputs, attrs={}, subgraph=body)


def types_of(values: Values) -> list[Type | None]:
    """The types of arrays."""
    arrays = [None if value is None else np.asarray(value) for value in values]
    return [None if array is None else TensorType(dtype_name(array.dtype), array.shape) for array in arrays]
