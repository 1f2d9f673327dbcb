"""Takes ops apart that TVM has only the parts of: ONNX has no body for them, or one that loses digits.

ONNX's own bodies of the norms subtract the mean's square from the mean of squares: where the mean is large beside the deviation
nothing is left of the difference, or less than nothing. Here the mean is subtracted first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partita.accelerators.interface.provenance import FUSED
from partita.accelerators.tvm.prepare.blocks_of_scales import has_blocks, parts_of_blocks
from partita.accelerators.tvm.prepare.contractions import contractions, is_long
from partita.accelerators.tvm.prepare.einsum_groups import groups_of, parts_of_groups
from partita.accelerators.tvm.prepare.einsum_matmul import Product, product_of
from partita.accelerators.tvm.prepare.einsum_turned import order_of
from partita.accelerators.tvm.prepare.halves import HALVES, is_half, is_widened
from partita.accelerators.tvm.prepare.linear import linear_parts
from partita.accelerators.tvm.prepare.patches import is_of_patches, patch_parts
from partita.accelerators.tvm.prepare.reductions import UNREDUCED, reduces_nothing
from partita.accelerators.tvm.prepare.resizing import matrix
from partita.accelerators.tvm.prepare.rotary import ROTARY, rotary_parts
from partita.accelerators.tvm.prepare.whole_products import whole_parts
from partita.accelerators.tvm.sizes.one_hots import is_one_hot, one_hot_parts
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType, numpy_dtype

TAPS = 8
"""A resize whose results see more positions than this along one dimension is left to others."""

LINEAR = frozenset(("QLinearConv", "QLinearMatMul"))
"""Ops on integers that are taken apart where they multiply numbers."""

SINGLE = 1
"""ONNX's number for float32."""


def own_parts(node: Node, graph: Graph) -> Graph | None:
    """The op's body, its inputs named x0, x1, … after the node's; None where the op has no parts of ours."""
    if not node.domain and node.op in LINEAR:
        return linear_parts(node, graph)
    if not node.domain and node.op in ops("integer_product"):
        return whole_parts(node, graph)
    if not node.domain and node.op == ROTARY and not is_widened(node):
        return rotary_parts(node, graph)
    if has_blocks(node):
        return parts_of_blocks(node, graph)
    if is_of_patches(node):
        return patch_parts(node, graph)
    make = _PARTS.get(str(node.op)) if not node.domain else None
    body = None if make is None else make(_Parts(node, graph))
    return _in_single_precision(_Parts(node, graph)) if body is None and is_widened(node) else body


def has_own_parts(node: Node) -> bool:
    """Do we take such ops apart?"""
    known = node.op in {*_PARTS, *LINEAR, *ops("integer_product"), ROTARY}
    return not node.domain and (known or has_blocks(node) or is_of_patches(node) or is_widened(node))


