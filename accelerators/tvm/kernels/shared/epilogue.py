"""Element-wise ops after a product (bias, residual add, activation), computed while the sums are in registers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value
from partita.accelerators.tvm.kernels.shared.element_access import Shape, constants_of, number_shape, read, real_shape, write
from partita.accelerators.tvm.kernels.shared.elementwise import Formula, Numbers, formula, number_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops


@attrs.frozen(slots=True, eq=False)
class Epilogue:
    """The ops after a product, and the other values that they read."""

    body: Body
    """The product and these ops."""
    root: Node
    """The product."""
    start: Formula
    """The product's result from the sum and its other inputs."""
    formulas: Mapping[Node, Formula]
    """The formula of each op; ops that only reorder elements have none."""
    operands: Mapping[int, Shape]
    """The shape under which each input of the body is read, by input number. Each dimension is the result's or 1."""
    results: Shape
    """The shape under which the results are written."""

    @property
    def is_long(self) -> bool:
        """True if one of the ops takes many instructions."""
        return any(node.op in ops("long") for node in self.formulas)

    def numbers(self, total: Value, given: Mapping[NodeEntry, Value]) -> list[Value]:
        """The elements of all outputs at one position, from the sum and the operands' elements there."""
        values = {**constants_of(self.body), **given}
        beside = [None if entry is None else values.get(entry) for entry in self.root.inputs]
        values[self.root[0]] = self.start(self.root, [total, *beside])
        for node in self.body.ops:
            compute, first = self.formulas.get(node), node.inputs[0] if node.inputs else None
            if compute is not None:
                values[node[0]] = number_of(node, compute, values)
            elif node.op in VIEWS and first in values:
                values[node[0]] = values[first]
        return [values[entry] for entry in self.body.graph.outputs]


@attrs.frozen(slots=True, eq=False)
class Writer:
    """An epilogue in a kernel: it reads its operands and writes every output."""

    after: Epilogue
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]

    def store(self, total: Value, indices: Sequence[Operand]) -> None:
        """Write every output at a position, given the sum there."""
        entries = self.after.body.graph.inputs
        given = {}
        for position, shape in self.after.operands.items():
            at = tuple([0 if size == 1 else index for size, index in zip(shape, indices, strict=True)])
            given[entries[position][0]] = read(self.inputs[position], at)
        for output, number in zip(self.outputs, self.after.numbers(total, given), strict=True):
            write(output, tuple(indices), number)


def make_epilogue(
    body: Body,
    root: Node,
    start: Formula,
    groups: Sequence[tuple[int, int]],
    beside: Mapping[int, Shape] | None = None,
    before: Collection[Node] = (),
) -> Epilogue | None:
    """The epilogue of a body whose product is `root`; None if another op, save those `before` it, is not element-wise.

    `start` computes the product's result from the sum and the root's inputs; those in `beside` are operands of the given shapes.
    The dimensions first to last of each group are merged into one."""
    version = body.graph.opset
    shape = real_shape(root[0])
    others = [node for node in body.ops if node is not root and node not in before]
    formulas = {node: formula(node, version) for node in others}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes)
    if shape is None or arrays or None in formulas.values() or 0 in shape:
        return None
    if any(real_shape(entry) != shape for node in others for entry in node.outputs):
        return None
    if any(real_shape(entry) is None for node in body.ops for entry in node.reads):
        return None
    return _grouped(body, root, start, formulas, groups, beside or {})


def epilogue_of(
    body: Body,
    root: Node,
    start: Formula,
    formulas: Mapping[Node, Formula | None],
    reads: Sequence[tuple[NodeEntry | None, Shape | None]],
    results: Shape,
) -> Epilogue | None:
    """The epilogue of these formulas, given the values read besides the sum and their shapes; None if an input of the body has no
    such shape, or is read under two shapes."""
    problem, operands = Problem.of(body), dict[int, Shape]()
    for entry, shape in reads:
        position = problem.position(entry)
        if position is not None and (shape is None or operands.setdefault(position, shape) != shape):
            return None
    known = {node: compute for node, compute in formulas.items() if compute is not None}
    return Epilogue(body, root, start, known, operands, results)


def plus_bias(node: Node, x: Numbers) -> Value:
    """First formula of a convolution's epilogue: the sum plus the bias, if there is one."""
    total: Value = x[0] + x[3] if len(x) > 3 and x[3] is not None else x[0]
    return total


def alone(node: Node, x: Numbers) -> Value:
    """First formula of an epilogue whose root reads nothing besides its image: the sum."""
    total: Value = x[0]
    return total


