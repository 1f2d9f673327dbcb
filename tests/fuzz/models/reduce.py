"""A failing model, cut down to the few nodes that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

import partita as pt
from partita.graph.inline import inline_calls
from partita.graph.node import Node, NodeEntry
from partita.graph.types import dtype_name
from tests.fuzz.models.builder import Case
from tests.fuzz.models.stability import run


def reduced(case: Case, fails: Callable[[Set[str]], bool]) -> frozenset[str]:
    """The names of the ops without which the model does not fail: one where one is enough, else none can be left out."""
    names = [node.name for node in case.graph.nodes if node.is_op]
    if len(names) > 1:
        for name in names:
            if fails({name}):
                return frozenset({name})
    kept = set(names)
    while True:
        smaller = next(
            (kept - {name} for name in sorted(kept) if len(kept) > 1 and fails(kept - {name})), None
        )
        if smaller is None:
            return frozenset(kept)
        kept = smaller


def cut(case: Case, names: Set[str]) -> Case | None:
    """The ops of these names alone; what others made for them comes as inputs. None where that is not a tensor."""
    values = run(case.graph, case.feeds, None)
    kept = [node for node in case.graph.nodes if node.is_op and node.name in names]
    listed: dict[NodeEntry, NodeEntry] = {}
    feeds: dict[Node, Any] = {}
    for node in kept:
        for entry in node.reads:
            if entry not in listed:
                outer = _outer(entry, values[entry])
                if outer is None:
                    return None
                listed[entry] = outer[0]
                if outer.is_variable:
                    feeds[outer] = values[entry]
        copy = node.evolve(
            inputs=tuple(None if entry is None else listed[entry] for entry in node.inputs),
            captures=tuple(listed[entry] for entry in node.captures),
        )
        listed.update(zip(node.outputs, copy.outputs, strict=True))
    read = {entry for node in kept for entry in node.reads}
    wanted = [
        entry for node in kept for entry in node.outputs if entry not in read or entry in case.graph.outputs
    ]
    outputs = [listed[entry] for entry in wanted if isinstance(values[entry], np.ndarray)]
    if not outputs:
        return None
    graph = pt.Graph(outputs, name="fuzz", opsets=case.graph.opsets)
    return Case(graph, [feeds[node] for node in graph.inputs])


def flat(case: Case) -> Case:
    """The model with what it calls in the place of the calls, so that a function can be cut down too."""
    return Case(inline_calls(case.graph), case.feeds)


def _outer(entry: NodeEntry, value: Any) -> Node | None:
    """What stands for a value that is not computed here."""
    if not entry.node.is_op:
        return entry.node
    if not isinstance(value, np.ndarray):
        return None
    return pt.variable(f"{entry.name}_given", dtype_name(value.dtype), value.shape)


def shown(case: Case, limit: int = 12) -> str:
    """The model as text, with the values that it is run with."""
    lines = [str(case.graph)]
    for node, value in zip(case.graph.inputs, case.feeds, strict=True):
        lines.append(f"{node.name} = {_numbers(value, limit)}")
    for node in case.graph.nodes:
        if node.value is not None:
            lines.append(f"{node.name} = {_numbers(node.value, limit)}")
    return "\n".join(lines)


def _numbers(value: Any, limit: int) -> str:
    flat: Sequence[Any] = np.asarray(value).reshape(-1).tolist()
    more = ", …" if len(flat) > limit else ""
    return f"{dtype_name(np.asarray(value).dtype)}{list(np.shape(value))} [{', '.join(map(str, flat[:limit]))}{more}]"
