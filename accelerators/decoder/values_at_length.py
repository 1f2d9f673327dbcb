"""The values of a decoder that follow from sizes alone, for one number of earlier tokens.

An exporter computes masks, positions and the sizes of reshapes from the sizes of inputs. With all sizes fixed, constants
are folded until nothing changes. Inputs that a session fills in (`input_roles.py`) count as known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.decoder.input_roles import Roles
from partita.graph.build import constant
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType, Type
from partita.passes import apply_pass

Array = np.ndarray[Any, Any]

ROUNDS = 4
"""Maximum number of rounds of type inference and constant folding."""

LARGEST = 64 << 20
"""Maximum size in bytes of a computed value: a mask for a long past."""


@attrs.frozen(slots=True, eq=False)
class Known:
    """The known values of a decoder at fixed sizes."""

    values: Mapping[NodeEntry, Array]
    """The known values, by the original graph's entries."""
    shapes: Mapping[NodeEntry, tuple[int, ...]]
    """The known shapes of other requested values."""
    past: int
    """Number of earlier tokens."""


def of_sizes(roles: Roles) -> dict[NodeEntry, bool]:
    """The values that follow from sizes, masks and positions, each with whether it follows from positions that are an input.

    Linear."""
    follow: dict[NodeEntry, bool] = {}
    constants: set[Node] = set()
    for node in roles.graph.nodes:
        if node.is_variable and node in roles.filled:
            follow[node[0]] = roles.filled[node] != "mask"
        elif node.op in ops("size") and not node.domain:
            follow[node[0]] = False
        elif node.is_constant:
            constants.add(node)
        elif node.is_op and not node.bodies:
            read = [entry for entry in node.inputs if entry is not None and entry.node not in constants]
            if not read:
                constants.add(node)
            elif all(entry in follow for entry in read):
                follow.update(dict.fromkeys(node.outputs, any(follow[entry] for entry in read)))
    return follow


