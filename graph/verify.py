"""Checks that a graph is well formed: first its structure, then each op against its schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from partita.graph.errors import GraphError, TypeMismatch, did_you_mean
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph, require_graph
from partita.graph.names import check_names, check_output_names
from partita.graph.nested import graphs_in
from partita.graph.node import Body, Node, NodeEntry
from partita.graph.ops.onnx_crashes import require_sound
from partita.graph.ops.schemas import ONNX_DOMAINS, OpSpec, ParamSpec, newest_versions, require_spec, spec_of
from partita.graph.sparse import SparseTensor
from partita.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type

INPUTS_OF_LOOP = 2
"""A Loop's first inputs, trip count and condition; its body gets the iteration number and the condition in their place."""


def verify(graph: Graph, *, schemas: bool = True) -> None:
    """Raise an error that names the first node at fault, if there is one.

    Acyclic, names unique, values there, bodies closed, opsets known; where an op's schema is known, counts, attributes and
    types by it, unless `schemas` is False. Near-linear: schemas are looked up once for each op."""
    require_graph(graph)
    _verify_versions(graph)
    with collector_paused():
        ops: dict[str, Node] = {}
        for inner in graphs_in(graph):
            _verify_structure(inner)
            _verify_names(inner, ops)
            if schemas:
                _verify_nodes(inner)


def _verify_versions(graph: Graph) -> None:
    newest = newest_versions()
    for domain, version in graph.opsets.items():
        if not 1 <= version <= newest.get(domain, version):
            cause = f"there is no version {version} of opset {domain or 'ai.onnx'!r}; 1 to {newest.get(domain, 1)} are known"
            raise GraphError(cause, where=f"graph {graph.name!r}")


def _verify_structure(graph: Graph) -> None:
    """Checks that nodes come after their dependencies, and that values exist in this very graph."""
    rank = {node: i for i, node in enumerate(graph.nodes)}
    if len(rank) < len(graph.nodes):
        raise GraphError("a node is listed twice", where=f"graph {graph.name!r}")
    for i, node in enumerate(graph.nodes):
        for entry in node.inputs:
            if entry is not None and rank.get(entry.node, i) >= i:
                raise _misplaced(node, entry.node, entry.node in rank)
        for source in (*(entry.node for entry in node.captures), *node.after) if node.captures or node.after else ():
            if rank.get(source, i) >= i:
                raise _misplaced(node, source, source in rank)
    for node in graph.nodes:
        for entry in node.reads:
            _verify_entry(entry, node)
        if len(node.output_names) != len(node.output_types):
            raise GraphError("there are not as many output types as outputs", where=_where(node))
    for entry in graph.outputs:
        _verify_entry(entry, None)
        if entry.node not in rank:
            raise GraphError(f"the output {entry.node.name!r} is not in the graph", where=f"graph {graph.name!r}")
    if [n for n in graph.nodes if n.is_variable] != sorted(graph.inputs, key=lambda n: rank.get(n, -1)):
        raise GraphError("the inputs are not the variables in the graph", where=f"graph {graph.name!r}")


def _verify_entry(entry: NodeEntry, reader: Node | None) -> None:
    if not 0 <= entry.index < len(entry.node.output_names):
        raise GraphError(
            f"node {entry.node.name!r} has no output {entry.index}",
            where=_where(reader) if reader is not None else "outputs",
            remedy=f"It has {len(entry.node.output_names)}",
        )


def _misplaced(node: Node, source: Node, known: bool) -> GraphError:
    cause = "comes before what it depends on, or both are on a cycle" if known else "reads a node that is not in the graph"
    return GraphError(f"the node {cause}: {source.name!r}", where=_where(node))


def _verify_names(graph: Graph, ops: dict[str, Node]) -> None:
    """Checks that names of op nodes are unique across all graphs, and names of other nodes, values and outputs in each graph."""
    check_names(graph.nodes)
    check_output_names(graph.outputs, graph.output_names)
    for node in graph.nodes:
        if not node.name:
            raise GraphError("a node has no name", where=f"graph {graph.name!r}")
        if node.is_op and ops.setdefault(node.name, node) is not node:
            raise GraphError(
                f"two nodes are named {node.name!r}", where=f"{_where(ops[node.name])} and {_where(node)}",
                remedy="Names are unique in a graph and its bodies; give one of them another",
            )


def _verify_nodes(graph: Graph) -> None:
    signatures: dict[tuple[str | None, str], Signature | None] = {}
    for node in graph.nodes:
        if node.value is not None:
            _verify_constant(node)
        elif node.op is None:
            if node.inputs or len(node.output_names) != 1:
                raise GraphError("a variable makes one value and reads none", where=_where(node))
        elif node.subgraph is not None:
            _verify_call(node, graph, node.subgraph)
        else:
            key = (node.op, node.domain)
            if key not in signatures:
                signatures[key] = Signature.of(node, graph.opsets)
            signature = signatures[key]
            if signature is not None:
                signature.check(node)
            if node.captures or node.attrs:
                _verify_bodies(node, graph)


