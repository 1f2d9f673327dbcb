"""Bodies for any size through TVM's importer, and ops that it computes wrongly for some sizes only.

Each extent becomes a variable there, which kernels read from their arguments; in the function that calls them the variables are
replaced by the extents again, as expressions of TVM's Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import add, mul
from typing import Any

import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.interface.empty_reductions import has_no_elements, sums_nothing
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.lower.onnx_importer import import_body, legalize
from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import refused
from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType
from partita.passes.decompose.einsum import MOST_PRODUCTS, is_long

HEAVY = ops("convolution", "matmul", "recurrent", "contraction", "running")
"""Ops with many products, and running sums. TVM's loops over dynamic sizes take many times as long as kernels for one size, so
these ops are compiled for each size unless a kernel of ours has a form for any."""


EXAMPLES = (97, 128)
"""Values of symbols with which ops are checked that TVM computes wrongly for some sizes. They exceed usual paddings, since the
conditions of an op's rule exclude smaller sizes."""


def import_open(body: Body, machine: Machine) -> Any:
    """The body's module, all operators as TensorIR functions; CompileError if TVM's sizes differ from the declared ones."""
    heavy = sorted({str(node.op) for node in body.ops if node.op in HEAVY})
    if heavy:
        raise CompileError(f"no kernel for any size takes {', '.join(heavy)} of these sizes")
    _refuse_wrong(body.graph)
    names: dict[Extent, str] = {}
    legal = legalize(_whole(import_body(_with_symbols(body.graph, names))), machine.target)
    relax, stated = part("relax"), {name: size_expression(extent) for extent, name in names.items()}
    with refused("sizes"):
        legal = _bound(legal, stated)
    types = legal["main"].ret_ty
    fields = list(types.fields) if isinstance(types, relax.TupleType) else [types]
    for entry, result in zip(body.graph.outputs, fields, strict=True):
        wanted = entry.type
        assert isinstance(wanted, TensorType)
        if str(result.dtype) != wanted.dtype or not _are_same(result.shape, sizes_of(wanted) or ()):
            raise CompileError(f"TVM makes {result.dtype}{list(result.shape)} of it instead of {wanted}")
    return legal


def _refuse_wrong(graph: Graph) -> None:
    """CompileError for ops that TVM computes wrongly for sizes with these relations, checked with numbers for the symbols."""
    for number in EXAMPLES:
        for node in _retyped(graph, lambda size, number=number: _example(size, number)).nodes:  # type: ignore[misc]
            reason = wrong_size(node) if node.is_op else None
            if reason is not None:
                raise CompileError(reason)


def _example(size: object, number: int) -> object:
    """The size with this number for each symbol."""
    return size.at(dict.fromkeys(size.symbols, number)) if isinstance(size, Extent) else size


def _with_symbols(graph: Graph, names: dict[Extent, str]) -> Graph:
    """The graph with a symbol for each extent in its types, as noted in `names`."""
    return _retyped(graph, lambda size: names.setdefault(size, f"d{len(names)}") if isinstance(size, Extent) else size)


def _retyped(graph: Graph, changed: Callable[[Any], Any]) -> Graph:
    """The graph with each size replaced."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        types = [
            TensorType(known.dtype, tuple(map(changed, known.shape)))
            if isinstance(known, TensorType) and known.shape is not None else known
            for known in node.output_types
        ]
        rewriter.keep(node, rewriter.rebuilt(node, output_types=tuple(types)))
    return rewriter.finish(nodes=())


def _bound(module: Any, stated: Mapping[str, Any]) -> Any:
    """The module with the graph's symbols in the sizes of its function `main`. The kernels keep their own."""
    functions, main = dict(module.functions), module.get_global_var("main")

    def change(variable: Any) -> Any:
        return stated.get(variable.name, variable)

    changed = structural_map(functions[main], [(part("tirx").Var, change)])
    return tvm().IRModule({**functions, main: changed})


def _whole(module: Any) -> Any:
    """The module with float32 factors of sizes (a Resize's) replaced by integer fractions. A factor of one leaves only casts,
    which are removed."""
    tirx, main = part("tirx"), module.get_global_var("main")

    def is_widened(size: Any) -> bool:
        return isinstance(size, tirx.Cast) and str(size.value.ty.dtype) == "int64"

    def change(cast: Any) -> Any:
        product = cast.value
        if str(cast.ty.dtype) != "int64":
            return cast
        if is_widened(product):
            return product.value
        if not isinstance(product, tirx.Mul):
            return cast
        factor, size = (product.a, product.b) if isinstance(product.a, tirx.FloatImm) else (product.b, product.a)
        if not (isinstance(factor, tirx.FloatImm) and is_widened(size)):
            return cast
        numerator, denominator = (tirx.const(number, "int64") for number in float(factor.value).as_integer_ratio())
        return tirx.floordiv(size.value * numerator, denominator)

    changed = structural_map(module[main], [(tirx.Cast, change)])
    return tvm().IRModule({**dict(module.functions), main: changed})


