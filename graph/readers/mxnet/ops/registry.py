"""The table of converters by MXNet op, with the parameters and inputs that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from partita.graph.errors import UnknownOp, did_you_mean
from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion

__all__ = ["Converter", "converter", "converter_of", "onnx_ops", "register"]

Result = NodeEntry | tuple[NodeEntry, ...]
"""The value or values of the MXNet node."""

Convert = Callable[[Conversion], Result]
"""Converts one MXNet node to ONNX nodes."""

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
    ops: str,
    convert: Convert,
    params: str = "",
    inputs: int | tuple[int, int | None] = 1,
    labels: Iterable[int] = (),
    onnx: str | Mapping[str, str] = "",
) -> None:
    """Adds a row per op. Names in `ops`, `params` and `onnx` are separated by blanks; `onnx` may differ by op."""
    least, most = (inputs, inputs) if isinstance(inputs, int) else inputs
    for name in ops.split():
        said = onnx if isinstance(onnx, str) else onnx.get(name, "")
        _table[name] = Converter(convert, frozenset(params.split()), least, most, frozenset(labels), tuple(said.split()))


def converter(
    ops: str,
    params: str = "",
    inputs: int | tuple[int, int | None] = 1,
    labels: Iterable[int] = (),
    onnx: str | Mapping[str, str] = "",
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
        register(ops, convert, params, inputs, labels, onnx)
        return convert

    return add


def converter_of(op: str) -> Converter | None:
    """The op's row, or None."""
    return _table.get(op)


def onnx_ops(names: Iterable[str]) -> frozenset[str]:
    """The ONNX ops that are equivalent to these MXNet ops."""
    ops: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            remedy = 'Write mxnet_ops("Convolution", "Activation"), or mxnet_ops(*names)'
            raise UnknownOp(f"{name!r:.80} is no name of an op", where="mxnet_ops", remedy=remedy)
        row = _table.get(name)
        if row is None:
            hint = did_you_mean(str(name), _table) or "docs/from-mxnet.md lists what is read"
            raise UnknownOp(f"there is no MXNet op {name!r} that is read", where="mxnet_ops", remedy=hint)
        if not row.onnx:
            raise UnknownOp(
                f"no single ONNX op does what MXNet's {name} does",
                where="mxnet_ops",
                remedy="Look at what pt.load makes of a symbol with this op, and name those ops",
            )
        ops.update(row.onnx)
    return frozenset(ops)