def _verify_constant(node: Node) -> None:
    declared = node.output_types[0] if len(node.output_types) == 1 else None
    assert node.value is not None
    if node.op != "Constant" or node.inputs or not isinstance(declared, TensorType):
        raise GraphError("a constant makes one tensor and reads nothing", where=_where(node))
    if declared.shape is not None and not _agree(declared.shape, node.value.shape):
        raise TypeMismatch(f"the constant is {declared} and its array has the shape {node.value.shape}", where=_where(node))


def _agree(declared: Iterable[Any], actual: tuple[int, ...]) -> bool:
    sizes = tuple(declared)
    return len(sizes) == len(actual) and all(not isinstance(a, int) or a == b for a, b in zip(sizes, actual, strict=True))


def _verify_call(node: Node, graph: Graph, body: Graph) -> None:
    _verify_opsets(node, graph, body)
    for what, mine, theirs in (("inputs", node.inputs, body.inputs), ("outputs", node.output_names, body.outputs)):
        if len(mine) != len(theirs):
            raise GraphError(
                f"the call has {len(mine)} {what} and its body {len(theirs)}", where=_where(node), remedy="Connect the call"
            )
    if node.captures:
        raise GraphError("a call captures nothing: its inputs are those of its body", where=_where(node))
    for entry, variable in zip(node.inputs, body.inputs, strict=True):
        if entry is not None:
            _verify_bound(node, entry.type, variable)


def _verify_bodies(node: Node, graph: Graph) -> None:
    """Checks that every body has its formal inputs, then one per captured value."""
    formal = _formal_inputs(node, graph.opsets)
    for key, body in node.bodies:
        _verify_opsets(node, graph, body)
        count = len(body.inputs) - len(node.captures)
        if count < 0 or (formal is not None and count != formal):
            wanted = f"{len(node.captures)} captured"
            if formal is not None:
                wanted = f"{formal} inputs and {wanted}"
            raise GraphError(
                f"the body {key!r} has {len(body.inputs)} inputs; the node gives it {wanted}", where=_where(node),
                remedy="The last inputs of each body are bound to node.captures",
            )
        for entry, variable in zip(node.captures, body.inputs[count:], strict=True):
            _verify_bound(node, entry.type, variable)
        _verify_results(node, key, body)


def _formal_inputs(node: Node, opsets: Mapping[str, int]) -> int | None:
    """Number of inputs that the op passes to its bodies, without captures; None if unknown."""
    if node.domain:
        return None
    if node.op == "Scan":
        return len(node.inputs) - (opsets.get("", 9) < 9)  # the first version had the lengths of the sequences first
    return {"If": 0, "Loop": max(len(node.inputs), INPUTS_OF_LOOP)}.get(node.op or "")


def _verify_results(node: Node, key: str, body: Graph) -> None:
    if node.domain or node.op not in ("If", "Loop", "Scan"):
        return
    wanted = len(node.output_names) + (node.op == "Loop")
    if len(body.outputs) != wanted:
        raise GraphError(f"the body {key!r} has {len(body.outputs)} outputs; the node needs {wanted}", where=_where(node))


def _verify_bound(node: Node, given: Type | None, variable: Node) -> None:
    wanted = variable.output_types[0]
    if isinstance(given, TensorType) and isinstance(wanted, TensorType) and given.dtype != wanted.dtype:
        raise TypeMismatch(f"the body's input {variable.name!r} is {wanted}, and is given {given}", where=_where(node))


def _verify_opsets(node: Node, graph: Graph, body: Graph) -> None:
    if body.opsets != graph.opsets:
        raise GraphError(
            f"the body {body.name!r} has opsets {dict(body.opsets)} and the graph {dict(graph.opsets)}", where=_where(node),
            remedy="A graph and all its bodies share one opset map; the pass ConvertOpset converts",
        )


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"


_KINDS: Mapping[str, tuple[type, ...]] = {
    "INT": (int,),
    "FLOAT": (float, int),
    "STRING": (str, bytes),
    "TENSOR": (np.ndarray,),
    "GRAPH": (Body,),
    "SPARSE_TENSOR": (SparseTensor,),
}


