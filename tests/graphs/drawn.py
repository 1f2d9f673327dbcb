"""Random graphs with devices, for hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from partita.graph import Graph, Node, NodeEntry, constant, op, variable
from tests.graphs.topologies import SHAPE


@st.composite
def graphs(draw: st.DrawFn, most: int = 14, devices: Sequence[str | None] = ("A", "B", None)) -> Graph:
    """Random graphs with affinities: nodes of several outputs, shared constants, an If that captures, outputs listed twice."""
    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    k = constant(np.full(SHAPE, 0.5, np.float32), "k")
    values: list[NodeEntry] = [x[0], y[0]]
    used: set[NodeEntry] = set()
    nodes = []
    for i in range(draw(st.integers(1, most))):
        pick = [values[draw(st.integers(max(0, len(values) - 6), len(values) - 1))] for _ in range(2)]
        kind = draw(st.sampled_from(["Relu", "Neg", "Add", "Mul", "Sub", "AddK", "NegK", "Split", "If"]))
        node = _node(kind, f"n{i}", pick, k)
        node.affinity = draw(st.sampled_from(list(devices)))
        if nodes and draw(st.integers(0, 9)) == 0:
            node = node.evolve(after=(draw(st.sampled_from(nodes)),))
        nodes.append(node)
        used.update(node.reads)
        values += node.outputs if kind != "Split" else ()
        if kind == "Split":
            joined = op("Concat", node[0], node[1], name=f"j{i}", axis=1)
            joined.affinity = draw(st.sampled_from(list(devices)))
            nodes.append(joined)
            values.append(joined[0])
    outputs = [e for node in nodes if node.op != "Split" for e in node.outputs if e not in used]
    outputs += draw(st.lists(st.sampled_from(values), max_size=2))
    return Graph(outputs, [x, y], nodes=nodes)


def _node(kind: str, name: str, read: list[NodeEntry], k: Node) -> Node:
    if kind in ("Relu", "Neg"):
        return op(kind, read[0], name=name)
    if kind == "AddK":
        return op("Add", read[0], k, name=name)
    if kind == "NegK":
        return op("Neg", k, name=name)
    if kind == "Split":
        return op("Split", read[0], constant(np.array([1, 2]), f"{name}_sizes"), name=name, axis=1, n_outputs=2)
    if kind == "If":
        a, b = variable("a", "float32", SHAPE), variable("b", "float32", SHAPE)
        then = Graph([op("Add", a, b, name=f"{name}_then")], [a, b])
        other = Graph([op("Sub", a, b, name=f"{name}_else")], [a, b])
        flag = constant(np.array(len(name) % 2 == 0), f"{name}_flag")
        return op("If", flag, name=name, captures=read, then_branch=then, else_branch=other)
    return op(kind, *read, name=name)