def _are_same(sizes: Any, wanted: tuple[Size, ...]) -> bool:
    """True if the sizes are equal for all values of the symbols."""
    analyzer = part("sym").Analyzer()
    pairs = [(have, size_expression(size)) for have, size in zip(sizes, wanted, strict=False)]
    return len(sizes) == len(wanted) and all(analyzer.can_prove_equal(have, size) for have, size in pairs)


def tensor_type(shape: Any, dtype: str) -> Any:
    """TVM's type of a tensor."""
    if not all(isinstance(dim, (int, Extent)) for dim in shape):
        raise CompileError(f"a kernel needs sizes, and {dtype}{list(shape)} has others")
    return part("relax").TensorType([size_expression(dim) for dim in shape], dtype)


@cache
def size_variable(name: str) -> Any:
    """TVM's variable for a symbol in Relax functions: one object for each name."""
    return part("tirx").Var(name, "int64")


def size_expression(size: Size) -> Any:
    """A size as a Relax expression."""
    if isinstance(size, int):
        return size
    number = part("tirx").const
    terms = [reduce(mul, map(size_variable, names), number(count, "int64")) for names, count in size.terms.items()]
    return reduce(add, terms)


def wrong_size(node: Node) -> str | None:
    """Why TVM's result would be wrong for these sizes; None if no problem is known."""
    nothing = None if all(has_no_elements(value_type) for value_type in node.output_types) else sums_nothing(node)
    if nothing is not None:
        return nothing
    padding = _wrong_padding(node)
    if padding is not None:
        return padding
    if is_long(node):
        return f"TVM walks all letters of {node.op} at once, which are more than {MOST_PRODUCTS:,} products here"
    if node.op not in ops("resizing") or node.domain:
        return None
    given, result = (e.type if e is not None else None for e in (node.inputs[0], node[0]))
    if not (isinstance(given, TensorType) and isinstance(result, TensorType) and given.shape and result.shape):
        return None
    old, new = ([int(size or 0) for size in shape] for shape in (given.shape, result.shape))
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "TVM's importer does not keep proportions"
    if any(np.float32(scale) * n != m for scale, n, m in zip(_scales(node), old, new)):
        return "TVM works with the ratio of the sizes where ONNX works with the scales"
    if node.op == "Upsample" and len(node.inputs) < 2:
        return "TVM takes other positions for an Upsample whose factors are attributes"
    if node.attrs.get("mode", "nearest") == "nearest" and not all(_is_settled(node, n, m) for n, m in zip(old, new)):
        return "TVM chooses another nearest position where two are equally near"
    return None


def _wrong_padding(node: Node) -> str | None:
    """Why TVM's Pad would read other elements than ONNX's: out of bounds, or what negative padding cuts off."""
    mode, given = node.attrs.get("mode", "constant"), node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if node.op != "Pad" or node.domain or mode not in ("edge", "reflect", "wrap"):
        return None
    pads, axes = _numbers(node, 1, "pads"), _numbers(node, 3, "axes")
    if pads is None or not isinstance(given, TensorType) or not given.is_static or not given.shape:
        return None
    if mode == "wrap":
        return "TVM's Pad wraps around what negative padding cuts off" if min(pads) < 0 < max(pads) else None
    sizes = [int(given.shape[axis] or 0) for axis in (range(len(given.shape)) if axes is None else axes)]
    for low, high, size in zip(pads[: len(sizes)], pads[len(sizes) :], sizes):
        left = size + min(low, high, 0)
        if mode == "edge" and max(low, high) > 0 and left < 1:
            return "TVM's Pad reads outside of the data where a dimension has no edge, since nothing is in it"
        if mode == "reflect" and max(low, high) > 0 and max(low, high) >= left:
            return "TVM's Pad reflects once, and reads outside of the data where a padding is not shorter than its dimension"
    return None


def _numbers(node: Node, position: int, attribute: str) -> list[int] | None:
    """Integers of a constant input or, in early opsets, of an attribute."""
    entry = node.inputs[position] if position < len(node.inputs) else None
    if entry is None or entry.node.value is None:
        return node.attrs.get(attribute)
    return [int(value) for value in entry.node.value.reshape(-1)]


def _scales(node: Node) -> list[float]:
    """Scales of a resize; empty if it has sizes instead."""
    values = [entry.node.value for entry in node.inputs[1:] if entry is not None and entry.node.value is not None]
    scales = [value for value in values[-1:] if value.dtype == np.float32 and node.attrs.get("axes") is None]
    return scales[0].tolist() if scales else list(node.attrs.get("scales", ()))


def _is_settled(node: Node, old: int, new: int) -> bool:
    """True if no two positions are equally near, or if positions are computed without rounding, as for a power of two."""
    small, large = sorted((max(old, 1), max(new, 1)))
    if large % small:
        return False
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    how = node.attrs.get("nearest_mode", "round_prefer_floor")
    apart = (coordinates == "asymmetric") == (how == "floor") and how != "ceil" and coordinates != "align_corners"
    return (large // small).bit_count() == 1 or (new > old and apart)
