"""Ops that ONNX's domain lacks at the model's version and that onnxruntime runs there: read as the ONNX ops that
compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.graph import NEWEST_VERSION
from partita.graph.readers.onnx.attributes import plain_attributes
from partita.graph.types import ELEMENT_TYPES, TensorType

if TYPE_CHECKING:
    from partita.graph.readers.onnx.level import Level

LAST_EXPERIMENTAL = 9
"""The last version of ONNX's domain in which onnxruntime registers the formerly experimental ops."""

_NORM = {"axis": "INT", "epsilon": "FLOAT", "stash_type": "INT"}

_ATTRIBUTES = {
    "Affine": {"alpha": "FLOAT", "beta": "FLOAT"},
    "Crop": {"border": "INTS", "scale": "INTS"},
    "DynamicSlice": {},
    "ImageScaler": {"scale": "FLOAT", "bias": "FLOATS"},
    "LayerNormalization": _NORM,
    "MeanVarianceNormalization": {"across_channels": "INT", "normalize_variance": "INT"},
    "ParametricSoftplus": {"alpha": "FLOAT", "beta": "FLOAT"},
    "Scale": {"scale": "FLOAT"},
    "ScaledTanh": {"alpha": "FLOAT", "beta": "FLOAT"},
    "SimplifiedLayerNormalization": _NORM,
    "ThresholdedRelu": {"alpha": "FLOAT"},
}
"""The attributes of each of these ops, and their kinds."""

MOST_AXES = 64
"""Maximum rank of an array."""

_LAST = {"LayerNormalization": 16, "MeanVarianceNormalization": 8, "SimplifiedLayerNormalization": NEWEST_VERSION}
"""The last version of the domain in which these are older ops."""


def is_older(op: str, version: int) -> bool:
    """True for one of these ops, if this version of ONNX's domain has no op of that name."""
    return op in _ATTRIBUTES and version <= _LAST.get(op, LAST_EXPERIMENTAL)


def older_op(level: Level, proto: Any) -> list[Any]:
    """NodeProtos of ONNX ops that are equivalent to this one; the last ones compute its outputs."""
    return _Expansion(level, proto).nodes()


