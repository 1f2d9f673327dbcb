"""Channel shuffles, as networks spell them: channels seen as a matrix, transposed, seen as channels again."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.shared.shapes import real_shape
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.passes.fold_batch_norm import is_only_reader


@attrs.frozen(slots=True)
class Shuffle:
    """Three nodes that shuffle channels."""

    source: NodeEntry
    """The value that is shuffled, of shape [N, C, H, W]."""
    rows: int
    """Rows of the matrix that is transposed."""
    nodes: tuple[Node, Node, Node]
    """Reshape, Transpose, Reshape."""


def find_shuffles(graph: Graph) -> list[Shuffle]:
    """The shuffles whose inner values no other node reads. Linear."""
    shuffles = []
    for last in graph.nodes:
        turn = last.inputs[0].node if last.op == "Reshape" and last.inputs[0] is not None else None
        first = turn.inputs[0].node if turn is not None and turn.op == "Transpose" and turn.inputs[0] is not None else None
        if turn is None or first is None or first.op != "Reshape" or first.inputs[0] is None:
            continue
        given, split, joined = real_shape(first.inputs[0]), real_shape(first[0]), real_shape(last[0])
        if given is None or split is None or len(given) != 4 or len(split) != 5 or joined != given:
            continue
        inner = is_only_reader(first[0], graph) and is_only_reader(turn[0], graph)
        if inner and tuple(turn.attrs.get("perm", ())) == (0, 2, 1, 3, 4) and (split[0], *split[3:]) == (given[0], *given[2:]):
            shuffles.append(Shuffle(first.inputs[0], split[1], (first, turn, last)))
    return shuffles
