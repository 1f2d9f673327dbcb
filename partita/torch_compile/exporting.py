"""A captured graph as our graph, by torch's own exporter, with the parameters as constants in torch's memory.

What torch does and ONNX cannot say is an error here, so that it stays in torch: tensors that are written to, random numbers, ops
without an ONNX form, results that are computed and no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs

from graph.build import constant
from graph.errors import PartitaError, ReadError
from graph.graph import Graph
from graph.node import Node
from graph.readers.torch import first_lines, from_torch, quiet_exporter
from graph.rewrite import Rewriter, rewrite
from partita.torch_compile.captured import Captured, is_fixed, results_of
from partita.torch_compile.layouts import base_of, order_of
from partita.torch_compile.tensors import as_array

if TYPE_CHECKING:
    import torch


class NotExported(PartitaError):
    """A graph of torch's of which something has no form in ONNX."""


@attrs.frozen
class Output:
    """Where an output of the captured graph comes from."""

    position: int
    """The number among our outputs, or among the results of `views`."""
    dtype: torch.dtype | None = None
    """The element type; None for a result of `views`."""
    order: tuple[int, ...] | None = None
    """The dimensions from the widest stride to the narrowest, where that is another order than their own."""


@attrs.frozen(eq=False)
class Exported:
    """A captured graph as ours."""

    graph: Graph | None
    """None where nothing is computed."""
    fed: tuple[int, ...]
    """The inputs of the captured graph that are inputs of ours, in order."""
    fixed: tuple[int, ...]
    """The inputs of the captured graph that are constants of ours."""
    views: torch.fx.GraphModule | None
    """Makes the results that are inputs, or views of inputs or of other results, from the inputs and our outputs: what is
    written to a view has to reach what it is a view of."""
    outputs: tuple[Output, ...]

    @property
    def computed(self) -> list[tuple[int, Output]]:
        """The outputs that are ours, each with its number."""
        return [(k, output) for k, output in enumerate(self.outputs) if output.dtype is not None]


def export_graph(captured: Captured, inputs: Sequence[Any], dynamic: bool) -> Exported:
    """The graph for inputs of this kind, with the sizes that may change as symbols if they are `dynamic`."""
    import torch

    tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and i not in captured.numbers]
    unplain = next((inputs[i] for i in tensors if inputs[i].layout is not torch.strided or inputs[i].is_quantized), None)
    if unplain is not None:
        raise NotExported(f"a tensor that is given is {unplain.layout}, of {unplain.dtype}, which no array is")
    kept, computed = _results(captured.module)
    program = _program(captured, inputs, tensors, computed, dynamic)
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
    if len(names) != len(tensors):
        raise NotExported(f"torch's exporter made {len(names)} inputs of {len(tensors)}")
    fixed = [i for i in tensors if is_fixed(inputs[i])]
    graph = _with_constants(graph, {names[tensors.index(i)]: inputs[i] for i in fixed})
    results = results_of(captured.module)
    positions = from_kept | {k: Output(n, dtypes[n], order_of(results[k])) for n, k in enumerate(computed)}
    outputs = tuple(positions[k] for k in sorted(positions))
    return Exported(graph, tuple(i for i in tensors if i not in fixed), tuple(fixed), views, outputs)


def _results(module: torch.fx.GraphModule) -> tuple[list[int], list[int]]:
    """The numbers of the graph's results that are inputs or views, and of those that are computed."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    results = results_of(module)
    strange = next((result for result in results if not hasattr(result, "meta")), None)
    if strange is not None:
        raise NotExported(f"a result of the graph is {strange!r}, and no tensor")
    bases = {*inputs, *results}
    kept = [k for k, result in enumerate(results) if result in inputs or base_of(result, bases) is not None]
    return kept, [k for k in range(len(results)) if k not in kept]


def _views(module: torch.fx.GraphModule, wanted: Sequence[int], computed: Sequence[int]) -> torch.fx.GraphModule:
    """The part of the graph that makes some results, as a function of all inputs and of the results that are computed."""
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
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)


def _program(
    captured: Captured, inputs: Sequence[Any], tensors: Sequence[int], computed: Sequence[int], dynamic: bool
) -> torch.export.ExportedProgram:
    """The graph as torch exports it; its arguments are the tensors alone."""
    import torch

    class Bound(torch.nn.Module):
        """The graph as a function of tensors: its numbers are known, and sizes are asked of the tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.captured = captured.module

        def forward(self, *given: torch.Tensor) -> list[Any]:
            values = captured.with_numbers(inputs)
            for i, tensor in zip(tensors, given, strict=True):
                values[i] = tensor
            for i, (owner, dim) in captured.sizes.items():
                values[i] = values[owner].shape[dim]
            results = self.captured(*values)
            return [results[k] for k in computed] if isinstance(results, (tuple, list)) else [results]

    names = {i: dict.fromkeys(captured.dynamic.get(i, ()), torch.export.Dim.AUTO) for i in tensors}
    shapes = (tuple(names[i] for i in tensors),) if dynamic else None
    try:
        with torch.no_grad(), quiet_exporter():
            exported = torch.export.export(Bound(), tuple(inputs[i] for i in tensors), dynamic_shapes=shapes, strict=False)
            # What the graph writes to shows only in the form in which nothing writes.
            program = exported.run_decompositions({})
    except Exception as error:
        raise NotExported(f"torch could not export the graph: {first_lines(error)}") from error
    signature = program.graph_signature
    if dynamic:
        _check_sizes(program, [captured.dynamic.get(i, ()) for i in tensors])
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise NotExported(f"the graph writes to {written[0]}, and a graph of ONNX's writes to nothing that it is given")
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _drops_nothing(node):
            raise NotExported(f"{node.target} makes random numbers, which are torch's own")
    return program


def _check_sizes(program: torch.export.ExportedProgram, dynamic: Sequence[Iterable[int]]) -> None:
    """NotExported where torch's exporter made one of the sizes that may change, by tensor, that of the first call."""
    import torch

    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    for name, dims in zip(program.graph_signature.user_inputs, dynamic, strict=True):
        sizes = values[name].shape
        fixed = [d for d in dims if not isinstance(sizes[d], torch.SymInt) or sizes[d].node.maybe_as_int() is not None]
        if fixed:
            raise NotExported(f"torch could export size {fixed[0]} of {name} for the first call alone")


def _drops_nothing(node: torch.fx.Node) -> bool:
    """Is dropout all that would be random about the op, as with attention and recurrent layers, and is there none?"""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: argument.default_value for argument in arguments}
    given |= dict(zip(given, node.args)) | node.kwargs
    return given.get("train") is False or 0.0 in (given.get("dropout"), given.get("dropout_p"))


def _result_types(program: torch.export.ExportedProgram) -> list[torch.dtype]:
    """The element types of the outputs."""
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
