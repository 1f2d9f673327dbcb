"""Real devices with a planted fault: what they compile computes one op wrongly, or a pair of ops wherever they stand together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType

KINDS = ("off", "nan", "axis", "shape", "fused")
"""Wrong by one in a hundred; NaN; turned round along an axis; wrong by one in a hundred for a single shape, or only together with
the op before it."""

FLOATS = ("float32", "float16", "float64")


@attrs.frozen
class Plant:
    """A fault."""

    kind: str
    """One of KINDS."""
    node: str
    """The node whose output is wrong."""
    producer: str = ""
    """The node that has to be compiled with it, where the kind is "fused"."""
    shape: tuple[int, ...] = ()
    """The only sizes for which it is wrong, where the kind is "shape"."""

    @property
    def nodes(self) -> set[str]:
        """The nodes that a diagnosis has to name."""
        return {self.node, self.producer} - {""}


def planted_in(graph: pt.Graph, plant: Plant) -> pt.Graph:
    """The graph as the faulty device computes it."""
    if not plant.nodes <= {node.name for node in graph.nodes if node.is_op}:
        return graph
    kind = graph[plant.node][0].type
    assert isinstance(kind, TensorType)
    if plant.shape and kind.shape != plant.shape:
        return graph

    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        kept = rewriter.keep(node)
        if node.name == plant.node:
            wrong = spoilt(kept, kind, plant.kind)
            rewriter.keep(wrong)
            rewriter.replace(node[0], wrong[0])

    return pt.apply_pass(rewrite(graph, visit), "InferShape", strict=False)


def spoilt(node: pt.Node, kind: TensorType, how: str) -> pt.Node:
    """An op that makes the wrong value of the right one."""
    name = f"{node.name}/planted"
    dtype = np.dtype(kind.dtype)
    if how == "axis":
        assert kind.shape is not None
        axis = longest(kind)
        order = pt.constant(np.arange(kind.shape[axis])[::-1].astype(np.int64).copy(), name=f"{name}/order")
        return pt.op("Gather", node, order, name=name, axis=axis)
    if how == "nan":
        return pt.op("Add", node, pt.constant(np.array(np.nan, dtype), name=f"{name}/nan"), name=name)
    return pt.op("Mul", node, pt.constant(np.array(1.01, dtype), name=f"{name}/factor"), name=name)


def longest(kind: TensorType) -> int:
    """The axis with the largest size."""
    return int(np.argmax(kind.shape))


@contextmanager
def faulty(device: str, plant: Plant) -> Iterator[str]:
    """The name under which the device with the fault is registered."""
    whole: Any = type(pt.accelerator(device))

    def compiled(self: Any, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        subgraph: pt.CompiledSubgraph = whole.compile(self, planted_in(graph, plant), config)
        return subgraph

    members = {"name": f"faulty_{device}", "compile": compiled, "may_cache": lambda self, graph: False}
    kind = type(f"Faulty_{device}", (whole,), members)
    pt.register_accelerator(kind)
    try:
        yield kind.name
    finally:
        pt.unregister_accelerator(kind.name)


def sites(graph: pt.Graph) -> list[pt.Node]:
    """The ops of a typed graph where a fault can be planted: their first output alone, of floats, at least two numbers long."""
    return [node for node in graph.nodes if node.is_op and not node.bodies and fits(node.output_types)]


def fits(types: Sequence[Any]) -> bool:
    kind = types[0]
    return (
        isinstance(kind, TensorType) and kind.dtype in FLOATS and kind.is_static and bool(kind.shape)
        and max(kind.shape) > 1  # type: ignore[type-var,arg-type]
    )


def plant_at(node: pt.Node, kind: str, graph: pt.Graph) -> Plant | None:
    """The fault of that kind at a node; None if there is none there."""
    if kind == "shape":
        return Plant(kind, node.name, shape=tuple(node.output_types[0].shape))  # type: ignore[union-attr,arg-type]
    if kind != "fused":
        return Plant(kind, node.name)
    alone = [entry.node for entry in node.inputs if entry and entry.node.is_op and len(graph.consumers(entry.node)) == 1]
    return Plant(kind, node.name, alone[0].name) if alone else None
