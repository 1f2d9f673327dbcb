"""Nodes that ONNX's own tools know nothing of, hidden behind an op that they pass by.

ONNX's converter drops model-local functions, and its inference tells nothing of what is inside them. Behind an opaque op a call
is one node of which only its inputs and outputs show."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.protos import TypeReader, write_type
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import Type
from partita.passes.bodies import has_bodies

Answer = Callable[[int, Sequence[Type | None]], Sequence[Type | None]]
"""(key of a hidden node, types of its inputs) -> types of its outputs."""

OPAQUE = "Opaque"
"""The op that stands for a hidden node; its attribute `key` numbers them."""

OPAQUE_DOMAIN = "partita.opaque"
"""Its domain."""


def hide(g: Graph, is_hidden: Callable[[Node], bool], hidden: list[Node]) -> Graph:
    """The graph with each such node, also in the bodies of those that stay, as an opaque op; they are appended to `hidden`.

    The values that a hidden node captures become further inputs. Where nothing is to be hidden, the graph itself is
    returned.
    """
    return _Hiding(g, is_hidden, hidden).inside(g) if any(map(is_hidden, g.nodes)) or has_bodies(g) else g


class _Hiding:
    """How graphs get opaque nodes. Its methods call each other; functions that did so would hold each other, and the nodes with
    their weights, until the collector comes by."""

    def __init__(self, g: Graph, is_hidden: Callable[[Node], bool], hidden: list[Node]) -> None:
        self._is_hidden = is_hidden
        self._hidden = hidden
        self._opsets = {**g.opsets, OPAQUE_DOMAIN: 1}

    def inside(self, graph: Graph) -> Graph:
        """The graph, or a body, with its opaque nodes."""
        rewritten = rewrite(graph, self._visit)
        return graph if rewritten is graph else rewritten.evolve(opsets=self._opsets)

    def _visit(self, node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.is_op and self._is_hidden(node):
            rebuilt = rebuilt.evolve(
                op=OPAQUE,
                domain=OPAQUE_DOMAIN,
                inputs=rebuilt.inputs + rebuilt.captures,
                captures=(),
                subgraph=None,
                attrs={"key": len(self._hidden)},
            )
            self._hidden.append(node)
        elif node.bodies:
            rebuilt = map_bodies(rebuilt, self.inside)
        rewriter.keep(node, rebuilt)


@contextmanager
def answering(answer: Answer) -> Iterator[None]:
    """Inside the block ONNX's inference asks `answer` about opaque nodes; blocks nest."""
    _declare()
    _asked.stack.append((answer, TypeReader()))
    try:
        yield
    finally:
        _asked.stack.pop()


def answer_hidden(key: int, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The output types that the innermost block of `answering` gives for a hidden node."""
    return _asked.stack[-1][0](key, inputs) if _asked.stack else ()


class _Asked(threading.local):
    """Who is asked, for each thread: the last of the stack."""

    def __init__(self) -> None:
        self.stack: list[tuple[Answer, TypeReader]] = []


_asked = _Asked()


@lru_cache(maxsize=1)
def _declare() -> None:
    """Tell ONNX of the opaque op, once.

    ONNX has to forget it before the interpreter ends: up to 1.19 it takes the op's Python function apart when the process exits,
    waits for the interpreter's lock, and hangs."""
    from onnx.defs import OpSchema, deregister_schema, register_schema

    formal, many = OpSchema.FormalParameter, OpSchema.FormalParameterOption.Variadic
    schema = OpSchema(
        OPAQUE,
        OPAQUE_DOMAIN,
        1,
        inputs=[formal("x", "T", param_option=many, is_homogeneous=False, min_arity=0)],
        outputs=[formal("y", "T", param_option=many, is_homogeneous=False, min_arity=0)],
        type_constraints=[("T", ["tensor(float)"], "any type: nobody checks it")],
        attributes=[
            OpSchema.Attribute("key", OpSchema.AttrType.INT, "the number of the hidden node", required=True)
        ],
    )
    schema.set_type_and_shape_inference_function(_infer)
    register_schema(schema)
    atexit.register(deregister_schema, OPAQUE, 1, OPAQUE_DOMAIN)


def _infer(context: Any) -> None:
    """ONNX asks for an opaque node's output types; outside of a block, as in its version converter, nothing is known."""
    import onnx

    if not _asked.stack:
        return
    answer, reader = _asked.stack[-1]
    given: list[Type | None] = []
    for i in range(context.get_num_inputs()):
        proto = context.get_input_type(i) if context.has_input(i) else None
        given.append(None if proto is None else reader.read(proto, f"input {i}"))
    for i, value_type in enumerate(answer(context.get_attribute("key").i, given)):
        if value_type is not None and context.has_output(i):
            proto = onnx.TypeProto()
            write_type(proto, value_type)
            context.set_output_type(i, proto)
