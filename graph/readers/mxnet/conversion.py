"""The argument of a converter: one MXNet node, its inputs as ONNX values, and methods that make nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np

from partita.graph.body_builder import OpBuilder, Operand, as_operand, static_shape
from partita.graph.build import constant, op
from partita.graph.errors import ReadError
from partita.graph.graph import DEFAULT_OPSET
from partita.graph.node import NOTHING, Node, NodeEntry
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.infer import output_types
from partita.graph.readers.mxnet.naming import Names, noted_name
from partita.graph.types import Dim, TensorType, numpy_dtype

__all__ = ["Conversion"]


@attrs.frozen(slots=True)
class SizeOf:
    """A product of an integer and a value's dynamic sizes along some axes."""

    entry: NodeEntry
    """The value."""
    axes: tuple[int, ...]
    """Its axes, counted from the front."""
    factor: int = 1
    """The integer."""


Part = int | SizeOf
"""One dimension of a new shape; -1 is inferred."""


@attrs.define(slots=False, eq=False)
class Conversion(OpBuilder):
    """One MXNet node that is being converted.

    The node that computes its value has its name (`result`); further nodes have the name with a suffix:
    `c.Mul(x, x, name="squares")`."""

    version = DEFAULT_OPSET

    kind: str
    """MXNet's op."""
    _name: str
    inputs: tuple[NodeEntry, ...]
    """Its inputs."""
    params: Attributes
    """The op's parameters."""
    _names: Names
    _after: tuple[Node, ...] = ()
    _metadata: Mapping[str, str] = NOTHING

    @property
    def where(self) -> str:
        """The node, for messages."""
        return self.params.where

    @property
    def data(self) -> NodeEntry:
        """The first input."""
        return self.inputs[0]

    # -- making nodes --------------------------------------------------------------------------------

    def result(self, op_type: str, *inputs: NodeEntry | None, shape: Sequence[Dim] | None = None, **attrs: Any) -> NodeEntry:
        """The value of the MXNet node. `shape` is used if ONNX's rules do not infer one."""
        return self.results(op_type, *inputs, count=1, shape=shape, **attrs)[0]

    def results(
        self, op_type: str, *inputs: NodeEntry | None, count: int, shape: Sequence[Dim] | None = None, **attrs: Any
    ) -> tuple[NodeEntry, ...]:
        """The values of a MXNet node with several outputs, all computed by one node."""
        values, name = self._names.outputs(self._name, count), self._names.node(self._name)
        node = self._make(op_type, inputs, name, values, shape, attrs)
        if name != self._name:
            node = node.evolve(metadata={**node.metadata, **noted_name(self._name, name)})
        return node.outputs

    def ops(
        self, op_type: str, count: int | None, /, *inputs: Operand, name: str | None = None, **attributes: Any
    ) -> tuple[NodeEntry, ...]:
        """The results of a further node; its name is the MXNet node's, followed by `name`."""
        title = self._names.fresh(f"{self._name}_{name or op_type.lower()}")
        values = (title,) if count in (1, None) else tuple([self._names.fresh(f"{title}_{i}") for i in range(count or 1)])
        return self._make(op_type, tuple(map(as_operand, inputs)), title, values, None, attributes).outputs

    def helper(self, what: str, op_type: str, *inputs: NodeEntry | None, **attrs: Any) -> NodeEntry:
        """The same as `op(op_type, *inputs, name=what)`."""
        return self.op(op_type, *inputs, name=what, **attrs)

    def extra(self, index: int, op_type: str, *inputs: NodeEntry | None, **attrs: Any) -> NodeEntry:
        """A further output of the MXNet node, computed by a separate node."""
        title = self._names.fresh(f"{self._name}_output{index}")
        return self._make(op_type, inputs, title, (title,), None, attrs)[0]

    def constant(self, what: str, value: Any, dtype: str) -> NodeEntry:
        """A small constant that the op needs."""
        with np.errstate(over="ignore"):  # beyond the dtype's range is infinity, as in MXNet
            array = np.asarray(value, numpy_dtype(dtype))
        return constant(array, self._names.fresh(f"{self._name}_{what}"))[0]

    def integers(self, what: str, values: Sequence[int]) -> NodeEntry:
        """An int64 constant: axes, sizes and so on."""
        return self.constant(what, list(values), "int64")

    def like(self, what: str, value: Any, entry: NodeEntry) -> NodeEntry:
        """A constant with the dtype of `entry`."""
        return self.constant(what, value, self.dtype(entry))

    def cast(self, what: str, entry: NodeEntry, dtype: str) -> NodeEntry:
        """The value cast to this dtype, if it has another."""
        return entry if self.dtype(entry) == dtype else self.op("Cast", entry, to=dtype, name=what)

    def _make(
        self, op_type: str, inputs: Sequence[Node | NodeEntry | None], name: str, values: tuple[str, ...],
        shape: Sequence[Dim] | None, attrs: dict[str, Any],
    ) -> Node:
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        attrs = {key: float(np.float32(value)) if isinstance(value, float) else value for key, value in attrs.items()}
        node = op(op_type, *inputs, name=name, output_names=values, **attrs)  # floats as an ONNX file holds them
        types = list(output_types(node, self.where))
        if shape is not None and isinstance(types[0], TensorType) and types[0].shape is None:
            types[0] = TensorType(types[0].dtype, shape)
        return node.evolve(output_types=tuple(types), after=self._after, metadata=self._metadata)

    # -- shapes --------------------------------------------------------------------------------------

    def flat(self, entry: NodeEntry) -> NodeEntry:
        """The value reshaped to one dimension."""
        return self.Reshape(entry, self.integers("all", [-1]), name="flat")

    def size_at(self, entry: NodeEntry, *axes: int) -> Part:
        """The product of a value's sizes along these axes; an integer if they are static."""
        dims = self.dims(entry)
        open_axes = tuple(axis for axis in axes if not isinstance(dims[axis], int))
        factor = math.prod(size for axis in axes if isinstance(size := dims[axis], int))
        return SizeOf(entry, open_axes, factor) if open_axes else factor

    def shape_value(self, what: str, parts: Sequence[Part], infer: bool = False) -> NodeEntry:
        """The shape as a value: a constant if it is static, else computed at run time.

        `infer` is for Reshape, which infers a single unknown dimension itself."""
        unknown = [i for i, part in enumerate(parts) if isinstance(part, SizeOf)]
        if infer and len(unknown) == 1 and -1 not in parts:
            parts = [-1 if i == unknown[0] else part for i, part in enumerate(parts)]
        static = [part for part in parts if isinstance(part, int)]
        if len(static) == len(parts):
            return self.integers(what, static)
        return self.Concat(*[self._piece(f"{what}_{i}", part) for i, part in enumerate(parts)], axis=0, name=what)

    def _piece(self, what: str, part: Part) -> NodeEntry:
        """The part as an array of one element."""
        if isinstance(part, int):
            return self.integers(what, [part])
        shape = self.Shape(part.entry, name=f"{what}_of")
        sizes = self.Gather(shape, self.integers(f"{what}_axes", part.axes), name=f"{what}_sizes")
        if len(part.axes) > 1:
            sizes = self.ReduceProd(sizes, self.integers(f"{what}_all", [0]), name=f"{what}_product")
        return sizes if part.factor == 1 else self.Mul(sizes, self.integers(f"{what}_factor", [part.factor]), name=what)

    def shape_of(self, what: str, entry: NodeEntry) -> NodeEntry:
        """The value's shape as a value: a constant if it is static."""
        static = static_shape(entry)
        return self.Shape(entry, name=what) if static is None else self.integers(what, static)

    # -- what is known -------------------------------------------------------------------------------

    def shape(self, entry: NodeEntry) -> tuple[Dim, ...] | None:
        """The value's shape, or None."""
        return entry.type.shape if isinstance(entry.type, TensorType) else None

    def dims(self, entry: NodeEntry) -> tuple[Dim, ...]:
        """The value's shape; raises if its rank is unknown."""
        shape = self.shape(entry)
        return shape if shape is not None else self.unknown(f"the number of dimensions of {entry.name!r}")

    def rank(self, entry: NodeEntry) -> int:
        """The value's rank."""
        return len(self.dims(entry))

    def sizes(self, entry: NodeEntry, axes: Sequence[int]) -> list[int]:
        """The value's sizes along these axes; raises if one is not static."""
        dims = self.dims(entry)
        sizes = [dims[axis] for axis in axes]
        known = [size for size in sizes if isinstance(size, int)]
        return known if len(known) == len(sizes) else self.unknown(f"the sizes of {entry.name!r}")

    def dtype(self, entry: NodeEntry) -> str:
        """The value's element type."""
        if isinstance(entry.type, TensorType):
            return entry.type.dtype
        return self.unknown(f"the element type of {entry.name!r}")

    def is_float(self, entry: NodeEntry) -> bool:
        """True for floating-point values."""
        return "float" in self.dtype(entry)

    def axis(self, value: int, rank: int) -> int:
        """The axis counted from the front; raises if it is out of range."""
        if not -rank <= value < rank:
            self.fail(f"there is no axis {value} among {rank} dimensions")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Like `axis` for several axes, which must differ."""
        axes = [self.axis(value, rank) for value in values]
        if len(set(axes)) < len(axes):
            self.fail(f"an axis is named twice in {tuple(values)}")
        return axes

    def volume(self, entry: NodeEntry) -> int | None:
        """The number of elements, or None."""
        sizes = static_shape(entry)
        return None if sizes is None else math.prod(sizes)

    # -- refusing ------------------------------------------------------------------------------------

    def fail(self, cause: str, remedy: str | None = None) -> NoReturn:
        """Raises an error at the node."""
        raise ReadError(cause, where=self.where, remedy=remedy)

    def unknown(self, what: str) -> NoReturn:
        """Raises an error at the node because something about its inputs is unknown."""
        self.fail(
            f"{what} must be known to read this op, but is not",
            'Give the shapes of the inputs: shapes={"data": (1, 3, 224, 224)}; and the parameters, if they were left out',
        )
