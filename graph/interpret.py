"""Interprets a graph node by node in numpy: slow and correct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph.errors import GraphError, PartitaError
from partita.graph.graph import Graph
from partita.graph.microsoft import body_of, is_known, types_of
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import custom_op
from partita.graph.types import TensorType

_FAILURES = (
    ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, AttributeError, AssertionError, ImportError, MemoryError,
)
"""Errors that numpy and ONNX's reference raise for values that an op does not take, or for a missing package."""


Check = Callable[[Node, Sequence[tuple[int, ...] | None], Mapping[str, int]], None]
"""(op, shapes of its inputs, opsets): an error if sizes contradict each other that numpy would broadcast."""


def interpret(
    graph: Graph, inputs: Sequence[Any], known: Mapping[NodeEntry, Any] | None = None, check: Check | None = None
) -> list[Any]:
    """The graph's outputs for these input values, in order (arrays; lists for sequences; None for an empty optional). An op whose
    outputs are all in `known` is not computed."""
    if isinstance(inputs, Mapping):
        raise GraphError("values are given in the order of the inputs, not by name", where=f"graph {graph.name!r}")
    if len(inputs) != len(graph.inputs):
        raise GraphError(
            f"{len(inputs)} values were given for {len(graph.inputs)} inputs",
            where=f"graph {graph.name!r}",
            remedy=f"Its inputs are {', '.join(node.name for node in graph.inputs) or 'none'}",
        )
    values: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(graph.inputs, inputs, strict=True)}
    last = last_reads(graph)
    for node in graph.nodes:
        if node.is_variable:
            continue
        read = [None if entry is None else values[entry] for entry in node.inputs]
        if known and node.is_op and all(entry in known for entry in node.outputs):
            results: Sequence[Any] = [known[entry] for entry in node.outputs]
        else:
            results = evaluate_node(node, read, graph.opsets, [values[entry] for entry in node.captures], check)
        values.update(zip(node.outputs, results, strict=True))
        for entry in last.get(node, ()):
            del values[entry]
    return [values[entry] for entry in graph.outputs]


def evaluate_node(
    node: Node, inputs: Sequence[Any], opsets: Mapping[str, int], captured: Sequence[Any] = (), check: Check | None = None
) -> tuple[Any, ...]:
    """The outputs of one node for these values of its inputs and captures."""
    if node.value is not None:
        return (node.value,)
    if node.subgraph is not None:
        return tuple(interpret(node.subgraph, inputs, check=check))
    try:
        if check is not None:
            check(node, [getattr(value, "shape", None) for value in inputs], opsets)
        return _evaluate(node, inputs, opsets, captured, check)
    except PartitaError:
        raise
    except _FAILURES as error:
        shapes = ", ".join("absent" if x is None else _described(x) for x in inputs)
        raise GraphError(
            f"the op cannot be computed: {error}", where=f"node {node.name!r} ({node.op}) on ({shapes})"
        ) from error


def _evaluate(
    node: Node, inputs: Sequence[Any], opsets: Mapping[str, int], captured: Sequence[Any], check: Check | None
) -> tuple[Any, ...]:
    assert node.op is not None
    count = len(node.output_names)
    mine = custom_op(node.op, node.domain)
    if mine is not None and mine.numpy is not None:
        defaults = {name: spec.default for name, spec in mine.spec.attributes.items()}
        results = mine.numpy(*inputs, **{**defaults, **node.attrs})
        return _several(results, count)
    if is_known(node):
        return tuple(interpret(body_of(node, types_of(inputs), inputs), [x for x in inputs if x is not None], check=check))
    from partita.graph.numerics import evaluate  # start-up

    attributes = {
        key: _Runnable(value, captured, check) if isinstance(value, Graph) else value for key, value in node.attrs.items()
    }
    return evaluate(
        node.op, inputs, attributes, domain=node.domain, version=opsets.get(node.domain, 1), n_outputs=count
    )


def _several(results: Any, count: int) -> tuple[Any, ...]:
    """The results of a user's function as a tuple of `count` values."""
    values = tuple(results) if isinstance(results, (tuple, list)) else (results,)
    if len(values) != count or any(value is None for value in values):
        returned = "None" if results is None else f"{len(values)} values"
        raise ValueError(f"its numpy function returned {returned}, and the node has {count} outputs")
    return tuple([np.asarray(value) for value in values])


class _Runnable:
    """A body with its captures bound: a callable from its formal inputs to its outputs."""

    def __init__(self, body: Graph, captured: Sequence[Any], check: Check | None) -> None:
        self.body = body
        self.captured = list(captured)
        self.check = check

    @property
    def output_types(self) -> list[tuple[Any, Any] | None]:
        """The dtypes and shapes of the body's outputs, which a loop without iterations needs for its empty results."""
        types = [entry.type for entry in self.body.outputs]
        return [(t.dtype, t.shape) if isinstance(t, TensorType) else None for t in types]

    def sizes(self, formal: Sequence[Any]) -> dict[str, int]:
        """The values of the body's symbols for these formal inputs and the captured values."""
        symbols: dict[str, int] = {}
        for node, value in zip(self.body.inputs, [*formal, *self.captured]):
            kind = node.output_types[0]
            if isinstance(kind, TensorType) and isinstance(value, np.ndarray):
                for symbol, size in zip(kind.shape or (), value.shape):
                    if isinstance(symbol, str):
                        symbols.setdefault(symbol, size)
        return symbols

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return interpret(self.body, [*inputs, *self.captured], check=self.check)


def last_reads(graph: Graph) -> dict[Node, list[NodeEntry]]:
    """Per node the values that it is the last to read, so that they can be freed."""
    kept = set(graph.outputs)
    last: dict[NodeEntry, Node] = {}
    for node in graph.nodes:
        for entry in node.reads:
            last[entry] = node
    done: dict[Node, list[NodeEntry]] = {}
    for entry, node in last.items():
        if entry not in kept:
            done.setdefault(node, []).append(entry)
    return done


def _described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__



