"""The table of converters: which function reads which MXNet op, and with what parameters and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from graph.node import NodeEntry
from graph.readers.mxnet.conversion import Conversion

__all__ = ["Converter", "converter", "converter_of", "register"]

Result = NodeEntry | tuple[NodeEntry, ...]
"""The value of the MXNet node, or its values."""

Convert = Callable[[Conversion], Result]
"""Makes ONNX nodes of one MXNet node."""

WITHOUT_EFFECT = frozenset(
    "workspace cudnn_tune cudnn_off momentum num_args ctx grad_scale sparse_grad no_grad forward_stype "
    "min_calib_range max_calib_range key ndev".split()
)
"""Parameters that say how MXNet computes or trains, not what."""


@attrs.frozen(slots=True)
class Converter:
    """One row of the table."""

    convert: Convert
    """What makes the nodes."""
    params: frozenset[str]
    """The parameters that it honours; any other one is refused."""
    least: int
    """How many inputs it takes at least."""
    most: int | None
    """How many inputs it takes at most; None: any number."""
    labels: frozenset[int]
    """Inputs that only training reads."""

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
        made = self.convert(conversion)
        return made if isinstance(made, tuple) else (made,)


_table: dict[str, Converter] = {}


def register(
    ops: str,
    convert: Convert,
    params: str = "",
    inputs: int | tuple[int, int | None] = 1,
    labels: Iterable[int] = (),
) -> None:
    """Add a row for each of these ops; names in `ops` and `params` are separated by blanks."""
    least, most = (inputs, inputs) if isinstance(inputs, int) else inputs
    row = Converter(convert, frozenset(params.split()), least, most, frozenset(labels))
    _table.update(dict.fromkeys(ops.split(), row))


def converter(
    ops: str, params: str = "", inputs: int | tuple[int, int | None] = 1, labels: Iterable[int] = ()
) -> Callable[[Convert], Convert]:
    """The function under this line reads these MXNet ops, honours these parameters, and takes so many inputs.

    >>> @converter("my_swish", "beta")
    ... def swish(c):
    ...     x = c.inputs[0]
    ...     gate = c.helper("gate", "Sigmoid", c.helper("scaled", "Mul", x, c.like("beta", c.params.number("beta", 1.0), x)))
    ...     return c.result("Mul", x, gate)
    """

    def add(convert: Convert) -> Convert:
        register(ops, convert, params, inputs, labels)
        return convert

    return add


def converter_of(op: str) -> Converter | None:
    """The op's row, if there is one."""
    return _table.get(op)
