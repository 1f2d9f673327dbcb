"""The table of MXNet's ops: the ONNX ops that each becomes, and the parameters and inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import attrs

from partita.graph.errors import UnknownOp, did_you_mean
from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.types import Dim

Result = NodeEntry | tuple[NodeEntry, ...]
"""The value or values of the MXNet node."""

Convert = Callable[[Conversion], Result]
"""Converts one MXNet node to ONNX nodes."""

Onnx = str | Mapping[str, str]
"""The names of equivalent ONNX ops, or those for each MXNet op."""

Count = int | tuple[int, int | None]
"""Number of inputs: one number, or the least and the most; None if there is no limit."""

Shape = tuple[Dim, ...]

Known = Callable[[int], Shape | None]
"""Returns the shape of an input by its index, if it is known."""

Implied = Callable[[Attributes, Known], list[Shape | None]]
"""Returns the shapes that an op implies for its leading inputs; None for one of which it implies nothing. With enough such ops,
as convolutions, networks are loaded without given shapes and without weights."""

WITHOUT_EFFECT = frozenset(
    "workspace cudnn_tune cudnn_off momentum num_args ctx grad_scale sparse_grad no_grad forward_stype "
    "min_calib_range max_calib_range key ndev".split()
)
"""Parameters that affect performance or training only."""


@attrs.frozen(slots=True)
class Converter:
    """One row of the table."""

    convert: Convert
    """The function that makes the nodes."""
    params: frozenset[str]
    """The parameters that it supports; any other one is an error."""
    least: int
    """Minimum number of inputs."""
    most: int | None
    """Maximum number of inputs; None if unlimited."""
    labels: frozenset[int]
    """Inputs that only training reads."""
    onnx: tuple[str, ...] = ()
    """The ONNX ops of which one is equivalent to the MXNet op; empty if it takes a combination."""
    implied: Implied | None = None
    """The shapes that the op implies for its inputs."""

    def __call__(self, conversion: Conversion) -> tuple[NodeEntry, ...]:
        """The values of the MXNet node."""
        unknown = sorted(conversion.params.names - self.params - WITHOUT_EFFECT)
        if unknown:
            conversion.fail(
                f"the op has no parameter {', '.join(map(repr, unknown))} that can be honoured",
                f"Known are {', '.join(sorted(self.params)) or 'none'}",
            )
        count = len(conversion.inputs)
        if count < self.least or (self.most is not None and count > self.most):
            most = "or more" if self.most is None else f"to {self.most}"
            conversion.fail(f"the op takes {self.least} {most} inputs, and has {count}")
        if "num_args" in conversion.params and conversion.params.integer("num_args") != count:
            conversion.params.fail("num_args", f"the number of inputs, {count}")
        results = self.convert(conversion)
        return results if isinstance(results, tuple) else (results,)


_table: dict[str, Converter] = {}


def register(
    ops: str, convert: Convert, params: str = "", inputs: Count = 1, labels: Iterable[int] = (), onnx: Onnx = "",
    implied: Implied | None = None,
) -> None:
    """Adds a row per op. Names in `ops`, `params` and `onnx` are separated by blanks; `onnx` may differ by op."""
    least, most = (inputs, inputs) if isinstance(inputs, int) else inputs
    for name in ops.split():
        equivalent = onnx if isinstance(onnx, str) else onnx.get(name, "")
        _table[name] = Converter(
            convert, frozenset(params.split()), least, most, frozenset(labels), tuple(equivalent.split()), implied
        )


def converter(
    ops: str, params: str = "", inputs: Count = 1, labels: Iterable[int] = (), onnx: Onnx = "", implied: Implied | None = None
) -> Callable[[Convert], Convert]:
    """Registers the decorated function as converter of these MXNet ops, with their parameters and inputs. `onnx` names the
    ONNX ops that `partita.graph.readers.mxnet_ops` returns for them.

    >>> @converter("my_swish", "beta")
    ... def swish(c):
    ...     x = c.inputs[0]
    ...     gate = c.Sigmoid(c.Mul(x, c.like("beta", c.params.number("beta", 1.0), x), name="scaled"), name="gate")
    ...     return c.result("Mul", x, gate)
    """

    def add(convert: Convert) -> Convert:
        register(ops, convert, params, inputs, labels, onnx, implied)
        return convert

    return add


# -- ops that are one op of ONNX's -----------------------------------------------------------------------


@attrs.frozen(slots=True)
class Param:
    """A parameter that becomes an attribute of the ONNX op."""

    name: str
    read: Callable[[Attributes], Any]


def _param(kind: Callable[..., Any], name: str, *args: Any, **options: Any) -> Param:
    """A parameter that is read by a method of `Attributes`, with these further arguments."""
    return Param(name, lambda attributes: kind(attributes, name, *args, **options))


integer, number, sizes, dtype = (
    partial(_param, kind) for kind in (Attributes.integer, Attributes.number, Attributes.sizes, Attributes.dtype)
)


@attrs.frozen(slots=True)
class OneOp:
    """Converts a node to one ONNX op of the same inputs, with each attribute read from a parameter."""

    op: str
    attributes: Mapping[str, Param] = attrs.field(hash=False)
    count: int | None
    """The number of inputs that inference reads; None for all."""

    def __call__(self, c: Conversion) -> NodeEntry:
        """The value of the MXNet node."""
        attributes = {name: param.read(c.params) for name, param in self.attributes.items()}
        return c.result(self.op, *c.inputs[: self.count], **attributes)


def one_op(
    ops: str, onnx: str, inputs: Count = 1, labels: Iterable[int] = (), implied: Implied | None = None, **attributes: Param
) -> None:
    """Adds a row per op that is the op `onnx` with these attributes, as in `one_op("my_elu", "Elu", alpha=number("a", 1.0))`."""
    labels = tuple(labels)
    convert = OneOp(onnx, attributes, min(labels, default=None))
    register(ops, convert, " ".join(param.name for param in attributes.values()), inputs, labels, onnx, implied)


# -- implied shapes --------------------------------------------------------------------------------------


def size_along(shape: Shape | None, axis: int) -> Dim:
    """The size along an axis, or None."""
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def vectors_along(axis: int) -> Implied:
    """Vectors of the length of the data's axis, which may be a parameter of the op."""

    def rule(params: Attributes, known: Known) -> list[Shape | None]:
        vector = (size_along(known(0), params.integer("axis", axis)),)
        return [None, vector, vector, vector, vector]

    return rule


