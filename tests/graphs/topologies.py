"""Small graphs of a known shape, most of them in text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from partita.graph import Graph, Node, op, variable
from partita.graph.readers.text import parse

SHAPE = (2, 3)
"""The shape of all values in these graphs, where nothing else is said."""


def one_op(op_type: str, *types: tuple[str, Any], name: str = "n", **attrs: Any) -> Graph:
    """A graph of one op, by default called n, that reads variables x0, x1, … of these types."""
    inputs = [variable(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(types)]
    return Graph([op(op_type, *inputs, name=name, **attrs)])


def chain(*names: str) -> Graph:
    """Unary ops in a row, named by their op and number."""
    value: Node = variable("x", "float32", SHAPE)
    for i, name in enumerate(names):
        value = op(name, value, name=f"{name.lower()}{i}")
    return Graph([value])


def alternating() -> Graph:
    """Four ops in a row, of two kinds in turn, for devices that each run one of the kinds."""
    return parse("""
        graph chain(x: float32[4]) -> (d) {
          a = Relu(x)
          b = Softmax(a)
          c = Exp(b)
          d = Softmax(c)
        }
    """)


def with_tanh() -> Graph:
    """Four ops in a row, of which a device with Relu and Exp lacks one."""
    return parse("""
        graph chain(x: float32[4]) -> (d) {
          a = Relu(x)
          b = Exp(a)
          c = Tanh(b)
          d = Relu(c)
        }
    """)


def diamond() -> Graph:
    """e feeds c and s, which a adds."""
    return parse("""
        graph diamond(x: float32[2, 3]) -> (a) {
          e = Exp(x)
          c = Cos(e)
          s = Sin(e)
          a = Add(c, s)
        }
    """)


def from_edges(edges: Mapping[str, Sequence[str]], device: Mapping[str, str] | None = None, outputs: Iterable[str] = ()) -> Graph:
    """A graph by names: "a": [] reads x; one producer makes a Relu, two an Add, more a Sum."""
    nodes: dict[str, Node] = {}
    x = variable("x", "float32", SHAPE)
    for name, producers in edges.items():
        read = [nodes[p] for p in producers] or [x]
        kind = {1: "Relu", 2: "Add"}.get(len(read), "Sum")
        nodes[name] = op(kind, *read, name=name)
        nodes[name].affinity = (device or {}).get(name)
    used = {p for producers in edges.values() for p in producers}
    return Graph([nodes[name] for name in outputs or [n for n in edges if n not in used]], [x])
