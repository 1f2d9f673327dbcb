"""Tests if an engine supports an op by giving it a model of that op alone. Answers are cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from partita.accelerators.process.forking import Guard
from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.single_node import graph_of_node
from partita.graph.types import SequenceType, SparseTensorType, TensorType, Type

Attempt = Callable[[Graph], "bool | str"]
"""Tries a graph of one op on the engine. True, or the reason why not."""

SHOWN = 256
"""Constants of up to this many bytes are included in the trial; larger ones become inputs, or zeros."""

LIMIT = 8192
"""Maximum number of cached answers."""


class Trials:
    """One engine's answers, by their dependencies: the op, its version, attributes, input types and small constants."""

    def __init__(self, attempt: Attempt, constants_up_to: int = SHOWN) -> None:
        self._attempt = attempt
        self._constants_up_to = constants_up_to
        self.known: dict[str, bool | str] = {}
        """The answers by key."""
        self._guard = Guard()

    def answer(self, node: Node, graph: Graph) -> bool | str:
        """The engine's answer about the node. Only the first node of its kind is tried."""
        key = _key(node, graph)
        if key is None:
            return self._attempt(self._alone(node, graph))
        with self._guard.lock:
            if key in self.known:
                return self.known[key]
        answer = self._attempt(self._alone(node, graph))
        with self._guard.lock:
            if len(self.known) >= LIMIT:
                self.known.clear()
            self.known[key] = answer
        return answer

    def _alone(self, node: Node, graph: Graph) -> Graph:
        """The node between inputs of its own."""
        return graph_of_node(node.evolve(metadata={}), graph.opsets, self._input, "trial")

    def _input(self, entry: NodeEntry, number: int) -> NodeEntry:
        value = entry.node.value
        if value is None:
            return variable(f"trial_x{number}", type=entry.type)[0]
        if value.nbytes <= SHOWN or value.dtype == object:
            return entry
        if value.nbytes <= self._constants_up_to:
            return entry.node.evolve(value=np.zeros(value.shape, value.dtype))[0]
        return variable(f"trial_x{number}", value.dtype, value.shape)[0]


def _key(node: Node, graph: Graph) -> str | None:
    """The key of everything that the answer depends on; None for a node with bodies, whose answer is not cached."""
    if node.bodies:
        return None
    attributes = tuple([(name, _digest(value)) for name, value in sorted(node.attrs.items())])
    inputs = tuple([None if entry is None else _input_key(entry) for entry in node.inputs])
    outputs = tuple([bool(name) for name in node.output_names])
    return repr((node.op, node.domain, sorted(graph.opsets.items()), attributes, inputs, outputs))


def _input_key(entry: NodeEntry) -> Any:
    value = entry.node.value
    if value is None:
        return _type_key(entry.type)
    if value.nbytes <= SHOWN:
        return value.dtype.str, value.shape, _digest(value)
    return value.dtype.name, value.ndim


def _type_key(value_type: Type | None) -> Any:
    return (value_type.dtype, value_type.rank) if isinstance(value_type, TensorType) else str(value_type)


def _digest(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return repr(value)
    data = repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).view(np.uint8).data
    return value.shape, value.dtype.name, hashlib.blake2b(data, digest_size=16).hexdigest()


def unknown_input(node: Node) -> str | None:
    """The reason why an engine cannot be tried: the type of an input is unknown."""
    for entry in node.reads:
        if not _known(entry.type):
            return f"the type of its input {entry.name!r} is not known (run the pass InferShape)"
    return None


def _known(value_type: Type | None) -> bool:
    if isinstance(value_type, (TensorType, SparseTensorType)):
        return True
    if isinstance(value_type, SequenceType):
        return _known(value_type.element)
    return value_type is not None and (not hasattr(value_type, "element") or _known(value_type.element))
