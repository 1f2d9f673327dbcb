"""Converts MXNet's symbol to a graph, node by node, with the table of converters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph.build import call, constant, variable
from partita.graph.errors import ReadError, UnknownOp, did_you_mean
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, next_place
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.naming import Names, noted_name, unique, variable_names
from partita.graph.readers.mxnet.ops import converter_of
from partita.graph.readers.mxnet.ops.table import Converter, known_ops
from partita.graph.readers.mxnet.symbol import Symbol, SymbolNode
from partita.graph.types import Dim, TensorType, Type

__all__ = ["to_graph"]

CALL = "_CachedOp"
"""MXNet's op for a call of a subgraph."""

CTX_GROUP = "mxnet.ctx_group"
"""Metadata key of MXNet's placement annotation."""

Arrays = Mapping[str, np.ndarray[Any, Any]]
Shapes = Mapping[str, Sequence[Dim]]


def to_graph(symbol: Symbol, arrays: Arrays, shapes: Shapes, name: str) -> Graph:
    """The graph of a symbol: variables that have an array become constants, the others inputs."""
    _check_ops(symbol)
    _check_names(symbol, arrays, shapes, name)
    with collector_paused():
        return _Converting(symbol, _variables(symbol, arrays, shapes), name, set()).graph()


def _check_ops(symbol: Symbol) -> None:
    """Raises one error for all ops without a converter."""
    unknown: dict[str, list[str]] = {}
    stack = [symbol]
    while stack:
        for node in (current := stack.pop()).nodes:
            if not node.is_variable and node.op != CALL and converter_of(node.op) is None:
                unknown.setdefault(node.op, []).append(node.name)
        stack += [body for node in current.nodes if node.op == CALL for body in node.subgraphs]
    if not unknown:
        return
    listed = "; ".join(f"{op} (node {names[0]!r}{_more(len(names) - 1)})" for op, names in unknown.items())
    near = did_you_mean(next(iter(unknown)), known_ops()) if len(unknown) == 1 else None
    write = "Write one: a function under @partita.graph.readers.mxnet.converter(...) that makes ONNX nodes of the op"
    raise UnknownOp(
        f"no converter reads {'this MXNet op' if len(unknown) == 1 else 'these MXNet ops'}: {listed}",
        remedy=f"{near} {write}" if near else write,
    )


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _check_names(symbol: Symbol, arrays: Arrays, shapes: Shapes, where: str) -> None:
    names = {node.name for node in symbol.nodes if node.is_variable}
    known = dict.fromkeys(variable_names(symbol).values())
    for name in shapes:
        if name not in known:
            hint = did_you_mean(name, known) or f"The variables are {', '.join(known)}"
            raise ReadError(f"a shape is given for {name!r}, which is not a variable", where=where, remedy=hint)
    if arrays and names and names.isdisjoint(arrays):
        raise ReadError(
            f"none of the {len(arrays)} parameters has the name of a variable",
            where=where,
            remedy="Give the .params file that was saved with this symbol",
        )


def _variables(symbol: Symbol, arrays: Arrays, shapes: Shapes) -> dict[int, Node]:
    """The variables and constants, by node number.

    Variables of one name share one array, because MXNet binds arrays by name."""
    variables = {}
    for i, name in variable_names(symbol).items():
        node = symbol.nodes[i]
        shape, array = _given_shape(node, name, arrays, shapes), arrays.get(node.name)
        dtype = node.hidden.dtype("dtype", "float32")
        own = variable(name, dtype, shape) if array is None else constant(array, name)
        variables[i] = own.evolve(metadata=noted_name(node.name, name))
    return variables


def _given_shape(node: SymbolNode, name: str, arrays: Arrays, shapes: Shapes) -> tuple[Dim, ...] | None:
    """The variable's shape, declared by the array, the caller (by our `name` or the file's) or the file.

    These must not contradict each other."""
    declared = tuple(d if d > 0 else None for d in node.hidden.integers("shape")) or None
    wanted = shapes.get(name, shapes.get(node.name))
    given = declared if wanted is None else TensorType("float32", wanted).shape
    if node.name not in arrays:
        return given
    actual = tuple(arrays[node.name].shape)
    if given is not None and not _agree(actual, given):
        raise ReadError(
            f"the array has the shape {_spelled(actual)}, and {_spelled(given)} was declared", where=node.where
        )
    return actual


def _agree(shape: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """True if both can be shapes of one value."""
    pairs = zip(shape, other, strict=False)
    return len(shape) == len(other) and all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)


def _shape(entry: NodeEntry) -> tuple[Dim, ...] | None:
    return entry.type.shape if isinstance(entry.type, TensorType) else None


