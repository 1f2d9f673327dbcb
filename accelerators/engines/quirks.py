"""Ops that an engine accepts and computes otherwise than ONNX defines, or not at all: rows with conditions and reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, Dim, TensorType

NEWEST = 1 << 31
"""Above every opset."""


class Case:
    """A node of a graph, as the conditions of quirks see it."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.op, self.opset = node, str(node.op), graph.opset

    def entry(self, slot: int) -> NodeEntry | None:
        """The value that the node reads there."""
        return self.node.inputs[slot] if slot < len(self.node.inputs) else None

    def has(self, slot: int) -> bool:
        """True if the input is given."""
        return self.entry(slot) is not None

    def tensor(self, slot: int = 0) -> TensorType | None:
        """The type of an input that is a tensor."""
        entry = self.entry(slot)
        return entry.type if entry is not None and isinstance(entry.type, TensorType) else None

    def dtype(self, slot: int = 0) -> str:
        """The element type of an input; empty if it is unknown."""
        known = self.tensor(slot)
        return "" if known is None else known.dtype

    def shape(self, slot: int = 0) -> tuple[Dim, ...] | None:
        """The shape of an input; None if its rank is unknown."""
        known = self.tensor(slot)
        return None if known is None else known.shape

    def is_static(self, slot: int = 0) -> bool:
        """True if all sizes of an input are integers."""
        known = self.tensor(slot)
        return known is not None and known.is_static

    def constant(self, slot: int) -> Array | None:
        """The value of an input that is constant."""
        entry = self.entry(slot)
        return None if entry is None else entry.node.value

    def result(self) -> TensorType | None:
        """The type of the first result, if it is a tensor."""
        known = self.node.output_types[0]
        return known if isinstance(known, TensorType) else None

    def gives(self, number: int) -> bool:
        """True if somebody may read this result."""
        return number < len(self.node.output_names) and bool(self.node.output_names[number])

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, with bytes decoded."""
        value = self.node.attrs.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else value


Condition = Callable[[Case], object]
"""True, or the words for the reason's further braces, if the quirk concerns the node."""


@attrs.frozen(slots=True)
class Quirk:
    """One difference."""

    ops: str
    """The ops; those outside of ONNX's own domain with it: "com.microsoft.Attention"."""
    why: str
    """The reason why another device gets the node. Braces stand for the op, the opset, the first input's element type (dtype),
    an attribute, or what the condition names."""
    when: Condition = lambda case: True
    """The condition."""
    since: int = 1
    """The first opset that it concerns."""
    until: int = NEWEST
    """The first opset that it does not concern any more."""

    def reason(self, case: Case) -> str | None:
        """The reason why the node should run elsewhere, or None."""
        found = self.since <= case.opset < self.until and self.when(case)
        if not found:
            return None
        words = {**case.node.attrs, "op": case.op, "opset": case.opset, "dtype": case.dtype()}
        return self.why.format(**(words | found if isinstance(found, dict) else words))


class Quirks:
    """An engine's rows. The first one that concerns a node is its reason."""

    def __init__(self, rows: Iterable[Quirk]) -> None:
        self.rows = tuple(rows)
        self.by_op: dict[str, list[Quirk]] = {}
        """The rows of each op."""
        for row in self.rows:
            for op in row.ops.split():
                self.by_op.setdefault(op, []).append(row)

    def reason(self, node: Node, graph: Graph) -> str | None:
        """The reason why the node should run elsewhere, or None."""
        rows = self.by_op.get(f"{node.domain}.{node.op}" if node.domain else str(node.op))
        if rows is None:
            return None
        case = Case(node, graph)
        return next((why for row in rows if (why := row.reason(case)) is not None), None)
