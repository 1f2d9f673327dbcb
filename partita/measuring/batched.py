"""A graph with another batch size."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.errors import GraphError, PartitaError
from partita.graph.graph import Graph
from partita.graph.readers import load
from partita.graph.types import Dim, TensorType
from partita.graph.writers.onnx import to_model
from partita.passes import apply_pass


def batched(graph: Graph, batch: int) -> Graph:
    """The graph with another batch size: the first dimension of each input that is equal to the first input's, or dynamic."""
    proto = to_model(graph)
    shapes = _with_batch(graph, batch)
    for value in proto.graph.input:
        if value.name in shapes:
            value.type.tensor_type.shape.dim[0].Clear()  # dynamic, so that another size fits
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    try:
        return apply_pass(load(proto, shapes=shapes), "InferShape", strict=True).evolve(name=graph.name)
    except PartitaError as error:
        raise GraphError(
            f"the model does not take a batch of {batch}: {error.cause}",
            where=error.where or f"graph {graph.name!r}",
            remedy="A size is written into the model; export it with an open first size, or leave batch out",
        ) from error


def _with_batch(graph: Graph, batch: int) -> dict[str, Sequence[Dim]]:
    """New shapes of the inputs whose first dimension is the batch."""
    shapes: dict[str, Sequence[Dim]] = {}
    first: object = None
    for node in graph.inputs:
        kind = node[0].type
        if isinstance(kind, TensorType) and kind.shape:
            first = kind.shape[0] if first is None else first
            if kind.shape[0] == first or not isinstance(kind.shape[0], int):
                shapes[node.name] = (batch, *kind.shape[1:])
    return shapes
