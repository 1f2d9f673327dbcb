"""Indices and lengths that openvino would take as they are: the outermost that fit, and the first beyond them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.openvino.index_checks import GivenIndices, unseen

Maker = Callable[[pt.Node, pt.Node], pt.Node]
"""An op of data and of indices or lengths."""


def updates(*shape: int) -> pt.Node:
    return pt.constant(np.zeros(shape, np.float32))


def recurrent(op: str, gates: int, layout: int) -> Maker:
    weights = [pt.constant(np.zeros((1, gates * 4, size), np.float32)) for size in (3, 4)]
    return lambda x, lengths: pt.op(op, x, *weights, None, lengths, hidden_size=4, layout=layout)


INDICES: dict[str, tuple[Maker, tuple[int, ...], Any]] = {
    "Gather": (lambda x, i: pt.op("Gather", x, i), (5, 6, 7), 5),
    "Gather of columns": (lambda x, i: pt.op("Gather", x, i, axis=1), (5, 6, 7), 6),
    "Gather of the last": (lambda x, i: pt.op("Gather", x, i, axis=-1), (5, 6, 7), 7),
    "GatherElements": (lambda x, i: pt.op("GatherElements", x, i, axis=-2), (5, 6), 5),
    "ScatterElements": (lambda x, i: pt.op("ScatterElements", x, i, updates(2, 1), axis=1), (5, 6), 6),
    "GatherND": (lambda x, i: pt.op("GatherND", x, i), (5, 6), 5),
    "GatherND of a batch": (lambda x, i: pt.op("GatherND", x, i, batch_dims=1), (2, 6), 6),
    "ScatterND": (lambda x, i: pt.op("ScatterND", x, i, updates(2, 6)), (5, 6), 5),
}
LENGTHS: dict[str, tuple[Maker, tuple[int, ...]]] = {
    "LSTM": (recurrent("LSTM", 4, 0), (5, 2, 3)),
    "GRU": (recurrent("GRU", 3, 0), (5, 2, 3)),
    "RNN, batch first": (recurrent("RNN", 1, 1), (2, 5, 3)),
    "LSTM, batch first": (recurrent("LSTM", 4, 1), (2, 6, 3)),
}


def told(maker: Maker, shape: tuple[int, ...], array: np.ndarray, is_constant: bool) -> str | None:
    """The answer for indices in a call; for constant ones, for data of any size."""
    x = pt.variable("x", "float32", ("n",) * len(shape) if is_constant else shape)
    given = pt.constant(array) if is_constant else pt.variable("i", array.dtype.name, array.shape)
    graph = pt.Graph([maker(x, given)], [x] if is_constant else [x, given])
    arrays = [np.zeros(shape, np.float32), array]
    try:
        GivenIndices(graph).checked(arrays[: len(graph.inputs)])
    except pt.RunError as error:
        node = graph.outputs[0].node
        assert str(error) == f"device 'openvino', {node.name!r} ({node.op}): {error.cause}"
        return error.cause
    return None


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("is_constant", [False, True])
def test_indices(kind: str, is_constant: bool) -> None:
    maker, shape, size = INDICES[kind]
    for number, fits in ((-size - 1, False), (-size, True), (size - 1, True), (size, False)):
        array = np.array([[0], [number]], np.int64)
        wanted = None if fits else f"index {number} is outside of a dimension of {size}"
        assert told(maker, shape, array, is_constant) == wanted
        fixed = maker(pt.variable("x", "float32", shape), pt.constant(array))
        assert unseen(fixed) == wanted


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("is_constant", [False, True])
def test_lengths(kind: str, is_constant: bool) -> None:
    maker, shape = LENGTHS[kind]
    steps = shape[1] if "batch first" in kind else shape[0]
    for number, fits in ((-1, False), (0, True), (steps, True), (steps + 1, False)):
        array = np.array([1, number], np.int32)
        wanted = None if fits else f"the length {number} of a sequence is not between 0 and {steps}"
        assert told(maker, shape, array, is_constant) == wanted
        assert unseen(maker(pt.variable("x", "float32", shape), pt.constant(array))) == wanted
    assert unseen(maker(pt.variable("x", "float32"), pt.constant(array))) is None, "of data of unknown rank"
