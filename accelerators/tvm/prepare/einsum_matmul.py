"""An Einsum of two operands that is a product of matrices, as attention is often written.

TVM walks all letters of an equation, one product after another; a MatMul has kernels, and is seen as a part of attention."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.prepare.contractions import terms_of
from partita.graph.node import Node
from partita.graph.types import TensorType

REFUSAL = "this Einsum is a product of matrices, and is taken apart first"
"""Why no kernel takes it as it is."""


@attrs.frozen(slots=True)
class Product:
    """The orders of dimensions around a MatMul."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]


def product_of(node: Node) -> Product | None:
    """The product that an Einsum of float32 numbers is; None where it is none, some dimension is repeated along another, or there
    are no numbers: that is refused for its own reason."""
    if node.op != "Einsum" or node.domain or len(node.inputs) != 2:
        return None
    terms, result = terms_of(str(node.attrs["equation"]))
    kinds = [entry.type for entry in node.reads]
    if len(terms) != 2 or any(not isinstance(kind, TensorType) or kind.dtype != "float32" for kind in kinds):
        return None
    shapes = [kind.shape for kind in kinds if isinstance(kind, TensorType)]
    if any(not term.isalpha() or len(set(term)) != len(term) for term in (*terms, result)):
        return None
    if any(shape is None or len(shape) != len(term) or 0 in shape for term, shape in zip(terms, shapes, strict=True)):
        return None
    first, second = (dict(zip(term, shape or (), strict=True)) for term, shape in zip(terms, shapes, strict=True))
    shared = [letter for letter in terms[0] if letter in second]
    if any(first.get(letter) is None or first.get(letter) != second.get(letter) for letter in shared):
        return None
    batch = [letter for letter in result if letter in shared]
    summed = [letter for letter in shared if letter not in result]
    rows, columns = ([letter for letter in term if letter not in shared] for term in terms)
    letters = [*batch, *rows, *columns]
    if not len(summed) == len(rows) == len(columns) == 1 or set(letters) != set(result):
        return None
    return Product(
        tuple(terms[0].index(letter) for letter in (*batch, *rows, *summed)),
        tuple(terms[1].index(letter) for letter in (*batch, *summed, *columns)),
        tuple(letters.index(letter) for letter in result),
    )
