"""Opaque ops, which hide nodes from ONNX's own tools.

ONNX's converter drops model-local functions, and its inference returns nothing about their insides. As an opaque op a call
is one node of which only inputs and outputs are visible."""

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
"""The op of a hidden node; its attribute `key` numbers them."""

OPAQUE_DOMAIN = "partita.opaque"
"""Its domain."""


def hide(g: Graph, is_hidden: Callable[[Node], bool], hidden: list[Node]) -> Graph:
    """The graph with each such node, including in bodies of other nodes, as an opaque op; they are appended to `hidden`.

    The captures of a hidden node become further inputs. If nothing is hidden, the graph itself is
    returned.
    """
    return _Hiding(g, is_hidden, hidden).inside(g) if any(map(is_hidden, g.nodes)) or has_bodies(g) else g


class _Hiding:
    """Replaces nodes by opaque ops. Its methods call each other; closures that did so would form a reference cycle, which keeps
    the nodes and their weights alive until garbage collection."""

    def __init__(self, g: Graph, is_hidden: Callable[[Node], bool], hidden: list[Node]) -> None:
        self._is_hidden = is_hidden
        self._hidden = hidden
        self._opsets = {**g.opsets, OPAQUE_DOMAIN: 1}

    def inside(self, graph: Graph) -> Graph:
        """The graph, or a body, with opaque nodes."""
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
    """Inside the block ONNX's inference calls `answer` for opaque nodes; blocks nest."""
    _declare()
    _asked.stack.append((answer, TypeReader()))
    try:
        yield
    finally:
        _asked.stack.pop()


def answer_hidden(key: int, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The output types of a hidden node, from the innermost block of `answering`."""
    return _asked.stack[-1][0](key, inputs) if _asked.stack else ()


class _Asked(threading.local):
    """The stack of `answering` blocks, per thread."""

    def __init__(self) -> None:
        self.stack: list[tuple[Answer, TypeReader]] = []


_asked = _Asked()


@lru_cache(maxsize=1)
def _declare() -> None:
    """Registers the opaque op with ONNX, once.

    It has to be deregistered before the interpreter ends: up to 1.19 ONNX frees the op's Python function when the process exits,
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
    """Infers an opaque node's output types for ONNX; outside of a block, as in its version converter, they are unknown."""
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
