"""Output sizes that a model declares by a symbol of its inputs: claims that are checked on every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import ClaimError
from partita.graph.errors import DeclaredMismatch
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.types import TensorType


@attrs.frozen(slots=True)
class _Claim:
    """An output size that has to equal an input size."""

    output: int
    axis: int
    symbol: str
    input: int
    input_axis: int


class SizeClaims:
    """The claims of a model; most models have none, and then their calls are not checked."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        given: dict[str, tuple[int, int]] = {}
        for i, node in enumerate(graph.inputs):
            for axis, symbol in _symbols(node.output_types[0]):
                given.setdefault(symbol, (i, axis))
        self._claims = [
            _Claim(i, axis, symbol, *given[symbol])
            for i, entry in enumerate(graph.outputs)
            for axis, symbol in _symbols(entry.type)
            if symbol in given
        ]
        self._has_loops = any(node.op in ("Loop", "Scan") for inner in graphs_in(graph) for node in inner.nodes)
        """True if a loop with zero iterations may produce a value: an engine then sets every dynamic size to 0."""

    def __bool__(self) -> bool:
        return bool(self._claims)

    def sizes(self, arrays: Sequence[Any]) -> list[int]:
        """The size of each claim's symbol in these inputs."""
        return [arrays[claim.input].shape[claim.input_axis] for claim in self._claims]

    def check(self, results: Sequence[Any], sizes: Sequence[int]) -> None:
        """Raises ClaimError for the first output of another size."""
        for claim, size in zip(self._claims, sizes):
            value = results[claim.output]
            if isinstance(value, np.ndarray) and value.shape[claim.axis] != size:
                if self._has_loops and value.shape[claim.axis] == 0 and value.shape.count(0) > 1:
                    continue
                entry, given = self._graph.outputs[claim.output], self._graph.inputs[claim.input]
                raise ClaimError(
                    f"the value {entry.name!r} is declared {entry.type}, but these inputs give sizes {list(value.shape)}: "
                    f"{claim.symbol!r} is {size} in input {given.name!r}",
                    where=f"model {self._graph.name!r}",
                    remedy="Correct the declared type, or leave it out of the model",
                )


def is_of_a_claim(error: BaseException) -> bool:
    """True if the error, or a cause of it, is a declared size that does not match the actual one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (ClaimError, DeclaredMismatch)):
            return True
        cause = cause.__cause__
    return False


def _symbols(value_type: object) -> list[tuple[int, str]]:
    """The axes whose sizes are symbols, with the symbols."""
    shape = value_type.shape if isinstance(value_type, TensorType) else None
    return [(axis, size) for axis, size in enumerate(shape or ()) if isinstance(size, str)]
