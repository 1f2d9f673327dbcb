"""Bodies for any size through TVM's importer. Each extent becomes a variable there, which kernels read from their arguments; in
the function that calls them the variables are replaced by the extents again, as expressions of TVM's Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import add, mul
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.lower.onnx_importer import import_body, legalize
from partita.accelerators.tvm.lower.wrong_sizes import wrong_size
from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import refused
from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType

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
