"""Converts a captured graph to our graph with torch's own exporter; parameters become constants in torch's memory.

What ONNX cannot express is an error here, so that it stays in torch: writes to tensors, random numbers, ops without an ONNX form,
computed results that are not tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.build import constant
from partita.graph.errors import PartitaError, ReadError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.readers.torch import first_lines, from_torch, lost, quiet_exporter
from partita.graph.rewrite import Rewriter, rewrite
from partita.torch_compile.captured import Captured, results_of
from partita.torch_compile.constants import is_constant
from partita.torch_compile.layouts import base_of, is_number, order_of, repeated_of
from partita.torch_compile.side_effects import changes_in_place, written
from partita.torch_compile.tensors import as_array

if TYPE_CHECKING:
    import torch


class NotExported(PartitaError):
    """Error for a graph of torch's that has no form in ONNX."""


class SizesFixed(NotExported):
    """A graph whose sizes or integers, given by input and dimension, torch's exporter fixed at those of the first call."""

    def __init__(self, cause: str, fixed: Collection[tuple[int, int | None]]) -> None:
        super().__init__(cause)
        self.fixed = fixed


@attrs.frozen
class Output:
    """Source of an output of the captured graph."""

    position: int
    """Index among our outputs, or among the results of `views`."""
    dtype: torch.dtype | None = None
    """Element type; None for a result of `views`."""
    order: tuple[int, ...] | None = None
    """Dimensions from the widest stride to the narrowest, if that is not their own order."""
    repeated: tuple[int, ...] = ()
    """Dimensions with stride 0."""


@attrs.frozen(eq=False)
class Exported:
    """A captured graph as our graph."""

    graph: Graph | None
    """None if nothing is computed."""
    fed: tuple[int, ...]
    """Inputs of the captured graph that are inputs of ours, in order."""
    fixed: tuple[int, ...]
    """Inputs of the captured graph that are constants of ours."""
    views: torch.fx.GraphModule | None
    """Computes the results that are inputs, or views of inputs or of other results, from the inputs and our outputs: writes to a
    view have to reach its base."""
    outputs: tuple[Output, ...]

    @property
    def computed(self) -> list[tuple[int, Output]]:
        """The outputs that are ours, each with its index."""
        return [(k, output) for k, output in enumerate(self.outputs) if output.dtype is not None]


def export_graph(captured: Captured, inputs: Sequence[Any], dynamic: bool) -> Exported:
    """The graph for inputs of this kind; sizes that may change are symbols if `dynamic`."""
    import torch

    tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and i not in captured.numbers]
    unplain = next((inputs[i] for i in tensors if inputs[i].layout is not torch.strided or inputs[i].is_quantized), None)
    if unplain is not None:
        raise NotExported(f"a tensor that is given is {unplain.layout}, of {unplain.dtype}, which no array is")
    tuples = next((value for value in inputs if isinstance(value, (tuple, list, dict))), None)
    if tuples is not None:
        raise NotExported(f"an input is a {type(tuples).__name__}, and no tensor or number")
    kept, computed = _results(captured.module)
    fed = [*tensors, *sorted(captured.integers)] if dynamic else tensors
    program = _program(captured, inputs, fed, computed, dynamic)
    views = _views(captured.module, kept, computed) if kept else None
    from_kept = {k: Output(n) for n, k in enumerate(kept)}
    if not computed:
        return Exported(None, (), (), views, tuple(from_kept.values()))
    dtypes = _result_types(program)
    strange = next((dtype for dtype in [*(inputs[i].dtype for i in tensors), *dtypes] if dtype.is_complex), None)
    if strange is not None:
        raise NotExported(f"a tensor that is given or computed holds {strange}, which ONNX's ops do not take")
    try:
        graph = from_torch(program, None, name="graph")
    except ReadError as error:
        raise NotExported(error.cause, where=error.where) from error
    names = [node.name for node in graph.inputs]
    if len(names) != len(fed):
        raise NotExported(f"torch's exporter made {len(names)} inputs of {len(fed)}")
    fixed = [i for i in tensors if is_constant(inputs[i])]
    graph = _with_constants(graph, {names[tensors.index(i)]: inputs[i] for i in fixed})
    results = results_of(captured.module)
    types = {k: Output(n, dtypes[n], order_of(results[k]), repeated_of(results[k])) for n, k in enumerate(computed)}
    positions = from_kept | types
    outputs = tuple(positions[k] for k in sorted(positions))
    return Exported(graph, tuple(i for i in fed if i not in fixed), tuple(fixed), views, outputs)


def _results(module: torch.fx.GraphModule) -> tuple[list[int], list[int]]:
    """Indices of the graph's results that are inputs, views or sizes, and of those that are computed."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    results = results_of(module)
    strange = next((result for result in results if not hasattr(result, "meta")), None)
    if strange is not None:
        raise NotExported(f"a result of the graph is {strange!r}, and no tensor")
    bases = {*inputs, *results}

    def is_kept(result: torch.fx.Node) -> bool:
        return result in inputs or base_of(result, bases) is not None or (is_number(result) and _is_size(result, bases))

    kept = [k for k, result in enumerate(results) if is_kept(result)]
    return kept, [k for k in range(len(results)) if k not in kept]


def _is_size(node: torch.fx.Node, bases: Collection[torch.fx.Node]) -> bool:
    """True if the node's value is a number that depends only on inputs and sizes of these nodes and of their views."""
    if node in bases and (node.op == "placeholder" or not is_number(node)):
        return True
    sources = node.all_input_nodes
    return is_number(node) and all(_is_size(source, bases) or base_of(source, bases) is not None for source in sources)


