"""From a body to kernels: one of ours if one fits, else TVM's importer and the generic schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.extensions import TvmExtension, find
from partita.accelerators.tvm.kernels.shared.choice import choosing
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.lower.dynamic_sizes import import_open, size_expression, size_variable, tensor_type
from partita.accelerators.tvm.lower.nan_propagation import ACROSS_THREADS, carrying
from partita.accelerators.tvm.lower.onnx_importer import import_fixed
from partita.accelerators.tvm.machine.library import compiling, part, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import quiet, refused
from partita.accelerators.tvm.schedules.choosing import schedule
from partita.accelerators.tvm.sizes.extent import Extent
from partita.accelerators.tvm.sizes.sizing import is_for_any_size
from partita.graph.formatting import counted
from partita.graph.types import Array, TensorType
from partita.passes.infer import infer

if TYPE_CHECKING:
    from partita.accelerators.tvm.kernels.shared.kernel_io import Draft



@attrs.frozen(slots=True, eq=False)
class Lowered:
    """A body as scheduled TensorIR."""

    module: Any
    """A Relax function `main` from the body's inputs to a tuple of its outputs, and the kernels that it calls."""
    symbols: Mapping[str, str]
    """Our name of each kernel, by TVM's name."""
    plain: Mapping[str, Any]
    """Unscheduled kernels by name, to compute values that depend only on weights."""
    schedules: Mapping[str, str]
    """Name of each kernel's schedule."""
    packs: Mapping[int, Callable[[Array], Array]]
    """Function that puts a weight into the kernel's layout, by index of the input."""

    def kernels(self) -> dict[str, Any]:
        """Scheduled kernels by name."""
        return {symbol: self.module[name] for name, symbol in self.symbols.items()}


def lower(
    body: Body,
    machine: Machine,
    choices: Mapping[str, str] | None = None,
    offered: dict[str, tuple[str, ...]] | None = None,
    check: Callable[[Body], None] | None = None,
) -> Lowered:
    """The body's kernels for this machine; CompileError if TVM cannot make them. Kernels of ours use these choices, and all their
    candidates are noted in `offered`. `check` is called before TVM's importer and schedules; it may raise an error."""
    # Our kernels size their loops by declared sizes; if the ops compute others, kernels would read out of bounds.
    is_open = is_for_any_size(body.graph)
    if not is_open:  # `sizing` has inferred what it declares.
        infer(body.graph, strict=False, check_declared=True)
    with compiling.lock:
        with quiet(), choosing(choices or {}) as choice_log:
            drafted = own_draft(body, machine)
        if drafted is not None and offered is not None:
            offered.update(choice_log.offered)
        if drafted is not None:
            return _from_function(body, drafted)
        if is_open and machine.is_gpu:
            ops = ", ".join(dict.fromkeys(str(node.op) for node in body.ops))
            raise CompileError(f"no kernel of a GPU for any size takes {ops}")
        extension = find(body.ops[0]) if len(body.ops) == 1 else None
        if extension is not None and not is_open:
            return _from_function(body, _from_extension(body, extension, machine))
        if check is not None:
            check(body)
        return _from_importer(body, machine)


def own_draft(body: Body, machine: Machine) -> Draft | None:
    """Our kernel for the body; None if there is none, or if it needs a static size that is dynamic here: TVM's own may take the
    body at any size."""
    from partita.accelerators.tvm.kernels.catalogue import draft_kernel  # start-up

    try:
        with refused("kernel"):
            return draft_kernel(body, machine)
    except CompileError:
        if not is_for_any_size(body.graph):
            raise
        return None