class _Parts:
    """A body that is being written."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node = node
        self.graph = graph
        self.version = graph.opsets.get("", 1)
        self.inputs = {i: variable(f"x{i}", type=e.type) for i, e in enumerate(node.inputs) if e is not None}
        self.read: list[Node] = []

    def input(self, i: int) -> NodeEntry | None:
        """The body's input for the node's input of this number; None if it is absent."""
        node = self.inputs.get(i)
        if node is not None and node not in self.read:
            self.read.append(node)
        return None if node is None else node[0]

    def op(self, name: str, *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        return op(name, *inputs, opset=self.version, **attributes)[0]

    def numbers(self, values: Any, dtype: Any = np.int64) -> NodeEntry:
        return constant(np.asarray(values, dtype))[0]

    def ordered(self, x: NodeEntry, order: tuple[int, ...]) -> NodeEntry:
        """The value with its dimensions in this order."""
        return x if order == tuple(range(len(order))) else self.op("Transpose", x, perm=list(order))

    def mean(self, x: NodeEntry, axes: Sequence[int]) -> NodeEntry:
        return self.reduced("ReduceMean", x, axes)

    def reduced(self, name: str, x: NodeEntry, axes: Sequence[int], keepdims: int = 1) -> NodeEntry:
        """A reduction along these axes."""
        if self.version < (13 if name == "ReduceSum" else 18):
            return self.op(name, x, axes=list(axes), keepdims=keepdims)
        return self.op(name, x, self.numbers(axes), keepdims=keepdims)

    def centred(self, x: NodeEntry, axes: Sequence[int]) -> tuple[NodeEntry, NodeEntry, NodeEntry]:
        """The value without its mean, the mean square of that, and the mean."""
        mean = self.mean(x, axes)
        rest = self.op("Sub", x, mean)
        return rest, self.mean(self.op("Mul", rest, rest), axes), mean

    def done(self, *outputs: NodeEntry) -> Graph:
        return Graph(list(outputs), self.read, "parts", self.graph.opsets)


def _type(entry: NodeEntry | None) -> TensorType | None:
    value_type = entry.type if entry is not None else None
    return value_type if isinstance(value_type, TensorType) else None


def onnx_type(dtype: str) -> int:
    """ONNX's number for an element type."""
    from onnx.helper import np_dtype_to_tensor_dtype

    return int(np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def _is_half(dtype: str) -> bool:
    return dtype in HALVES


def _in_single_precision(parts: _Parts) -> Graph:
    """The op itself between casts of its half-precision inputs to float32 and of its results back."""
    node = parts.node
    given = [parts.input(i) for i in range(len(node.inputs))]
    wide = [parts.op("Cast", x, to=SINGLE) if x is not None and is_half(x) else x for x in given]
    result = op(str(node.op), *wide, opset=parts.version, n_outputs=len(node.output_names), **node.attrs)
    half = [is_half(entry) for entry in node.outputs]
    to = onnx_type(next(result.dtype for result in map(_type, node.inputs) if result is not None and _is_half(result.dtype)))
    return parts.done(*[parts.op("Cast", e, to=to) if short else e for e, short in zip(result.outputs, half, strict=True)])


def _widened(parts: _Parts, dtype: str) -> NodeEntry:
    """The first input, of more digits where it has few."""
    x = parts.input(0)
    assert x is not None
    return parts.op("Cast", x, to=SINGLE) if _is_half(dtype) else x


def _layer(parts: _Parts) -> Graph | None:
    node, data_type = parts.node, _type(parts.node.inputs[0])
    if data_type is None or data_type.rank is None or int(node.attrs.get("stash_type", SINGLE)) != SINGLE:
        return None
    axes = range(int(node.attrs.get("axis", -1)) % data_type.rank, data_type.rank)
    wide = _widened(parts, data_type.dtype)
    rest, square, mean = parts.centred(wide, axes)
    dtype = "float32" if _is_half(data_type.dtype) else data_type.dtype
    epsilon = parts.numbers(node.attrs.get("epsilon", 1e-5), dtype)
    inverse = parts.op("Reciprocal", parts.op("Sqrt", parts.op("Add", square, epsilon)))
    y = parts.op("Mul", rest, inverse)
    y = parts.op("CastLike", y, parts.input(0)) if _is_half(data_type.dtype) else y  # type: ignore[arg-type]
    scale, bias = parts.input(1), parts.input(2)
    y = y if scale is None else parts.op("Mul", y, scale)
    y = y if bias is None else parts.op("Add", y, bias)
    stashed = (mean, inverse) if dtype == "float32" else [parts.op("Cast", value, to=SINGLE) for value in (mean, inverse)]
    return parts.done(*(y, *stashed)[: len(node.output_names)])


def _group(parts: _Parts) -> Graph | None:
    node, data_type = parts.node, _type(parts.node.inputs[0])
    scale, bias = parts.input(1), parts.input(2)
    stash_type = int(node.attrs.get("stash_type", SINGLE))
    if data_type is None or data_type.rank is None or scale is None or bias is None or stash_type != SINGLE:
        return None
    x = _widened(parts, data_type.dtype)
    dtype = "float32" if _is_half(data_type.dtype) else data_type.dtype
    groups = int(node.attrs["num_groups"])
    rest, square, _ = parts.centred(parts.op("Reshape", x, parts.numbers([0, groups, -1])), [2])
    epsilon = parts.numbers(node.attrs.get("epsilon", 1e-5), dtype)
    y = parts.op("Div", rest, parts.op("Sqrt", parts.op("Add", square, epsilon)))
    y = parts.op("CastLike", y, scale) if _is_half(data_type.dtype) else y
    whole, column = parts.op("Shape", x), parts.numbers([-1, *[1] * (data_type.rank - 2)])
    if parts.version < 21:
        column = parts.numbers([-1, 1])
    else:
        y = parts.op("Reshape", y, whole)
    y = parts.op("Mul", y, parts.op("Reshape", scale, column))
    y = parts.op("Add", y, parts.op("Reshape", bias, column))
    return parts.done(y if parts.version >= 21 else parts.op("Reshape", y, whole))


def _mean_variance(parts: _Parts) -> Graph | None:
    data_type, x = _type(parts.node.inputs[0]), parts.input(0)
    if data_type is None or x is None or is_half(x):
        return None
    rest, square, _ = parts.centred(x, parts.node.attrs.get("axes", (0, 2, 3)))
    return parts.done(parts.op("Div", rest, parts.op("Add", parts.op("Sqrt", square), parts.numbers(1e-9, data_type.dtype))))


def _resize(parts: _Parts) -> Graph | None:
    """One dimension after the other: each result the sum of what it sees, times its shares. Half-precision numbers are gathered
    as they are stored, mixed in float32, and rounded once."""
    data_type, y = _type(parts.node.inputs[0]), parts.input(0)
    nearest = parts.node.attrs.get("mode", "nearest") == "nearest"
    if data_type is None or data_type.rank is None or y is None or not (nearest or data_type.dtype in _MIXED):
        return None
    narrow = starts_narrow = _is_half(data_type.dtype)
    for axis in range(data_type.rank):
        shares = matrix(parts.node, parts.graph, axis)
        if shares is None or not len(shares):
            return None
        if not np.array_equal(shares, np.eye(shares.shape[1])):
            taps = np.argsort(shares == 0, axis=1, kind="stable")[:, : int(np.count_nonzero(shares, axis=1).max())]
            if taps.shape[1] > TAPS:
                return None
            kind = "float32" if starts_narrow else data_type.dtype
            shares = np.take_along_axis(shares, taps, 1).astype(numpy_dtype(kind))
            y = _mixed(parts, y, data_type.rank - axis, taps, shares, narrow)
            narrow = narrow and y.node.op == "Gather"
    if starts_narrow and not narrow:
        y = parts.op("Cast", y, to=onnx_type(data_type.dtype))
    return parts.done(y if y.node.is_op else parts.op("Identity", y))


_MIXED = HALVES | {"float32", "float64"}
"""The element types that a resize mixes."""


def _mixed(parts: _Parts, x: NodeEntry, dims: int, positions: np.ndarray, shares: np.ndarray, narrow: bool) -> NodeEntry:
    """The mixture of the positions that each result reads along the first of the last `dims` dimensions, in float32 where the
    numbers are `narrow`; a single position is taken as it is.
    """
    seen = [parts.op("Gather", x, parts.numbers(column), axis=-dims) for column in positions.T]
    if len(seen) == 1 and (shares == 1).all():
        return seen[0]
    seen = [parts.op("Cast", x, to=SINGLE) for x in seen] if narrow else seen
    along = [-1, *[1] * (dims - 1)]
    first, *others = [parts.op("Mul", s, parts.numbers(w.reshape(along), w.dtype)) for s, w in zip(seen, shares.T, strict=True)]
    for other in others:
        first = parts.op("Add", first, other)
    return first


def _einsum(parts: _Parts) -> Graph | None:
    """An Einsum of one operand as a Transpose, of two as a MatMul or a Mul, of many as a row of smaller ones."""
    order, operand = order_of(parts.node), parts.input(0)
    if order is not None and operand is not None:
        return parts.done(parts.op("Transpose", operand, perm=list(order)))
    product = product_of(parts.node)
    if product is not None:
        return _product(parts, product)
    groups = groups_of(parts.node)
    if groups is not None:
        return parts_of_groups(groups, parts.node, parts.graph)
    row = contractions(parts.node) if is_long(parts.node) else None
    if row is None or any(map(is_half, parts.node.reads)):
        return None
    values = [value for i in range(len(parts.node.inputs)) if (value := parts.input(i)) is not None]
    for step in row:
        read = [values[position] for position in step.operands]
        values = [value for position, value in enumerate(values) if position not in step.operands]
        values.append(parts.op("Einsum", *read, equation=step.equation))
    return parts.done(values[0])


def _product(parts: _Parts, product: Product) -> Graph | None:
    left, right = parts.input(0), parts.input(1)
    assert left is not None and right is not None
    matrices = [parts.ordered(left, product.left), parts.ordered(right, product.right)]
    return parts.done(parts.ordered(parts.op("MatMul", *matrices), product.result))


def _unreduced(parts: _Parts) -> Graph | None:
    """A reduction along no dimension: each number's own part of it is left."""
    x, how = parts.input(0), str(parts.node.op)
    if x is None or not reduces_nothing(parts.node):
        return None
    if how == "ReduceSumSquare":
        return parts.done(parts.op("Mul", x, x))
    return parts.done(parts.op("Log" if how == "ReduceLogSum" else "Abs", x))


def _top(parts: _Parts) -> Graph | None:
    """The largest or smallest numbers, sorted in double precision: there is room above infinity for NaN, which
    TVM's sort takes for equal to anything. Narrow whole numbers, which it does not take, are widened."""
    data_type, x, count = _type(parts.node.inputs[0]), parts.input(0), parts.input(1)
    if data_type is None or x is None or count is None or parts.version < 10:
        return None
    sorted_as = _SORTED.get(data_type.dtype)
    if sorted_as is None:
        return None
    wide = parts.op("Cast", x, to=onnx_type(sorted_as))
    if sorted_as == "float64":
        single = parts.op("Cast", x, to=SINGLE) if _is_half(data_type.dtype) else x
        nan = parts.op("IsNaN", single)
        finite = parts.op("Min", wide, parts.numbers(1e300, np.float64))
        wide = parts.op("Where", nan, parts.numbers(np.inf, np.float64), finite)
    top = op("TopK", wide, count, opset=parts.version, n_outputs=2, **parts.node.attrs)
    values = parts.op("GatherElements", x, top[1], axis=int(parts.node.attrs.get("axis", -1)))
    return parts.done(*(values, top[1])[: len(parts.node.output_names)])


_SORTED = {
    "float16": "float64", "bfloat16": "float64", "float32": "float64", "int16": "int32", "uint16": "int32", "uint32": "int64",
}
"""For each element type, the other type in which it is sorted."""


def _one_hot(parts: _Parts) -> Graph | None:
    """A comparison with the numbers of the classes: TVM's own makes float64 of float32."""
    indices = _type(parts.node.inputs[0])
    if indices is None or indices.rank is None or not is_one_hot(parts.node, parts.version):
        return None
    return one_hot_parts(parts.node, indices.rank, parts.graph)


def _hardmax(parts: _Parts) -> Graph | None:
    """Along another dimension than the last: moved there and back."""
    data_type, x = _type(parts.node.inputs[0]), parts.input(0)
    if data_type is None or not data_type.rank or x is None or parts.version < 13:
        return None
    turned = list(range(data_type.rank))
    axis = int(parts.node.attrs.get("axis", -1)) % data_type.rank
    turned[axis], turned[-1] = turned[-1], turned[axis]
    return parts.done(parts.op("Transpose", parts.op("Hardmax", parts.op("Transpose", x, perm=turned), axis=-1), perm=turned))


def _largest_of_all(parts: _Parts) -> Graph | None:
    """GlobalMaxPool as a reduction."""
    data_type, x = _type(parts.node.inputs[0]), parts.input(0)
    if data_type is None or data_type.rank is None or x is None:
        return None
    return parts.done(parts.reduced("ReduceMax", x, range(2, data_type.rank)))


def _log_of_sum(parts: _Parts) -> Graph | None:
    """ReduceLogSumExp: the largest number is subtracted first, unless it is infinite; whole numbers by way of doubles."""
    node, data_type, x = parts.node, _type(parts.node.inputs[0]), parts.input(0)
    if data_type is None or not data_type.rank or x is None or 0 in (data_type.shape or ()) or is_half(x):
        return None
    if reduces_nothing(node):
        return parts.done(parts.op("Identity", x))
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None and given.node.value is None:
        return None
    axes = node.attrs.get("axes") if given is None else given.node.value.tolist()  # type: ignore[union-attr]
    axes = axes or list(range(data_type.rank))
    dtype = data_type.dtype if "float" in data_type.dtype else "float64"
    x = x if dtype == data_type.dtype else parts.op("Cast", x, to=onnx_type(dtype))
    top = parts.reduced("ReduceMax", x, axes)
    # IsInf is younger than this op.
    finite = parts.op("Less", parts.op("Abs", top), parts.numbers(np.inf, dtype))
    top = parts.op("Where", finite, top, parts.numbers(0, dtype))
    keep = int(node.attrs.get("keepdims", 1))
    total = parts.reduced("ReduceSum", parts.op("Exp", parts.op("Sub", x, top)), axes, keep)
    y = parts.op("Add", parts.op("Log", total), parts.reduced("ReduceMax", top, axes, keep))
    return parts.done(y if dtype == data_type.dtype else parts.op("Cast", y, to=onnx_type(data_type.dtype)))


def _nearest(parts: _Parts) -> Graph | None:
    """GridSample of the nearest pixels: NaN where a position is NaN, of which TVM makes the position of some pixel."""
    node, x, grid = parts.node, parts.input(0), parts.input(1)
    data_type, grid_type = _type(node.inputs[0]), _type(node.inputs[1])
    if FUSED in node.metadata or node.attrs.get("mode") != "nearest" or x is None or grid is None:
        return None
    if data_type is None or "float" not in data_type.dtype or grid_type is None or grid_type.rank is None:
        return None
    numbers = parts.op("Cast", parts.op("IsNaN", grid), to=onnx_type("int32"))
    is_nan = parts.op("Cast", parts.reduced("ReduceMax", numbers, [grid_type.rank - 1], keepdims=0), to=onnx_type("bool"))
    sampled = parts.op("GridSample", x, grid, **node.attrs)
    nan = parts.numbers(np.nan, numpy_dtype(data_type.dtype))
    return parts.done(parts.op("Where", parts.op("Unsqueeze", is_nan, parts.numbers([1])), nan, sampled))


def _whole_shrink(parts: _Parts) -> Graph | None:
    """Shrink of whole numbers by way of doubles: its bias and its threshold need not be whole."""
    data_type, x = _type(parts.node.inputs[0]), parts.input(0)
    if data_type is None or x is None or "int" not in data_type.dtype:
        return None
    wide = parts.op("Cast", x, to=onnx_type("float64"))
    return parts.done(parts.op("Cast", parts.op("Shrink", wide, **parts.node.attrs), to=onnx_type(data_type.dtype)))


def _some_joined(parts: _Parts) -> Graph | None:
    """A Concat of which some inputs have no elements, as a decoder's first past, without these."""
    kinds = {i: _type(entry) for i, entry in enumerate(parts.node.inputs)}
    full = [i for i, kind in kinds.items() if kind is None or kind.shape is None or 0 not in kind.shape]
    joined = [value for i in full if (value := parts.input(i)) is not None]
    if not joined or len(joined) == len(kinds):
        return None
    axis = int(parts.node.attrs.get("axis", 1))
    return parts.done(parts.op("Concat", *joined, axis=axis) if len(joined) > 1 else parts.op("Identity", *joined))


_PARTS: dict[str, Callable[[_Parts], Graph | None]] = {
    "Einsum": _einsum,
    "LayerNormalization": _layer, "GroupNormalization": _group, "MeanVarianceNormalization": _mean_variance,
    "Resize": _resize, "Upsample": _resize, "TopK": _top, "Hardmax": _hardmax, "GlobalMaxPool": _largest_of_all,
    "GridSample": _nearest, "ReduceLogSumExp": _log_of_sum, "Shrink": _whole_shrink,
    "OneHot": _one_hot, "Concat": _some_joined,
    **dict.fromkeys(UNREDUCED, _unreduced),
}
