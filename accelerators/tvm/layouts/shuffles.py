"""Channel shuffles as networks express them: channels reshaped to a matrix, transposed, and reshaped back."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.matcher import find_matches
from partita.partition.pattern import Pattern


@attrs.frozen(slots=True)
class Shuffle:
    """A channel shuffle of three nodes."""

    source: NodeEntry
    """The shuffled value, [N, C, H, W]."""
    rows: int
    """Rows of the matrix that is transposed."""
    nodes: tuple[Node, Node, Node]
    """Reshape, Transpose, Reshape."""


def _splits_channels(node: Node) -> bool:
    """True for a Reshape of [N, C, H, W] to [N, rows, columns, H, W]."""
    given, split = (real_shape(node.inputs[0]), real_shape(node[0])) if node.op == "Reshape" else (None, None)
    if given is None or split is None or len(given) != 4 or len(split) != 5:
        return False
    return (split[0], *split[3:]) == (given[0], *given[2:])


def _swaps_rows(node: Node) -> bool:
    """True for a Transpose that swaps rows and columns of [N, rows, columns, H, W]."""
    return node.op == "Transpose" and tuple(node.attrs.get("perm", ())) == (0, 2, 1, 3, 4)


SHUFFLE = Pattern(_splits_channels, _swaps_rows, "Reshape")


def find_shuffles(graph: Graph) -> list[Shuffle]:
    """The shuffles whose inner values no other node reads. Linear."""
    shuffles = []
    for first, turn, last in find_matches(graph, SHUFFLE) if any(map(_swaps_rows, graph.nodes)) else ():
        source, split = first.inputs[0], real_shape(first[0])
        if source is not None and split is not None and real_shape(last[0]) == real_shape(source):
            shuffles.append(Shuffle(source, split[1], (first, turn, last)))
    return shuffles