# -- queries ---------------------------------------------------------------------------------------------


def converter_of(op: str) -> Converter | None:
    """The op's row, or None."""
    return _table.get(op)


def known_ops() -> Collection[str]:
    """The names of all MXNet ops that are read."""
    return _table.keys()


def meant_by(op: str) -> str | None:
    """The ONNX ops that a user who writes this MXNet op means, as a remedy; None for a name that is not MXNet's."""
    row = _table.get(op)
    return f"It is a name of MXNet's; did you mean {' or '.join(sorted(row.onnx))}?" if row is not None and row.onnx else None


def onnx_ops(names: Iterable[str]) -> frozenset[str]:
    """The ONNX ops that are equivalent to these MXNet ops."""
    ops: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            remedy = 'Write mxnet_ops("Convolution", "Activation"), or mxnet_ops(*names)'
            raise UnknownOp(f"{name!r:.80} is not a name of an op", where="mxnet_ops", remedy=remedy)
        row = _table.get(name)
        if row is None:
            hint = did_you_mean(str(name), _table) or "Write MXNet's name, as 'Convolution'; ONNX's own names need no translation"
            raise UnknownOp(f"there is no MXNet op {name!r} that is read", where="mxnet_ops", remedy=hint)
        if not row.onnx:
            remedy = "Look at what pt.load makes of a symbol with this op, and name those ops"
            raise UnknownOp(f"no single ONNX op does what MXNet's {name} does", where="mxnet_ops", remedy=remedy)
        ops.update(row.onnx)
    return frozenset(ops)