def known_at(
    roles: Roles, follow: Mapping[NodeEntry, bool], looked_at: Sequence[NodeEntry], batch: int, rows: int, past: int,
    others: int | None = None,
) -> Known:
    """The values that follow from these sizes, and the shapes of the `looked_at` values. `others` replaces symbols that do not
    count sequences or tokens, such as the length of an encoder's input."""
    entries = [entry for entry in follow if entry.node.is_op]
    unknown = {} if others is None else dict.fromkeys(_symbols(roles.graph), others)
    graph = _sized(roles, [*entries, *looked_at], batch, rows, past, unknown)
    count = len(roles.graph.outputs)
    values: dict[NodeEntry, Array] = {}
    for _ in range(ROUNDS):
        graph = apply_pass(graph, "InferShape", verify=False, strict=False)
        graph = apply_pass(graph, "FoldConstants", verify=False, limit=LARGEST, growth=LARGEST // 16)
        before = len(values)
        values = {e: out.node.value for e, out in zip(entries, graph.outputs[count:]) if out.node.value is not None}
        if len(values) in (before, len(entries)):
            break
    filled = {node[0]: roles.value(node, batch, rows, past) for node in roles.filled}
    types = [out.type for out in apply_pass(graph, "InferShape", verify=False, strict=False).outputs[count + len(entries) :]]
    shapes = {entry: shape for entry, kind in zip(looked_at, types, strict=True) if (shape := _numbers(kind)) is not None}
    return Known({**values, **filled}, shapes, past)


def known_between(roles: Roles, known: Sequence[Known], batch: int, rows: int, past: int) -> Known | None:
    """The same values for another number of earlier tokens: computed op by op, from sizes interpolated linearly between known
    ones; None if they are not linear. Linear time, and much faster than inference of all types."""
    graph, wanted = roles.graph, [entry for entry in known[0].values if entry.node.is_op]
    needed: set[Node] = set()
    waiting = [entry.node for entry in wanted]
    while waiting:
        node = waiting.pop()
        if node.is_op and node not in needed:
            needed.add(node)
            waiting += [] if node.op in ops("size") else [entry.node for entry in node.inputs if entry is not None]
    values = {node[0]: roles.value(node, batch, rows, past) for node in roles.filled}
    for node in graph.nodes:
        if node.value is not None:
            values[node[0]] = node.value
        elif node in needed:
            try:
                line = _on_line(roles, known, node[0], past) if node.op in ops("size") else None
                read = [None if entry is None else values[entry] for entry in node.inputs] if line is None else []
                results = [line] if line is not None else evaluate_node(node, read, graph.opsets)
            except (GraphError, KeyError):
                return None
            values.update(zip(node.outputs, results, strict=True))
    return Known({entry: values[entry] for entry in known[0].values}, {}, past)


def _on_line(roles: Roles, known: Sequence[Known], entry: NodeEntry, past: int) -> Array | None:
    """The value of a Shape or a Size for this many earlier tokens, by linear interpolation between known numbers."""
    arrays = [one.values.get(entry) for one in known]
    for most in (None, *sorted(roles.windows)):
        line = straight_line(arrays, [one.past for one in known], most)
        if line is not None:
            return line[0] + line[1] * (past if most is None else min(past, most))
    raise KeyError(entry)


def straight_line(arrays: Sequence[Array | None], pasts: Sequence[int], most: int | None) -> tuple[Array, Array] | None:
    """The base and slope of integers that are linear in the number of earlier tokens, or in that number limited to `most`; None
    if they are not."""
    first, second = arrays[:2]
    counted = [past if most is None else min(past, most) for past in pasts]
    if first is None or second is None or counted[0] == counted[1] or first.dtype.kind not in "iu":
        return None
    slope = (second.astype(np.int64) - first) // (counted[1] - counted[0])
    base = first - slope * counted[0]
    fits = [array is not None and np.array_equal(base + slope * past, array) for past, array in zip(counted, arrays, strict=True)]
    return (np.asarray(base), np.asarray(slope)) if all(fits) else None


def _numbers(kind: Type | None) -> tuple[int, ...] | None:
    """The sizes of a tensor; None unless all are static."""
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    return tuple([size for size in kind.shape or () if isinstance(size, int)])


def _symbols(graph: Graph) -> set[str]:
    """The symbols of the inputs."""
    types = [node.output_types[0] for node in graph.inputs]
    return {dim for kind in types if isinstance(kind, TensorType) for dim in kind.shape or () if isinstance(dim, str)}


def _sized(
    roles: Roles, entries: list[NodeEntry], batch: int, rows: int, past: int, unknown: Mapping[str, int]
) -> Graph:
    """The graph with these sizes, with the session's inputs filled in, and with these values as further outputs."""
    sizes, rewriter = {**unknown, **roles.sizes(batch, rows, past)}, Rewriter(roles.graph)
    for node in roles.graph.nodes:
        if node in roles.filled:
            rewriter.replace(node[0], constant(roles.value(node, batch, rows, past), node.name)[0])
        elif node.is_variable:
            rewriter.keep(node, sized_input(node, sizes))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_types)))
        else:
            rewriter.keep(node)
    kept = [node for node in roles.graph.inputs if node not in roles.filled]
    return rewriter.finish(
        outputs=[rewriter.value(entry) for entry in (*roles.graph.outputs, *entries)],
        inputs=[rewriter.value(node[0]).node for node in kept],
        output_names=None,
        nodes=(),
        attrs={},
    )


def sized_input(node: Node, sizes: Mapping[str, int]) -> Node:
    """The input with its symbols replaced by sizes."""
    kind = node.output_types[0]
    if not isinstance(kind, TensorType) or kind.shape is None:
        return node
    shape = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in kind.shape]
    return node.evolve(output_types=(TensorType(kind.dtype, shape),))
