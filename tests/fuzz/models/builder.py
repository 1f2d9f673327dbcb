"""A model that grows node by node, each computed as soon as it is added, so that the next one can rest on real values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import OpSpec, spec_of
from partita.graph.types import Array, Dim, TensorType, dtype_name
from tests.fuzz.models.values import FLOATS, INTS, LARGEST, Values


class Skip(Exception):
    """The recipe has nothing to add here."""


@attrs.frozen
class Case:
    """A random model, and what it is to be run with."""

    graph: pt.Graph
    feeds: list[Any]
    """A value for each input."""


class Builder:
    """Nodes so far, and the values that they have."""

    def __init__(self, rng: random.Random, opset: int, specials: bool = False) -> None:
        self.rng = rng
        self.opset = opset
        self.random = Values(rng, specials)
        self.values: dict[NodeEntry, Any] = {}
        self.feeds: dict[Node, Any] = {}
        self.ops: list[Node] = []
        self._count = 0

    # -- what may be drawn -------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """True in that share of the cases."""
        return self.rng.random() < share

    def choice(self, *options: Any) -> Any:
        """One of them."""
        return self.rng.choice(options)

    def spec(self, op: str) -> OpSpec:
        """The op's schema at the model's opset."""
        result = spec_of(op, "", self.opset)
        if result is None or result.deprecated:
            raise Skip
        return result

    def dtype(self, op: str, which: int = 0, only: Sequence[str] = (*FLOATS, *INTS, "bool")) -> str:
        """An element type that the op takes: float32 mostly."""
        params = self.spec(op).inputs
        allowed = [name for name in only if name in params[min(which, len(params) - 1)].types]
        if not allowed:
            raise Skip
        return "float32" if "float32" in allowed and self.chance(0.55) else self.rng.choice(allowed)

    # -- values ------------------------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """A name that is not in use."""
        self._count += 1
        return f"{stem}{self._count}"

    def given(self, array: Array) -> NodeEntry:
        """The array as an input of the model or as a constant."""
        return self.constant(array) if self.chance(0.4) else self.input(array)

    def constant(self, array: Any) -> NodeEntry:
        """The array as a constant."""
        result = pt.constant(np.asarray(array), name=self.name("c"))
        self.values[result[0]] = result.value
        return result[0]

    def input(self, array: Array) -> NodeEntry:
        """The array as an input."""
        result = pt.variable(self.name("x"), dtype_name(array.dtype), array.shape)
        self.values[result[0]] = self.feeds[result] = array
        return result[0]

    def tensor(
        self,
        dtype: str,
        shape: tuple[int, ...] | None = None,
        rank: int | None = None,
        when: Callable[[Array], bool] = lambda array: True,
        rest: float = 0.7,
    ) -> NodeEntry:
        """A value of that kind: one that is there, or else a new one."""
        if self.chance(rest):
            fitting = [
                entry
                for entry, value in self.values.items()
                if isinstance(value, np.ndarray)
                and dtype_name(value.dtype) == dtype
                and (shape is None or value.shape == shape)
                and (rank is None or value.ndim == rank)
                and when(value)
            ]
            if fitting:
                return self.rng.choice(fitting[-6:])
        for _ in range(20):
            result = self.random.array(dtype, self.random.shape(rank, empty=True) if shape is None else shape)
            if when(result):
                return self.given(result)
        raise Skip

    def array(self, entry: NodeEntry) -> Array:
        """The value that it has."""
        result = self.values[entry]
        assert isinstance(result, np.ndarray)
        return result

    def shape(self, entry: NodeEntry) -> tuple[int, ...]:
        """The sizes of a value."""
        return self.array(entry).shape

    def numbers(self, *values: int, dtype: str = "int64") -> NodeEntry:
        """Whole numbers as a vector, a constant mostly."""
        array = np.array(values, dtype)
        return self.constant(array) if self.chance(0.8) else self.input(array)

    def number(self, value: Any, dtype: str = "int64") -> NodeEntry:
        """A scalar, a constant mostly."""
        array = np.array(value, dtype)
        return self.constant(array) if self.chance(0.8) else self.input(array)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        if not rank:
            raise Skip
        return self.rng.randrange(-rank if self.opset >= 11 else 0, rank)

    # -- nodes -------------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        *inputs: NodeEntry | None,
        n_outputs: int = 1,
        captures: Sequence[NodeEntry] = (),
        **given: Any,
    ) -> Node:
        """The op, whose attributes are those of the given ones that its schema has and that are not None."""
        self._require_types(op, inputs)
        known = self.spec(op).attributes
        chosen = {name: value for name, value in given.items() if value is not None and name in known}
        node = pt.op(
            op,
            *inputs,
            name=self.name(op.lower()),
            n_outputs=n_outputs,
            captures=captures,
            opset=self.opset,
            **chosen,
        )
        return self.record(node)

    def _require_types(self, op: str, inputs: Sequence[NodeEntry | None]) -> None:
        """Types that the schema does not have there are no valid model."""
        params = self.spec(op).inputs
        for i, entry in enumerate(inputs):
            value = None if entry is None else self.values[entry]
            if isinstance(value, np.ndarray) and dtype_name(value.dtype) not in params[min(i, len(params) - 1)].types:
                raise Skip

    def record(self, node: Node) -> Node:
        """Compute the node, and keep it."""
        read = [None if entry is None else self.values[entry] for entry in node.inputs]
        results = evaluate_node(node, read, {"": self.opset}, [self.values[entry] for entry in node.captures])
        if any(isinstance(item, np.ndarray) and item.size > LARGEST for item in results):
            raise Skip
        if node.op in ("Cast", "CastLike") and dtype_name(results[0].dtype) not in self.spec(node.op).outputs[0].types:
            raise Skip  # the target is an attribute or the type of an input, which may be newer than the op
        self.values.update(zip(node.outputs, results, strict=True))
        self.ops.append(node)
        return node

    def forget(self, count: int) -> None:
        """Take back all ops but the first ones."""
        for node in self.ops[count:]:
            for entry in node.outputs:
                del self.values[entry]
        del self.ops[count:]

    def case(self) -> Case:
        """The model: every value that nothing reads is an output."""
        read = {entry for node in self.ops for entry in node.reads}
        outputs = [
            entry
            for node in self.ops
            for entry in node.outputs
            if entry not in read and self.values[entry] is not None
        ]
        spare = [
            entry
            for node in self.ops
            for entry in node.outputs
            if entry in read and self.values[entry] is not None
        ]
        outputs += [entry for entry in spare if self.chance(0.1)]
        graph = typed(pt.Graph(outputs, name="fuzz", opsets={"": self.opset}))
        return Case(graph, [self.feeds[node] for node in graph.inputs])


def with_symbols(case: Case, rng: random.Random) -> Case:
    """The case with some sizes of its inputs left open."""
    from partita.graph.rewrite import Rewriter, rewrite

    def opened(node: Node) -> TensorType:
        kind = node.output_types[0]
        assert isinstance(kind, TensorType) and kind.shape is not None
        sizes: list[Dim] = [f"N{size}" if rng.random() < 0.4 else size for size in kind.shape]
        return TensorType(kind.dtype, sizes)

    def visit(node: Node, rewriter: Rewriter) -> None:
        if node.is_variable and isinstance(node.output_types[0], TensorType):
            rewriter.keep(node, node.evolve(output_types=(opened(node),)))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)))
        else:
            rewriter.keep(node)

    return Case(typed(rewrite(case.graph, visit)), case.feeds)


def typed(graph: pt.Graph) -> pt.Graph:
    """The graph with types; as it is where they cannot be inferred, which every setting then tells."""
    try:
        return pt.apply_pass(graph, "InferShape", strict=False)
    except pt.PartitaError:
        return graph
