"""Integer vectors that hold static sizes, computed by the rules node by node: what FoldConstants makes constants of."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.symbols import Sizes, symbol
from partita.graph.types import TensorType, dtype_name
from partita.passes.constants import as_constant
from partita.passes.infer.reading import FAILURES, Context, Reading, elements_of
from partita.passes.infer.rules import RULES, Unknown
from partita.passes.infer.values import VALUES, Elements, within


class ShapeArithmetic(Reading):
    """The elements of integer vectors as far as they follow from the sizes in types. Nodes are passed in order."""

    def __init__(self) -> None:
        super().__init__(Graph([]), (), exact=True)
        self._dtypes: dict[NodeEntry, str] = {}

    def sizes(self, entry: NodeEntry | None) -> Sizes | None:
        """The value's shape by its type, with a symbol for each dynamic size: names in a file may be wrong."""
        known = self.elements(entry)
        if known is not None or entry is None:
            return None if known is None else known.shape
        sizes = entry.type.shape if isinstance(entry.type, TensorType) else None
        named = [size if isinstance(size, int) else symbol(f"{entry.name}[{d}]") for d, size in enumerate(sizes or ())]
        return None if sizes is None else tuple(named)

    def elements(self, entry: NodeEntry | None) -> Elements | None:
        """The value's elements as sizes; None if all are unknown."""
        value = as_constant(entry)
        return elements_of(value) if value is not None else None if entry is None else self._elements.get(entry)

    def array(self, entry: NodeEntry | None) -> np.ndarray[Any, Any] | None:
        """The array of a constant."""
        return as_constant(entry)

    def learn(self, node: Node, version: int) -> list[np.ndarray[Any, Any]] | None:
        """The results of the next node, if all of their elements are known."""
        dtype = self._dtype(node) if node.op in VALUES and not node.domain else None
        if dtype not in ("int64", "int32", "bool"):
            return None
        if node.op not in ops("size") and all(self.elements(entry) is None for entry in node.inputs):
            return None
        context = Context(self, node, version)
        try:
            shape = RULES[str(node.op)](context)[0]
            vectors = VALUES[str(node.op)](context, shape) if shape is not None and len(shape) < 3 else ()
        except (PartitaError, Unknown, *FAILURES):
            return None
        arrays = []
        for entry, vector in zip(node.outputs, vectors, strict=False):
            elements = self._elements[entry] = within(vector, dtype)
            self._dtypes[entry] = dtype
            if all(isinstance(item, int) for item in elements.reshape(-1)):
                arrays.append(elements.astype(dtype))
        return arrays if arrays and len(arrays) == len(node.outputs) else None

    def _dtype(self, node: Node) -> str | None:
        """The element type of the first result, which may have no type yet."""
        kind = node.output_types[0]
        if isinstance(kind, TensorType):
            return kind.dtype
        if node.op in ops("size"):
            return "int64"
        first = node.inputs[0] if node.inputs and node.op in ops("copying") else None
        value = as_constant(first)
        return dtype_name(value.dtype) if value is not None else None if first is None else self._dtypes.get(first)