def _views(module: torch.fx.GraphModule, wanted: Sequence[int], computed: Sequence[int]) -> torch.fx.GraphModule:
    """The part of the graph that computes some results, as a function of all inputs and of the computed results.

    The computed results already contain what the graph writes to them or to views of them."""
    import torch

    graph = deepcopy(module.graph)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
    output.args = (tuple(results[k] for k in wanted),)
    for k in computed:
        with graph.inserting_before(next(iter(graph.nodes))) if not inputs else graph.inserting_after(inputs[-1]):
            inputs.append(graph.placeholder(f"computed_{k}"))
        results[k].replace_all_uses_with(inputs[-1])
    for node in graph.nodes:
        if changes_in_place(node):
            node.replace_all_uses_with(written(node)[0])
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output"):
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph)


def _program(
    captured: Captured, inputs: Sequence[Any], fed: Sequence[int], computed: Sequence[int], dynamic: bool
) -> torch.export.ExportedProgram:
    """The graph as exported by torch; its arguments are these inputs alone, tensors and integers."""
    import torch

    class Bound(torch.nn.Module):
        """The graph as a function of these: other numbers are constants, and sizes are taken from the tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.captured = captured.module

        def forward(self, *given: Any) -> list[Any]:
            values = captured.with_numbers(inputs)
            for i, value in zip(fed, given, strict=True):
                values[i] = value
            for i, (owner, dim) in captured.sizes.items():
                values[i] = values[owner].shape[dim]
            results = self.captured(*values)
            return [results[k] for k in computed] if isinstance(results, (tuple, list)) else [results]

    any_size = torch.export.Dim.AUTO
    names = [any_size if i in captured.integers else dict.fromkeys(captured.dynamic.get(i, ()), any_size) for i in fed]
    shapes = (tuple(names),) if dynamic else None
    try:
        with torch.no_grad(), quiet_exporter():
            # Not the tensors themselves: torch keeps weak references to what it exports.
            given = tuple(inputs[i].detach() if isinstance(inputs[i], torch.Tensor) else inputs[i] for i in fed)
            exported = torch.export.export(Bound(), given, dynamic_shapes=shapes, strict=False)
            # run_decompositions drops the writes of some ops without a trace.
            cause = lost(exported)
            program = exported.run_decompositions({})
    except Exception as error:
        raise NotExported(f"torch could not export the graph: {first_lines(error)}") from error
    if cause is not None:
        raise NotExported(cause)
    signature = program.graph_signature
    if dynamic:
        _check_sizes(program, captured, fed)
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise NotExported(f"the graph writes to {written[0]}, and a graph of ONNX's writes to nothing that it is given")
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _drops_nothing(node):
            raise NotExported(f"{node.target} makes random numbers, which are torch's own")
    return program


def _check_sizes(program: torch.export.ExportedProgram, captured: Captured, fed: Sequence[int]) -> None:
    """SizesFixed if torch's exporter fixed sizes or integers that may change."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    fixed = list[tuple[int, int | None]]()
    for i, name in zip(fed, program.graph_signature.user_inputs, strict=True):
        value = values[name]
        if i in captured.integers:
            fixed += [(i, None)] if _number(value) is not None else []
        else:
            fixed += [(i, d) for d in captured.dynamic.get(i, ()) if _number(value.shape[d]) is not None]
    if fixed:
        raise SizesFixed(f"torch could export {len(fixed)} sizes or integers for the first call alone", fixed)


def _number(size: int | torch.SymInt) -> int | None:
    """The size, or the integer, if it is fixed."""
    import torch

    return size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size


def _drops_nothing(node: torch.fx.Node) -> bool:
    """True if only dropout would be random about the op, as in attention and recurrent layers, and it is off."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: argument.default_value for argument in arguments}
    given |= dict(zip(given, node.args)) | node.kwargs
    return given.get("train") is False or 0.0 in (given.get("dropout"), given.get("dropout_p"))


def _result_types(program: torch.export.ExportedProgram) -> list[torch.dtype]:
    """Element types of the outputs."""
    import torch

    nodes = {node.name: node for node in program.graph.nodes}
    results = [nodes[str(name)].meta.get("val") for name in program.graph_signature.user_outputs if str(name) in nodes]
    if len(results) < len(program.graph_signature.user_outputs) or not all(isinstance(value, torch.Tensor) for value in results):
        raise NotExported("a result of the graph is a number, and no tensor")
    return [value.dtype for value in results]


def _with_constants(graph: Graph, tensors: Mapping[str, torch.Tensor]) -> Graph:
    """The graph with constants, in torch's memory, in place of these inputs."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        if node.is_variable and node.name in tensors:
            rewriter.replace(node[0], rewriter.keep(constant(as_array(tensors[node.name]), f"{node.name}_constant"))[0])

    rebuilt = rewrite(graph, visit)
    return rebuilt.evolve(inputs=[node for node in rebuilt.inputs if node.name not in tensors], nodes=())