def _spelled(shape: Sequence[Dim]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


class _Converting:
    """Conversion of one symbol, with the values made so far."""

    def __init__(self, symbol: Symbol, variables: Mapping[int, Node], name: str, ops: set[str]) -> None:
        self.symbol = symbol
        self.name = name
        # The variables' names come first, since callers pass inputs by name.
        self.names = Names((node.name for node in symbol.nodes), (node.name for node in variables.values()), ops)
        self.values: dict[int, tuple[NodeEntry, ...]] = {}
        self.variables = dict(variables)
        self.read: set[int] = set()
        self.labels: set[int] = set()

    def graph(self) -> Graph:
        """Converts all nodes."""
        for i, node in enumerate(self.symbol.nodes):
            if node.is_variable:
                self.variables[i] = self.variables[i].evolve(place=next_place())
                self.values[i] = self.variables[i].outputs
            else:
                self.values[i] = self.converted(node)
        outputs = [self.entry(head, self.name) for head in self.symbol.heads]
        # Values that only training reads, such as the labels of a SoftmaxOutput, are not inputs in inference.
        unread = self.labels - self.read - {source for source, _ in self.symbol.heads}
        inputs = [node for i, node in self.variables.items() if node.is_variable and i not in unread]
        metadata = {"mxnet.version": self.symbol.version} if self.symbol.version else {}
        names = unique([entry.name for entry in outputs])
        return Graph(outputs, inputs, self.name, output_names=names, metadata=metadata)

    def entry(self, source: tuple[int, int], where: str) -> NodeEntry:
        """The value of this output of a node."""
        entries = self.values[source[0]]
        if source[1] < len(entries):
            return entries[source[1]]
        node = self.symbol.nodes[source[0]]
        raise ReadError(
            f"output {source[1]} of {node.name!r} is read, and in use {node.op} has {len(entries)}", where=where
        )

    def converted(self, node: SymbolNode) -> tuple[NodeEntry, ...]:
        """Converts one node to its values."""
        if node.op == CALL:
            return self.called(node)
        row = converter_of(node.op)
        assert row is not None  # _check_ops has seen to it
        self.refine(node, row)
        for slot, (source, _) in enumerate(node.inputs):
            (self.labels if slot in row.labels else self.read).add(source)
        conversion = Conversion(
            node.op,
            node.name,
            tuple(self.entry(source, node.where) for source in node.inputs),
            node.params,
            self.names,
            tuple(entry.node for i in node.after for entry in self.values[i][:1]),
            {CTX_GROUP: group} if (group := node.hidden.string("ctx_group", "")) else {},
        )
        try:
            return row(conversion)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ReadError(f"the parameters do not fit the inputs: {error}", where=node.where) from error

    def refine(self, node: SymbolNode, row: Converter) -> None:
        """Checks the inputs against the shapes that the op implies; completes shapes of variables that nothing has read yet."""
        entries = [self.entry(source, node.where) for source in node.inputs]
        hinted = (
            row.implied(node.params, lambda i: _shape(entries[i]) if i < len(entries) else None) if row.implied else []
        )
        for (source, _), entry, hint in zip(node.inputs, entries, hinted, strict=False):
            shape = _shape(entry)
            if hint is None:
                continue
            if shape is not None and not _agree(shape, hint):
                raise ReadError(
                    f"{entry.name!r} has the shape {_spelled(shape)}, and the op takes {_spelled(hint)} there",
                    where=node.where,
                    remedy="Check the shapes of the inputs and of the parameters",
                )
            if entry.node.is_variable and source not in self.read and isinstance(entry.type, TensorType):
                merged = hint if shape is None else [h if d is None else d for d, h in zip(shape, hint, strict=True)]
                refined = self.variables[source].evolve(output_types=(TensorType(entry.type.dtype, merged),))
                self.variables[source], self.values[source] = refined, refined.outputs

    def called(self, node: SymbolNode) -> tuple[NodeEntry, ...]:
        """Converts a call: the body's variables are bound to the node's inputs in order."""
        if len(node.subgraphs) != 1:
            raise ReadError(f"a call must have one subgraph, but has {len(node.subgraphs)}", where=node.where)
        body = node.subgraphs[0]
        formal = [i for i, inner in enumerate(body.nodes) if inner.is_variable]
        actual = [self.entry(source, node.where) for source in node.inputs]
        self.read |= {source for source, _ in node.inputs}
        if len(formal) != len(actual):
            raise ReadError(f"the call has {len(actual)} inputs and its body {len(formal)}", where=node.where)
        names = variable_names(body)
        variables = {
            i: variable(names[i], type=_typed(entry.type)).evolve(metadata=noted_name(body.nodes[i].name, names[i]))
            for i, entry in zip(formal, actual, strict=True)
        }
        name = self.names.node(node.name)
        inner = _Converting(body, variables, node.name, self.names.ops)
        graph = inner.graph()
        if len(graph.inputs) != len(formal):
            raise ReadError("the body reads labels of training, which a call cannot leave out", where=node.where)
        call_node = call(graph, *actual, name=name)
        values = self.names.outputs(node.name, len(graph.outputs))
        return call_node.evolve(output_names=values, metadata=noted_name(node.name, name)).outputs


def _typed(value_type: Type | None) -> Type:
    return TensorType("float32") if value_type is None else value_type
