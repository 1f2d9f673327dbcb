"""Kernels assembled into one Relax function, whose memory TVM plans."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextvars import copy_context
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import held_once, is_fixed
from partita.accelerators.errors import NotSupported
from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.bodies.lifting import Lifted
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.accelerators.tvm.code.building import Built, compile_kernels, object_files
from partita.accelerators.tvm.code.codegen import object_code
from partita.accelerators.tvm.code.linking import link, load
from partita.accelerators.tvm.kernels.shared.kernel_io import GradualPack
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.lower.dynamic_sizes import size_expression, tensor_type
from partita.accelerators.tvm.lower.lowering import nameless
from partita.accelerators.tvm.machine.library import compiling, part, tvm
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from partita.accelerators.tvm.machine.tvm_errors import quiet, refused
from partita.accelerators.tvm.run.pool import serving
from partita.accelerators.tvm.sizes.extent import sizes_of
from partita.graph.graph import Graph
from partita.graph.mapped_arrays import has_own_memory
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, TensorType, dtype_name

SIZING = ("shape_func", "compute_symbolic_expr")
"""Prefixes of TVM's names for the functions that compute sizes."""


@attrs.frozen(slots=True)
class Step:
    """One launch of a kernel."""

    call: str
    """Name of the second-level call that it belongs to."""
    symbol: str
    """Name of the kernel."""
    runs: str
    """Name of the kernel that TVM runs for it: the first of several identical ones."""


@attrs.frozen(slots=True, eq=False)
class Assembled:
    """A whole subgraph for TVM's virtual machine."""

    executable: Any
    """TVM's executable, or the library that was loaded from it. Its inputs are the subgraph's inputs, then the weights."""
    weights: tuple[Array, ...]
    """Constants that the kernels read."""
    steps: tuple[Step, ...]
    """Kernel launches in order."""
    outputs: tuple[int | Array, ...]
    """Source of each of the subgraph's outputs: the index of a result of the executable, ~i for its input i, or a constant."""
    checks: tuple[str, ...] = ()
    """Error messages of the flags, which are the last outputs and not the subgraph's. A flag other than 0 is an error."""
    library: bytes | None = None
    """The shared library, if the executable was loaded from one."""
    sizing: Mapping[str, Any] = attrs.field(factory=dict)
    """TVM's functions that compute sizes from those of the inputs, by name; they are linked like kernels."""


