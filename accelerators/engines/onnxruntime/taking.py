"""The nodes that providers take, as recorded by onnxruntime, and facts about those that they do not take."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.engines.onnxruntime.plugins import assigned
from partita.graph.node import Node
from partita.graph.ops.schemas import op_names
from partita.graph.types import TensorType

SILENT = "it does not say why"
"""The end of a text about a provider, whose own reason is unknown."""

ALONE = f"alone it does not take it either; {SILENT}"
"""The answer of a provider that does not take a model of one node."""

LARGE = 1 << 26
"""Constants of up to this many bytes are zeros in a model of one node: many providers take no weights that are inputs."""


class Asking(threading.local):
    """A thread's question to Partita's own providers, which give their reasons."""

    reasons: dict[str, dict[str, str]] | None = None
    """The reason for each node that a provider does not take, by the names of provider and node; None outside of `asked`."""


asking = Asking()


@contextmanager
def asked() -> Iterator[Mapping[str, Mapping[str, str]]]:
    """A context in which Partita's providers record their reasons; new sessions of this thread compile nothing and cannot run."""
    asking.reasons = reasons = dict[str, dict[str, str]]()
    try:
        yield reasons
    finally:
        asking.reasons = None


@attrs.frozen(slots=True)
class TakenNodes:
    """The answer of a provider about a graph."""

    names: frozenset[str]
    """The nodes that it takes."""
    error: str | None
    """The reason why onnxruntime cannot make a session of the graph."""

    def only(self) -> bool | str:
        """The answer about the only node of a graph."""
        return True if self.names else self.error or ALONE


def providers_of(session: Any, model: EngineModel) -> dict[Node, str]:
    """The provider of each node of the model. A node inside a body may have the name of one outside: if their providers differ,
    the node is left out."""
    owners: dict[Node, set[str]] = {}
    for provider, nodes in assigned(session):
        for one in nodes:
            node = model.node_of(one.name)
            if node is not None:
                owners.setdefault(node, set()).add(provider)
    return {node: min(names) for node, names in owners.items() if len(names) == 1}


def why_not(node: Node, taken: Sequence[Node], provider: str) -> str:
    """The differences between a node that a provider does not take and those that it takes in the same session. They are facts,
    not its reason, which it does not give."""
    if node.domain and node.op not in op_names(node.domain):
        return f"{node.domain}.{node.op} is an op of neither ONNX nor onnxruntime, and {provider} takes none here"
    if not taken:
        return f"{provider} takes no node here"
    theirs = [other for other in taken if (other.op, other.domain) == (node.op, node.domain)]
    if not theirs:
        return f"{provider} takes no {node.op} here"
    seen: dict[str, set[object]] = {}
    for other in theirs:
        for what, value in _traits(other):
            seen.setdefault(what, set()).add(value)
    unlike = [f"{what} is {value}" for what, value in _traits(node) if value not in seen.get(what, ())]
    others = f"{provider} takes {len(theirs)} other {node.op} here"
    return f"{others}, and none whose {', '.join(unlike)}" if unlike else f"{others}, of the same types and attributes"


def _traits(node: Node) -> Iterator[tuple[str, object]]:
    """The properties of a node that its support may depend on, without sizes."""
    for number, entry in enumerate(node.inputs):
        kind = None if entry is None else entry.type
        if isinstance(kind, TensorType):
            yield f"type of input {number}", kind.dtype
            yield f"rank of input {number}", "unknown" if kind.rank is None else kind.rank
            yield f"shape of input {number}", "static" if kind.is_static else "dynamic"
        if entry is not None:
            yield f"input {number}", "a constant" if entry.node.is_constant else "computed"
    for name, value in sorted(node.attrs.items()):
        yield f"attribute {name}", _shown(value)


def _shown(value: object) -> str:
    return f"{value!r:.60}"