def _from_function(body: Body, drafted: Draft) -> Lowered:
    """One kernel; weights are reshaped to the shape that it takes."""
    relax, symbol = part("relax"), body.symbol
    builder = relax.BlockBuilder()
    packs = dict(drafted.packs)
    params = []
    for i, node in enumerate(body.graph.inputs):
        shape = drafted.weights.get(i, shape_of(node[0]))
        if shape != shape_of(node[0]):
            packs.setdefault(i, _reshape(shape))
        params.append(relax.Var(f"x{i}", tensor_type(shape, element_of(node[0]))))
    outs = [tensor_type(shape_of(entry), element_of(entry)) for entry in body.graph.outputs]
    with builder.function("main", params):
        with builder.dataflow():
            kernel = builder.add_func(nameless(drafted.function), symbol)
            sizes = [size_expression(size) if isinstance(size, Extent) else size_variable(size) for size in drafted.symbols]
            given = [*params, *sizes]
            result = builder.emit(relax.call_tir(kernel, given, outs if len(outs) > 1 else outs[0]))
            results = [result] if len(outs) == 1 else [builder.emit(relax.TupleGetItem(result, i)) for i in range(len(outs))]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return Lowered(builder.get(), {symbol: symbol}, {}, {symbol: drafted.schedule}, packs)


def _reshape(shape: Any) -> Callable[[Array], Array]:
    return lambda array: array.reshape(shape)


def _from_extension(body: Body, extension: TvmExtension, machine: Machine) -> Draft:
    """The user's tensor expression, scheduled by the generic rule."""
    te, node = part("te"), body.ops[0]
    with quiet(), refused(f"extension {extension.domain}.{extension.op}"):
        placeholders = [te.placeholder(shape_of(n[0]), element_of(n[0]), n.name) for n in body.graph.inputs]
        by_name = {n.name: tensor for n, tensor in zip(body.graph.inputs, placeholders, strict=True)}
        results = extension.compute(*[None if e is None else by_name[e.name] for e in node.inputs], **node.attrs)
        outs = list(results) if isinstance(results, (list, tuple)) else [results]
        wrong = _difference(outs, body)
        if wrong is not None:
            raise CompileError(f"extension {extension.domain}.{extension.op} {wrong}")
        function, name = schedule(te.create_prim_func([*placeholders, *outs]), machine)
    return Draft(function, name)


def _difference(outs: Sequence[Any], body: Body) -> str | None:
    """Difference between the outputs of a user's function and those of the op, in words; None if there is none."""
    if not all(isinstance(out, part("te").Tensor) for out in outs):
        return f"returns {next(type(out).__name__ for out in outs if not isinstance(out, part('te').Tensor))}, not a te.Tensor"
    if len(outs) != len(body.graph.outputs):
        return f"makes {counted(len(outs), 'output')}, and the op has {len(body.graph.outputs)}"
    for out, entry in zip(outs, body.graph.outputs, strict=True):
        output_type = TensorType(str(out.dtype), tuple(int(size) for size in out.shape))
        if output_type != entry.type:
            return f"makes {output_type}, and the op {entry.type}"
    return None


def _from_importer(body: Body, machine: Machine) -> Lowered:
    is_open = is_for_any_size(body.graph)
    legal = import_open(body, machine) if is_open else import_fixed(body, machine)
    symbols = {name: f"{body.symbol}_{i}" if i else body.symbol for i, name in enumerate(_called(legal["main"]))}
    scheduled = {var: f for var, f in legal.functions.items() if var.name_hint == "main" or var.name_hint in symbols}
    plain, schedules = {}, {}
    narrow = any(isinstance(t, TensorType) and t.dtype == "bfloat16" for node in body.graph.nodes for t in node.output_types)
    for var in legal.get_global_vars():
        symbol = symbols.get(var.name_hint)
        if symbol is not None:
            with quiet(), refused("scheduling"):
                function, schedules[symbol] = schedule(legal[var], machine, is_open)
                plain[symbol] = carrying(legal[var], narrow)
                scheduled[var] = function if schedules[symbol] in ACROSS_THREADS else carrying(function, narrow)
    return Lowered(tvm().IRModule(scheduled), symbols, plain, schedules, {})


def _called(main: Any) -> list[str]:
    """The kernels in the order of their first calls."""
    var = tvm().ir.GlobalVar
    names: dict[str, None] = {}
    for block in main.body.blocks:
        for binding in block.bindings:
            for argument in getattr(binding.value, "args", ()):
                if isinstance(argument, var):
                    names[argument.name_hint] = None
    return list(names)


def nameless(function: Any) -> Any:
    """The kernel without the name attribute that its creator set."""
    return function.without_attr("global_symbol") if function.attrs and "global_symbol" in function.attrs else function