def assemble(lifted: Lifted, bodies: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
    """The partitioned graph as an executable. Linear, except for TVM's passes."""
    pack_weights(lifted.weights, bodies)
    with compiling.lock, quiet(), refused("assembly"):
        assembled = Assembly(lifted.graph, bodies, lifted.weights, machine).run()
    return _linked(assembled, {id(built): built for _, built in bodies.values()}.values(), machine)


def _linked(assembled: Assembled, bodies: Collection[Built], machine: Machine) -> Assembled:
    """The executable with its kernels: linked into it, or loaded into TVM's memory if no linker works."""
    objects = object_files(bodies)
    sizing = compile_kernels(assembled.sizing, machine.target) if assembled.sizing else None
    if objects:
        objects += [] if sizing is None else [object_code(sizing)]
        try:
            library = link(assembled.executable, objects, machine)
            return attrs.evolve(assembled, executable=load(library) if machine.is_here else None, library=library)
        except NotSupported as error:
            if not machine.is_here:
                raise
            warnings.warn(f"kernels are compiled once more in memory: {error}", stacklevel=2)
    libraries = {id(built.library): built.library for built in bodies}
    for library in [*libraries.values(), *([] if sizing is None else [sizing])]:
        assembled.executable.mod.import_module(library)
    serving.everywhere &= machine.kind != "cpu"
    return assembled


class Assembly:
    """Writes the calls of a graph as one function of Relax."""

    def __init__(
        self,
        graph: Graph,
        bodies: Mapping[Node, tuple[Body, Built]],
        packed_weights: Mapping[Node, Sequence[Array]],
        machine: Machine,
    ) -> None:
        self.graph = graph
        self.bodies = bodies
        self.packed_weights = packed_weights
        self.machine = machine
        self.builder = part("relax").BlockBuilder()
        self.values: dict[NodeEntry, Any] = {}
        self.steps: list[Step] = []
        self.kernels: dict[str, Any] = {}
        self.weights: dict[int, tuple[Any, Array]] = {}
        self.sizing: dict[str, Any] = {}
        """TVM's functions that compute sizes, by name."""

    def run(self) -> Assembled:
        """The function's executable, its weights, and the sources of its outputs."""
        relax, graph = part("relax"), self.graph
        params = [relax.Var(plain_name(n.output_names[0]), _type(n[0])) for n in graph.inputs]
        results: dict[NodeEntry, int] = {}
        for entry in [*graph.outputs, *(entry for node in graph.nodes if node.is_op for entry in node.reads)]:
            if entry.node.value is not None:
                self.values[entry] = as_stored(entry.node.value, element_of(entry))
        self.values.update(zip((node[0] for node in graph.inputs), params, strict=True))
        with self.builder.function("main"):
            with self.builder.dataflow():
                for node in graph.nodes:
                    if node.is_op:
                        self._node(node)
                for entry in graph.outputs:
                    if not entry.node.is_variable and not isinstance(self.values[entry], np.ndarray):
                        results.setdefault(entry, len(results))
                output = self.builder.emit_output(relax.Tuple([self.values[entry] for entry in results]))
            self.builder.emit_func_output(output, [*params, *(var for var, _ in self.weights.values())])
        weights = tuple([value for _, value in self.weights.values()])
        origins = tuple([self._origin(entry, results) for entry in graph.outputs])
        return Assembled(self.link(), weights, tuple(self.steps), origins, sizing=self.sizing)

    def _origin(self, entry: NodeEntry, results: Mapping[NodeEntry, int]) -> int | Array:
        if entry.node.is_variable:
            return ~self.graph.inputs.index(entry.node)
        value = self.values[entry]
        return value if isinstance(value, np.ndarray) else results[entry]

    def _node(self, node: Node) -> None:
        if node in self.bodies:
            self._call(node, self.bodies[node][1])
            return
        assert node.op in VIEWS and node.inputs[0] is not None
        value, value_type = self.values[node.inputs[0]], node.output_types[0]
        assert isinstance(value_type, TensorType)
        if isinstance(value, np.ndarray):
            self.values[node[0]] = value.reshape(value_type.shape)
        else:
            shape = [size_expression(size) for size in sizes_of(value_type) or ()]
            reshaped = part("relax").op.reshape(value, shape)
            self.values[node[0]] = self.builder.emit(reshaped, plain_name(node.output_names[0]))

    def _call(self, node: Node, built: Built) -> None:
        values = [self.values[entry] for entry in node.inputs if entry is not None]
        results = _Evaluating(self, node.name, built).run([*values, *self.packed_weights[node]])
        for entry, value in zip(node.outputs, results, strict=True):
            self.values[entry] = value

    def kernel(self, built: Built, symbol: str) -> Any:
        """The kernel in the module that is being assembled."""
        if symbol not in self.kernels:
            self.kernels[symbol] = self.builder.add_func(nameless(built.lowered.kernels()[symbol]), symbol)
        return self.kernels[symbol]

    def expr(self, value: Any) -> Any:
        """The value as an expression. An array becomes a parameter, so that the code does not depend on the weights."""
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in self.weights:
            tensor = tensor_type(value.shape, dtype_name(value.dtype))
            self.weights[id(value)] = part("relax").Var(f"weight{len(self.weights)}", tensor), value
        return self.weights[id(value)][0]

    def link(self) -> Any:
        """The function as an executable of TVM's virtual machine."""
        relax, ffi = part("relax"), part("relax._ffi_api")
        transform = relax.transform
        passes = [
            transform.DeadCodeElimination(),
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(emit_err_ctx=False),
            transform.AttachGlobalSymbol(),
        ]
        with self.machine.target:
            module = tvm().transform.Sequential(passes)(self.builder.get())
        builder = relax.ExecBuilder()
        left = relax.vm_build._vmcodegen(builder, module)
        self.sizing = {var.name_hint: function for var, function in left.functions.items() if var.name_hint.startswith(SIZING)}
        return relax.vm_build.VMExecutable(ffi.VMLink(builder, self.machine.target, None, [], {}))


class _Evaluating:
    """Emits a lowered body; kernels that depend only on weights are run now."""

    def __init__(self, assembly: Assembly, title: str, built: Built) -> None:
        self.assembly = assembly
        self.title = plain_name(title)
        self.call = title
        self.built = built

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Values of the body's outputs: expressions, or arrays if they are constant."""
        relax, main = part("relax"), self.built.lowered.module["main"]
        values: dict[Any, Any] = dict(zip(main.params, args, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self._binding(binding.value, values)
        result = self._inner(main.body.body, values)
        if isinstance(result, (list, tuple)):
            return list(result)
        if isinstance(result, relax.Tuple):
            return list(result.fields)
        if isinstance(getattr(result, "ty", None), relax.TupleType):
            return [self.assembly.builder.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
        return [result]

    def _binding(self, expr: Any, values: Mapping[Any, Any]) -> Any:
        relax = part("relax")
        if not isinstance(expr, relax.Call):
            return self._inner(expr, values)
        if expr.op.name == "relax.call_tir":
            return self._kernel(expr, values)
        call = relax.Call(expr.op, [self._argument(arg, values) for arg in expr.args], expr.attrs, expr.ty_args)
        return self.assembly.builder.emit(call, self.title)

    def _kernel(self, expr: Any, values: Mapping[Any, Any]) -> Any:
        relax, symbol = part("relax"), self.built.lowered.symbols[expr.args[0].name_hint]
        given = [self._inner(arg, values) for arg in expr.args[1].fields]
        if given and all(isinstance(value, np.ndarray) for value in given):
            if symbol in self.built.lowered.plain:
                return _computed(self.built.lowered.plain[symbol], given, expr.ty_args)
        args = relax.Tuple([self.assembly.expr(value) for value in given])
        kernel = self.assembly.kernel(self.built, symbol)
        self.assembly.steps.append(Step(self.call, symbol, kernel.name_hint))
        call = relax.Call(expr.op, [kernel, args, *expr.args[2:]], expr.attrs, expr.ty_args)
        return self.assembly.builder.emit(call, self.title)

    def _argument(self, expr: Any, values: Mapping[Any, Any]) -> Any:
        """The expression as an argument; arrays become weight parameters."""
        relax = part("relax")
        value = self._inner(expr, values)
        if isinstance(value, list):
            return relax.Tuple([self.assembly.expr(item) for item in value])
        return self.assembly.expr(value)

    def _inner(self, expr: Any, values: Mapping[Any, Any]) -> Any:
        """Value of the expression: an expression, an array, or a list for a tuple."""
        relax = part("relax")
        if isinstance(expr, relax.Var):
            return values.get(expr, expr)  # A symbol's variable is the same everywhere.
        if isinstance(expr, part("ir.expr").GenericConst):
            return expr.value.numpy()
        if isinstance(expr, relax.Tuple):
            return [self._inner(field, values) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            whole = self._inner(expr.tuple_value, values)
            if isinstance(whole, list):
                return whole[expr.index]
            return self.assembly.builder.emit(relax.TupleGetItem(whole, expr.index), self.title)
        return expr


def pack_weights(weights: Mapping[Node, list[Array]], bodies: Mapping[Node, tuple[Body, Built]]) -> None:
    """Replace the weights of each body by their kernels' layouts, several at a time. Kernels that need the same layout of one
    array share it.

    Packed weights are written directly to their final memory, and each original array is then freed unless it is used elsewhere:
    only a few weights ever exist twice."""
    wanted: dict[Any, list[tuple[list[Array], int]]] = {}
    for node, (body, built) in bodies.items():
        for i, read in enumerate(body.graph.inputs[body.values :]):
            pack = built.lowered.packs.get(body.values + i)
            wanted.setdefault((id(weights[node][i]), element_of(read[0]), pack), []).append((weights[node], i))
    with Pool(usable_cores()) as pool:
        packing = [
            pool.submit(copy_context().run, _pack, equal, dtype, pack) for (_, dtype, pack), equal in wanted.items()
        ]
        for done in packing:
            done.result()


def _pack(equal: Sequence[tuple[list[Array], int]], dtype: str, pack: Any) -> None:
    """Replace the one array that is at all these list positions."""
    first, position = equal[0]
    array = first[position]
    stored = array if isinstance(pack, GradualPack) else as_stored(array, dtype)
    if pack is not None:
        stored = _packed(stored, pack, stored is not array)
    elif stored is not array or has_own_memory(stored):
        stored = held_once(stored, is_ours=True)
    for arrays, i in equal:
        arrays[i] = stored


def _packed(array: Array, pack: Any, is_ours: bool) -> Array:
    packed = np.asarray(pack(array), order="C")
    if np.may_share_memory(packed, array):
        return packed if is_fixed(packed) else held_once(packed, is_ours=is_ours)
    return held_once(packed, is_ours=True)


def _computed(kernel: Any, arrays: Sequence[Array], types: Any) -> Any:
    """Results of the kernel for these arrays, computed by the host."""
    relax = part("relax")
    fields = list(types[0].fields) if isinstance(types[0], relax.TupleType) else [types[0]]
    run = compile_kernels({"now": kernel}, host_machine(1).target)["now"]
    tensor = tvm().runtime.tensor
    outs = [tvm().runtime.empty([int(d) for d in t.shape], str(t.dtype)) for t in fields]
    run(*[tensor(np.asarray(array, order="C")) for array in arrays], *outs)
    results = [out.numpy() for out in outs]
    return results if isinstance(types[0], relax.TupleType) else results[0]


def _type(entry: NodeEntry) -> Any:
    value_type = entry.type
    assert isinstance(value_type, TensorType)
    return tensor_type(value_type.shape, value_type.dtype)


def plain_name(name: str) -> str:
    """The name with only characters that TVM's text form can read."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return text if text and not text[0].isdigit() else f"v{text}"
