"""Matrix products."""

from __future__ import annotations

import math

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import Known, Shape, converter
from partita.graph.readers.mxnet.ops.windows import bias_of
from partita.graph.types import Dim


def _of_fully_connected(params: Attributes, known: Known) -> list[Shape | None]:
    hidden, data = params.integer("num_hidden", least=1), known(0)
    columns: Dim = None
    if data:
        read = data[1:] if params.boolean("flatten", True) else data[-1:]
        static = [size for size in read if isinstance(size, int)]
        columns = math.prod(static) if len(static) == len(read) else None
    return [None, (hidden, columns), (hidden,)]


@converter("FullyConnected", "num_hidden no_bias flatten", inputs=(2, 3), onnx="Gemm MatMul", implied=_of_fully_connected)
def fully_connected(c: Conversion) -> NodeEntry:
    data, weight = c.inputs[:2]
    bias, hidden = bias_of(c), c.params.integer("num_hidden", least=1)
    shape = c.shape(data)
    if not c.params.boolean("flatten", True) and (shape is None or len(shape) != 2):
        columns = c.Transpose(weight, perm=[1, 0], name="columns")
        if bias is None:
            return c.result("MatMul", data, columns)
        return c.result("Add", c.MatMul(data, columns, name="product"), bias)
    if shape is None or len(shape) != 2:
        data = c.Flatten(data, name="flat")
    return c.result("Gemm", data, weight, bias, transB=1, shape=(None, hidden))


@converter("dot", "transpose_a transpose_b", inputs=2, onnx="MatMul")
def dot(c: Conversion) -> NodeEntry:
    """Contracts the last axis of the left operand with the first of the right one; vectors and matrices."""
    left, right = c.inputs
    ranks = c.rank(left), c.rank(right)
    if c.params.boolean("transpose_a") and ranks[0] > 1:
        # MXNet moves the first axis to the end, even if there are more than two.
        left = c.Transpose(left, perm=[*range(1, ranks[0]), 0], name="left")
    if c.params.boolean("transpose_b") and ranks[1] > 1:
        right = c.Transpose(right, perm=[ranks[1] - 1, *range(ranks[1] - 1)], name="right")
    if ranks == (1, 1):
        return c.result("MatMul", c.Unsqueeze(left, c.integers("front", [0]), name="row"), right)
    if ranks[1] > 2 or 0 in ranks:
        c.fail(f"dot takes a vector or matrix on the right and no scalar on the left; the ranks are {ranks[0]} and {ranks[1]}")
    return c.result("MatMul", left, right)


@converter("batch_dot", "transpose_a transpose_b", inputs=2, onnx="MatMul")
def batch_dot(c: Conversion) -> NodeEntry:
    return c.result("MatMul", *_sides(c))


def _sides(c: Conversion) -> list[NodeEntry]:
    """Both operands, with their last two axes swapped if requested."""
    sides = list(c.inputs[:2])
    for i, (name, side) in enumerate((("transpose_a", "left"), ("transpose_b", "right"))):
        if c.params.boolean(name):
            rank = c.rank(sides[i])
            if rank < 2:
                c.fail(f"an operand of a matrix product has rank {rank}; at least 2 is needed")
            sides[i] = c.Transpose(sides[i], perm=[*range(rank - 2), rank - 1, rank - 2], name=side)
    return sides


@converter("linalg_gemm2 _linalg_gemm2", "transpose_a transpose_b alpha axis", inputs=2, onnx="MatMul")
def gemm2(c: Conversion) -> NodeEntry:
    alpha = _alpha(c)
    if alpha == 1:
        return c.result("MatMul", *_sides(c))
    product = c.MatMul(*_sides(c), name="product")
    return c.result("Mul", product, c.like("alpha", alpha, product))


@converter("linalg_gemm _linalg_gemm", "transpose_a transpose_b alpha beta axis", inputs=3, onnx="MatMul")
def gemm(c: Conversion) -> NodeEntry:
    product = c.MatMul(*_sides(c), name="product")
    scaled = c.Mul(product, c.like("alpha", _alpha(c), product), name="scaled")
    added = c.Mul(c.inputs[2], c.like("beta", c.params.number("beta", 1.0), product), name="added")
    return c.result("Add", scaled, added)


def _alpha(c: Conversion) -> float:
    if c.params.integer("axis", -2) != -2:
        c.params.fail("axis", "-2")
    return c.params.number("alpha", 1.0)
