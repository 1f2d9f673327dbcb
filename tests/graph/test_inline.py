"""Bodies in the place of calls: names stay unique."""

from __future__ import annotations

import numpy as np

import partita as pt
from partita.graph.inline import inline_calls


def test_an_op_and_a_constant_of_one_name() -> None:
    """The constant of one body and the op of another bear the same name, in either order."""
    x = pt.variable("x", "float32", (2,))

    def call(name: str, inner: pt.Node) -> pt.Node:
        body = pt.Graph([pt.op("Add", inner, pt.constant(np.float32(1), "one") if inner.name != "one" else inner)], name=name)
        return pt.call(body, name=name).evolve(inputs=(x[0],))

    def read(name: str) -> pt.Node:
        return pt.op("Neg", pt.variable("a", "float32", (2,)), name=name)

    for names in (("first", "one"), ("one", "first")):
        calls = [call(f"call{i}", read(name)) for i, name in enumerate(names)]
        flat = inline_calls(pt.Graph([node[0] for node in calls], inputs=[x]))
        listed = [node.name for node in flat.nodes]
        assert len(set(listed)) == len(listed)
        assert not any(node.is_call for node in flat.nodes)