def folded(shape: Shape, whole: Shape, groups: Sequence[tuple[int, int]]) -> Shape | None:
    """The shape with each group of dimensions merged; None if a group is neither equal to that of `whole` nor all 1."""
    if len(shape) > len(whole):
        return None
    aligned = (1,) * (len(whole) - len(shape)) + shape
    sizes = []
    for first, last in groups:
        size = math.prod(aligned[first:last])
        if size != 1 and aligned[first:last] != whole[first:last]:
            return None
        sizes.append(size)
    return tuple(sizes)


def make_channel_epilogue(body: Body, root: Node, start: Formula, beside: Mapping[int, Shape] | None = None) -> Epilogue | None:
    """The epilogue of a body with results [pixels, channels]; None if one of the other ops is not element-wise. Some of them may
    compute one value for each channel, or for all, which is recomputed for each result.

    `start` computes the root's result from the sum and the root's inputs; those in `beside` have the given shapes."""
    shape, version = shape_of(root[0]), body.graph.opset
    groups = [(0, len(shape) - 1), (len(shape) - 1, len(shape))]
    others = [node for node in body.ops if node is not root]
    formulas = {node: formula(node, version) for node in others}
    values = [entry for node in others for entry in node.outputs]
    if None in formulas.values() or 0 in shape or any(folded(shape_of(entry), shape, groups) is None for entry in values):
        return None
    if any(shape_of(entry) != shape for entry in body.graph.outputs):
        return None
    if any(node.value is not None and node.value.size != 1 for node in body.graph.nodes):
        return None
    return _grouped(body, root, start, formulas, groups, beside or {})


def _grouped(
    body: Body, root: Node, start: Formula, formulas: Mapping[Node, Formula | None], groups: Sequence[tuple[int, int]],
    beside: Mapping[int, Shape],
) -> Epilogue | None:
    """The epilogue of these formulas, with the dimensions of each group merged in the results and in all that is read."""
    whole = shape_of(root[0])
    read = [(root.inputs[i], shape) for i, shape in beside.items()]
    read += [(entry, shape_of(entry)) for node in formulas for entry in node.reads]
    merged = [(entry, folded(shape, whole, groups)) for entry, shape in read]
    return epilogue_of(body, root, start, formulas, merged, folded(whole, whole, groups) or ())


Size = tuple[int, int]
"""Rows and columns."""


def make_matrix_epilogue(body: Body, root: Node, start: Formula, beside: Sequence[int] = ()) -> Epilogue | None:
    """The element-wise ops of the body after `root`, a matrix product; None if another op is among them.

    `start` computes the product's result from the sum and the root's inputs. Those in `beside` are read at its position."""
    whole = real_shape(root[0])
    before = {entry.node for entry in root.reads}
    others = [node for node in body.ops if node is not root and node not in before]
    formulas = {node: formula(node, body.graph.opset) for node in others if node.op not in VIEWS}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes if _is_read(node, others))
    if not whole or 0 in whole or arrays or None in formulas.values():
        return None
    if any(not is_matrix_of(number_shape(entry), whole) for node in others for entry in node.outputs):
        return None
    reads = [(root.inputs[i], read_size(number_shape(root.inputs[i]), whole)) for i in beside]
    for node in others:
        shape = number_shape(node[0]) or ()
        read = node.reads if node.op not in VIEWS else node.reads[:1]
        reads += [(entry, read_size(number_shape(entry), shape)) for entry in read]
    if any(entry is not None and number_shape(entry) is None for entry, _ in reads):
        return None
    return epilogue_of(body, root, start, formulas, reads, (math.prod(whole[:-1]), whole[-1]))


def is_matrix_of(shape: Shape | None, whole: Shape) -> bool:
    """True if a value of this shape has as many rows and columns as `whole`."""
    return bool(shape) and shape is not None and shape[-1] == whole[-1] and math.prod(shape) == math.prod(whole)


def read_size(shape: Shape | None, whole: Shape) -> Size | None:
    """Rows and columns of an operand that is broadcast to `whole`; None if it is neither one row nor all of them."""
    if shape is None or len(shape) > len(whole) or not whole:
        return None
    aligned = (1,) * (len(whole) - len(shape)) + shape
    rows = math.prod(aligned[:-1])
    if aligned[-1] not in (1, whole[-1]) or (rows != 1 and aligned[:-1] != whole[:-1]):
        return None
    return rows, aligned[-1]


def _is_read(node: Node, others: Sequence[Node]) -> bool:
    """True if the constant is an operand of a formula, not the shape of a reshape."""
    return any(entry.node is node for other in others if other.op not in VIEWS for entry in other.reads)
