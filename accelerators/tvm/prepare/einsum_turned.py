"""An Einsum of one operand whose letters stand in another order in the result: a Transpose, of which there are kernels for sizes
that are symbols too."""

from __future__ import annotations

from partita.accelerators.tvm.prepare.contractions import terms_of
from partita.graph.node import Node
from partita.graph.types import TensorType

REFUSAL = "this Einsum is a Transpose, and is taken apart first"
"""Why no kernel takes it as it is."""


def order_of(node: Node) -> tuple[int, ...] | None:
    """The order in which the dimensions of the operand stand in the result; None for any other op."""
    if node.op != "Einsum" or node.domain or len(node.reads) != 1:
        return None
    terms, result = terms_of(str(node.attrs["equation"]))
    kind, term = node.reads[0].type, terms[0]
    is_whole = isinstance(kind, TensorType) and kind.rank == len(term) == len(set(term)) and term.isalpha()
    if len(terms) != 1 or not is_whole or sorted(result) != sorted(term):
        return None
    return tuple([term.index(letter) for letter in result])