@attrs.frozen(slots=True)
class Signature:
    """The constraints on nodes of one op."""

    spec: OpSpec
    """The op's schema."""
    required: tuple[str, ...]
    """The required attributes."""
    untyped: bool
    """True without constraints on types: an op of the user's."""
    seen: set[Any] = attrs.field(factory=set)
    """Valid combinations of types found so far."""

    @classmethod
    def of(cls, node: Node, opsets: Mapping[str, int]) -> Signature | None:
        """The signature of the node's op; None for an engine's own op."""
        where = f"node {node.name!r} ({node.op})"
        assert node.op is not None
        if node.domain not in ONNX_DOMAINS:
            spec = spec_of(node.op, node.domain, opsets.get(node.domain, 1))
        elif node.domain not in opsets:
            cause = f"the graph has no version of opset {node.domain or 'ai.onnx'!r}"
            raise GraphError(cause, where=where, remedy="Give it with opsets= when the graph is made")
        else:
            spec = require_spec(node.op, node.domain, opsets[node.domain], where)
        if spec is None:
            return None
        required = tuple(a.name for a in spec.attributes.values() if a.required)
        return cls(spec, required, not any(p.types for p in spec.inputs))

    def check(self, node: Node) -> None:
        """Checks the node's numbers of inputs and outputs, its attributes and its types."""
        spec = self.spec
        if not spec.min_inputs <= len(node.inputs) <= spec.max_inputs:
            raise self._count(node, "inputs", len(node.inputs), spec.min_inputs, spec.max_inputs)
        if not spec.min_outputs <= len(node.output_names) <= spec.max_outputs:
            raise self._count(node, "outputs", len(node.output_names), spec.min_outputs, spec.max_outputs)
        for name in self.required:
            if name not in node.attrs:
                raise TypeMismatch(f"{spec.title} needs the attribute {name!r}", where=_where(node))
        for name, value in node.attrs.items():
            self._attribute(node, name, value)
        require_sound(node)
        if not self.untyped:
            self._types(node)

    def _count(self, node: Node, what: str, count: int, low: int, high: int) -> GraphError:
        wanted = str(low) if low == high else f"{low} or more" if high > 10_000 else f"{low} to {high}"
        return GraphError(f"{self.spec.title} has {wanted} {what}, not {count}", where=_where(node))

    def _attribute(self, node: Node, name: str, value: Any) -> None:
        wanted = self.spec.attributes.get(name)
        if wanted is None:
            hint = did_you_mean(name, self.spec.attributes)
            raise TypeMismatch(f"{self.spec.title} has no attribute {name!r}", where=_where(node), remedy=hint)
        one = _KINDS.get(wanted.kind)
        many = _KINDS.get(wanted.kind[:-1])
        fits = isinstance(value, one) if one else True
        if many:
            fits = isinstance(value, (list, tuple)) and all(isinstance(item, many) for item in value)
        if not fits:
            raise TypeMismatch(f"the attribute {name!r} must be {wanted.kind}, not {value!r:.80}", where=_where(node))

    def _types(self, node: Node) -> None:
        """Checks that element types are allowed, and equal for parameters with the same letter."""
        given = tuple([None if entry is None else entry.node.output_types[entry.index] for entry in node.inputs])
        key = (tuple(map(_element, given)), tuple(map(_element, node.output_types)))
        if key in self.seen:
            return
        letters: dict[str, tuple[str, str]] = {}
        for what, texts, params in (("input", key[0], self.spec.inputs), ("output", key[1], self.spec.outputs)):
            for i, text in enumerate(texts):
                param = params[min(i, len(params) - 1)] if params else None
                if text is not None and param is not None:
                    self._type(node, f"{what} {i} ({param.name})", text, param, letters)
        self.seen.add(key)

    def _type(self, node: Node, what: str, text: str, param: ParamSpec, letters: dict[str, tuple[str, str]]) -> None:
        if param.types and text not in param.types:
            raise TypeMismatch(
                f"{what} of {self.spec.title} is {text}", where=_where(node),
                remedy=f"It may be {', '.join(sorted(param.types))}",
            )
        if param.option == "variadic" and not param.homogeneous:
            return
        first, known = letters.setdefault(param.symbol, (what, text))
        if known != text:
            raise TypeMismatch(
                f"{what} of {self.spec.title} is {text} and {first} is {known}; they must be the same", where=_where(node)
            )


def _element(value_type: Type | None) -> str | None:
    """The type without its shape, as schemas write it; None if something is unknown."""
    if isinstance(value_type, TensorType):
        return value_type.dtype
    if isinstance(value_type, SparseTensorType):
        return f"sparse({value_type.dtype})"
    if isinstance(value_type, (SequenceType, OptionalType)):
        inner = _element(value_type.element)
        word = "sequence" if isinstance(value_type, SequenceType) else "optional"
        return None if inner is None else f"{word}({inner})"
    return None if value_type is None else str(value_type)
