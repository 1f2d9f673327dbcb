"""What follows a product number by number: bias, residual add, activation, computed while the sums stand in registers."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.templates.formulas import Formula, formula
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.script import Lines
from accelerators.tvm.templates.strides import VIEWS
from graph.node import Node, NodeEntry
from graph.types import TensorType

Shape = tuple[int, ...]

LONG = frozenset("Exp Tanh Erf Sigmoid Softplus Mish Swish Elu Selu Gelu".split())
"""Functions that take many instructions."""


@attrs.frozen(slots=True, eq=False)
class Epilogue:
    """The ops after the product, and the values that they read beside it."""

    operands: Mapping[int, Shape]
    """By input of the body, the shape under which it is read: each dimension is the result's, or 1."""
    functions: Mapping[str, Any]
    """By name, what a kernel's text calls for each output: from the sum and the operands at its place to the number."""
    results: Shape
    """The shape under which the results are written."""
    is_long: bool
    """Is there a function among the ops that takes many instructions?"""

    def store(self, total: str, place: Sequence[str]) -> Lines:
        """Lines that write every output at a place, given the text of the sum there."""
        given = ", ".join(
            [total, *(f"{input_name(i)}[{_at(shape, place)}]" for i, shape in self.operands.items())]
        )
        return [
            f"{output_name(i)}[{', '.join(place)}] = {name}({given})" for i, name in enumerate(self.functions)
        ]


def make_epilogue(
    body: Body,
    root: Node,
    start: Formula,
    groups: Sequence[tuple[int, int]],
    beside: Mapping[int, Shape] | None = None,
) -> Epilogue | None:
    """The epilogue of a body whose product is `root`; None if one of the other ops is more than that.

    `start` computes the product's number from the sum and the root's inputs, of which those at `beside` are operands of these
    shapes. Dimensions first to last of each group are seen as one."""
    version = body.graph.opsets.get("", 1)
    shape = static_shape(root[0])
    others = [node for node in body.ops if node is not root]
    formulas = {node: formula(node, version) for node in others}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes)
    if shape is None or arrays or None in formulas.values() or 0 in shape:
        return None
    if any(static_shape(entry) != shape for node in others for entry in node.outputs):
        return None
    if any(static_shape(entry) is None for node in body.ops for entry in node.reads):
        return None
    def read(entry: NodeEntry | None, size: Shape | None) -> tuple[NodeEntry | None, Shape | None]:
        return entry, None if size is None else folded(size, shape, groups)

    reads = [read(root.inputs[i], size) for i, size in (beside or {}).items()]
    reads += [read(entry, static_shape(entry)) for node in others for entry in node.reads]
    return epilogue_of(body, root, start, formulas, reads, folded(shape, shape, groups) or ())


def epilogue_of(
    body: Body,
    root: Node,
    start: Formula,
    formulas: Mapping[Node, Formula | None],
    reads: Sequence[tuple[NodeEntry | None, Shape | None]],
    results: Shape,
) -> Epilogue | None:
    """The epilogue of these formulas, given what is read beside the sum and under which shape; None if one of the body's inputs
    has none, or is read in two ways."""
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    operands: dict[int, Shape] = {}
    for entry, shape in reads:
        if entry in positions and (shape is None or operands.setdefault(positions[entry], shape) != shape):
            return None
    given = [body.graph.inputs[i][0] for i in operands]
    compute = functools.partial(chain_number, body, root, start, formulas, given)
    functions = {f"f{i}": functools.partial(compute, entry) for i, entry in enumerate(body.graph.outputs)}
    return Epilogue(operands, functions, results, any(node.op in LONG for node in formulas))


def chain_number(
    body: Body,
    root: Node,
    start: Formula,
    formulas: Mapping[Node, Formula | None],
    operands: Sequence[NodeEntry],
    wanted: NodeEntry,
    total: Any,
    *given: Any,
) -> Any:
    """One output's number from the sum and the operands' numbers."""
    values: dict[NodeEntry, Any] = dict(zip(operands, given, strict=True))
    for node in body.graph.nodes:
        if node.value is not None and node.value.size == 1:
            values[node[0]] = const(node.value.item())
    values[root[0]] = start(
        root, [total, *(values.get(entry) if entry is not None else None for entry in root.inputs)]
    )
    for node in body.ops:
        compute, first = formulas.get(node), node.inputs[0]
        if compute is not None:
            values[node[0]] = compute(node, [None if e is None else values[e] for e in node.inputs])
        elif node.op in VIEWS and first is not None:
            values[node[0]] = values[first]
    return values[wanted]


def plus_bias(node: Node, x: Sequence[Any]) -> Any:
    """What a convolution's epilogue starts with: the sum, and the bias where there is one."""
    return x[0] + x[3] if len(x) > 3 and x[3] is not None else x[0]


def alone(node: Node, x: Sequence[Any]) -> Any:
    """What an epilogue starts with where the root reads nothing beside its image."""
    return x[0]


def folded(shape: Shape, whole: Shape, groups: Sequence[tuple[int, int]]) -> Shape | None:
    """The shape with each group of dimensions as one; None if a group is neither all of the whole's nor all 1."""
    if len(shape) > len(whole):
        return None
    aligned = (1,) * (len(whole) - len(shape)) + shape
    made = []
    for first, last in groups:
        size = math.prod(aligned[first:last])
        if size != 1 and aligned[first:last] != whole[first:last]:
            return None
        made.append(size)
    return tuple(made)


def static_shape(entry: NodeEntry | None) -> Shape | None:
    """The shape of a float32 tensor whose sizes are known."""
    made = None if entry is None else entry.type
    if (
        not isinstance(made, TensorType)
        or made.dtype != "float32"
        or not made.is_static
        or made.shape is None
    ):
        return None
    return tuple(int(d or 0) for d in made.shape)


def input_name(i: int) -> str:
    """The kernel's name of the body's input."""
    return f"x{i}"


def output_name(i: int) -> str:
    """The kernel's name of the body's output."""
    return f"y{i}"


def _at(shape: Shape, place: Sequence[str]) -> str:
    return ", ".join("0" if size == 1 else index for size, index in zip(shape, place, strict=True))