class _Expansion:
    """The ops that one NodeProto becomes."""

    def __init__(self, level: Level, proto: Any) -> None:
        self._level, self._proto = level, proto
        self._version = level.reading.opsets[""]
        self._attributes = plain_attributes(level.reading, proto, _ATTRIBUTES[proto.op_type])
        self._where = level.reading.where(proto)
        unknown = sorted({item.name for item in proto.attribute} - set(_ATTRIBUTES[proto.op_type]))
        for name in unknown:
            level.reading.note(f"{proto.op_type} has no attribute {name!r}, which is not read", self._where, "Correct its name")
        self._made: list[Any] = []

    def nodes(self) -> list[Any]:
        write: dict[str, Callable[[], None]] = {
            "Affine": self._affine,
            "Crop": self._crop,
            "DynamicSlice": self._dynamic_slice,
            "ImageScaler": self._image_scaler,
            "LayerNormalization": self._layer_norm,
            "MeanVarianceNormalization": self._mean_variance_norm,
            "ParametricSoftplus": self._parametric_softplus,
            "Scale": self._scale,
            "ScaledTanh": self._scaled_tanh,
            "SimplifiedLayerNormalization": self._simplified_layer_norm,
            "ThresholdedRelu": self._thresholded_relu,
        }
        if not self._proto.input or not self._proto.input[0] or not self._proto.output or not self._proto.output[0]:
            raise ReadError(f"{self._proto.op_type} needs an input and an output", where=self._where)
        write[self._proto.op_type]()
        return self._made

    # the ops

    def _affine(self) -> None:
        product = self._op("Mul", self._x, self._number("alpha", 1.0))
        self._op("Add", product, self._number("beta", 0.0), out=0)

    def _scale(self) -> None:
        self._op("Mul", self._x, self._number("scale", 1.0), out=0)

    def _scaled_tanh(self) -> None:
        bent = self._op("Tanh", self._op("Mul", self._x, self._number("beta")))
        self._op("Mul", bent, self._number("alpha"), out=0)

    def _parametric_softplus(self) -> None:
        bent = self._op("Softplus", self._op("Mul", self._x, self._number("beta")))
        self._op("Mul", bent, self._number("alpha"), out=0)

    def _thresholded_relu(self) -> None:
        alpha = self._number("alpha", 1.0)
        kept = self._cast(self._op("Greater", self._x, alpha), "float32")
        bounded = self._op("Max", self._x, alpha) if self._version >= 8 else self._x  # infinity times 0 would be NaN
        self._op("Mul", bounded, kept, out=0)

    def _image_scaler(self) -> None:
        bias = np.asarray(self._required("bias"), np.float32).reshape(-1, 1, 1)
        scaled = self._op("Mul", self._x, self._number("scale"))
        self._op("Add", scaled, self._constant(bias), out=0, **({"axis": 1} if self._version < 7 else {}))

    def _crop(self) -> None:
        border = list(self._required("border"))
        size = list(self._attributes.get("scale", ()))
        if len(border) != 4 or len(size) not in (0, 2):
            raise ReadError("Crop needs four borders, and a scale of two sizes or none", where=self._where)
        left, top, right, bottom = border
        ends = [top + size[0], left + size[1]] if size else [-edge if edge else 2**31 - 1 for edge in (bottom, right)]
        self._op("Slice", self._x, out=0, axes=[2, 3], starts=[top, left], ends=ends)

    def _dynamic_slice(self) -> None:
        """Slice of version 10, whose bounds are inputs: a Slice by attributes if they are constants, else one Gather per axis."""
        bounds = [self._array(slot) for slot in (1, 2)]
        axes = self._array(3) if len(self._proto.input) > 3 and self._proto.input[3] else np.arange(self._bounds_count())
        if axes is not None and all(bound is not None for bound in bounds):
            starts, ends = [np.asarray(bound).tolist() for bound in bounds]
            self._op("Slice", self._x, out=0, axes=axes.tolist(), starts=starts, ends=ends)
            return
        if axes is None or self._version < 9:
            cause = "the bounds of DynamicSlice follow from other values, which needs constant axes and version 9"
            raise ReadError(cause, where=self._where, remedy="Use Slice of version 10")
        data = self._x
        for i, axis in enumerate(axes.tolist()):
            data = self._op("Gather", data, self._positions(i, axis), out=0 if i + 1 == len(axes) else None, axis=axis)

    def _bounds_count(self) -> int:
        kind = self._kind(1)
        if kind is None or not kind.shape or not isinstance(kind.shape[0], int):
            raise ReadError("the number of its starts is unknown", where=self._where, remedy="Use Slice of version 10")
        return kind.shape[0]

    def _positions(self, i: int, axis: int) -> str:
        """The indices along an axis between the `i`-th elements of starts and ends."""
        size = self._part(self._op("Shape", self._x), axis)
        zero, bounds = self._constant(np.zeros(1, np.int64)), []
        for slot in (1, 2):
            bound = self._op("Cast", self._part(self._proto.input[slot], i), to=ELEMENT_TYPES["int64"].number)
            bound = self._op("Where", self._op("Less", bound, zero), self._op("Add", bound, size), bound)
            bound = self._op("Where", self._op("Less", bound, zero), zero, bound)
            bounds.append(self._op("Where", self._op("Less", size, bound), size, bound))
        count = self._op("Sub", bounds[1], bounds[0])
        count = self._op("Where", self._op("Less", count, zero), zero, count)
        places = self._op("NonZero", self._op("Expand", self._constant(np.ones(1, np.int64)), count))
        return self._op("Add", self._op("Squeeze", places, axes=[0]), bounds[0])

    def _part(self, vector: str, i: int) -> str:
        """Element `i` of a vector, as a vector."""
        return self._op("Slice", vector, axes=[0], starts=[i], ends=[i + 1 if i != -1 else 2**31 - 1])

    def _array(self, slot: int) -> np.ndarray[Any, Any] | None:
        return self._level.value(self._proto.input[slot], self._proto).node.value

    def _mean_variance_norm(self) -> None:
        axes = [0, 1, 2, 3] if self._attributes.get("across_channels", 0) else [0, 2, 3]
        scaled = self._attributes.get("normalize_variance", 1)
        centred = self._op("Sub", self._x, self._mean(self._x, axes), out=None if scaled else 0)
        if scaled:
            variance = self._mean(self._op("Mul", centred, centred), axes)
            self._op("Div", centred, self._op("Sqrt", variance), out=0)

    def _layer_norm(self) -> None:
        x, axes = self._wide, self._axes
        mean = self._mean(x, axes, out=1)
        centred = self._op("Sub", x, mean)
        inverse = self._inverse_root(centred, axes, 2)
        self._scaled(self._op("Mul", centred, inverse))

    def _simplified_layer_norm(self) -> None:
        x, axes = self._wide, self._axes
        self._scaled(self._op("Mul", x, self._inverse_root(x, axes, 1)))

    # their parts

    def _inverse_root(self, x: str, axes: list[int], out: int) -> str:
        """1 / the root of the mean square."""
        dtype = np.float64 if self._precision == "float64" else np.float32
        square = self._mean(self._op("Mul", x, x), axes)
        epsilon = self._constant(np.asarray(self._attributes.get("epsilon", 1e-5), dtype))
        return self._op("Reciprocal", self._op("Sqrt", self._op("Add", square, epsilon)), out=out)

    def _scaled(self, normalized: str) -> None:
        """Writes the result, which has the type of the scale."""
        dtype = next((kind.dtype for slot in (1, 0) if (kind := self._kind(slot)) is not None), self._precision)
        if dtype != self._precision:
            normalized = self._cast(normalized, dtype)
        inputs = [*self._proto.input, "", ""]
        product = self._op("Mul", normalized, inputs[1], out=None if inputs[2] else 0)
        if inputs[2]:
            self._op("Add", product, inputs[2], out=0)

    def _cast(self, x: str, dtype: str) -> str:
        from onnx.onnx_ml_pb2 import TensorProto

        number = ELEMENT_TYPES[dtype].number
        return self._op("Cast", x, to=number if self._version >= 6 else TensorProto.DataType.Name(number))

    @property
    def _x(self) -> str:
        return str(self._proto.input[0])

    @property
    def _axes(self) -> list[int]:
        """The normalized axes, as negative numbers."""
        axis = int(self._attributes.get("axis", -1))
        if axis >= 0:
            kind = self._kind(0)
            if kind is None or kind.shape is None:
                cause = f"the axis {axis} counts from the front, and the number of dimensions of {self._x!r} is not declared"
                raise ReadError(cause, where=self._where, remedy="Declare the type of that value, or import opset 17")
            axis -= len(kind.shape)
        if not -MOST_AXES <= axis < 0:
            raise ReadError(f"{self._x!r} has no axis that could be normalized", where=self._where, remedy="Correct the axis")
        return list(range(axis, 0))

    @property
    def _precision(self) -> str:
        """The dtype in which a norm is computed."""
        kinds = [self._kind(i) for i in range(len(self._proto.input))]
        return "float64" if any(kind is not None and kind.dtype == "float64" for kind in kinds) else "float32"

    @property
    def _wide(self) -> str:
        """The first input cast to that dtype."""
        kind = self._kind(0)
        return self._x if kind is not None and kind.dtype == self._precision else self._cast(self._x, self._precision)

    def _kind(self, slot: int) -> TensorType | None:
        names = self._proto.input[slot : slot + 1]
        entry = self._level.value(names[0], self._proto) if names and names[0] else None
        kind = None if entry is None else entry.type
        return kind if isinstance(kind, TensorType) else None

    def _required(self, name: str) -> Any:
        if name not in self._attributes:
            raise ReadError(f"{self._proto.op_type} needs the attribute {name!r}", where=self._where)
        return self._attributes[name]

    def _number(self, name: str, default: float | None = None) -> str:
        """An attribute as a constant."""
        value = self._required(name) if default is None else self._attributes.get(name, default)
        return self._constant(np.asarray(value, np.float32))

    def _constant(self, array: Any) -> str:
        from onnx.numpy_helper import from_array

        return self._op("Constant", value=from_array(array))

    def _mean(self, x: str, axes: list[int], out: int | None = None) -> str:
        if self._version < 18:
            return self._op("ReduceMean", x, out=out, axes=axes, keepdims=1)
        return self._op("ReduceMean", x, self._constant(np.asarray(axes, np.int64)), out=out, keepdims=1)

    def _op(self, op: str, *inputs: str, out: int | None = None, **attrs: Any) -> str:
        """Adds an op and returns the name of its output, which is output `out` or else a new value."""
        from onnx.helper import make_node

        if self._version < 7 and op in ("Add", "Sub", "Mul", "Div", "Greater") and inputs[0] != inputs[1]:
            attrs["broadcast"] = 1
        outputs = self._proto.output
        wanted = out is not None and out < len(outputs) and outputs[out]
        name = outputs[out] if wanted else self._level.free_name(f"{outputs[0]}_{op}")  # type: ignore[index]
        self._made.append(make_node(op, inputs, [name], name=self._proto.name if out == 0 else "", **attrs))
        return str(name)
