"""An Einsum of many operands as a row of smaller ones, each of which sums what no later one needs.

TVM walks all letters of an equation at once: a chain of a dozen matrices of 8 x 8, which takes some thousand products, takes 5e11
so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np

from partita.graph.flops import einsum_products
from partita.graph.node import Node
from partita.graph.types import TensorType

MOST_PRODUCTS = 1 << 28
"""The products that an Einsum of more than two operands may take in one walk."""


@attrs.frozen(slots=True)
class Contraction:
    """One Einsum of the row."""

    operands: tuple[int, ...]
    """The places of what it reads among the values that are left; its own result is put behind the others."""
    equation: str
    """Its equation, with the letters of the whole one."""


def is_long(node: Node) -> bool:
    """Is it an Einsum of more than two operands that would take too long in one walk?"""
    return node.op == "Einsum" and not node.domain and len(node.inputs) > 2 and (einsum_products(node) or 0) > MOST_PRODUCTS


def contractions(node: Node) -> list[Contraction] | None:
    """The row of smaller ones; None where the equation leaves letters out (`...`) or a size is not known."""
    shapes = [_sizes(entry.type) for entry in node.reads]
    terms, result = terms_of(str(node.attrs["equation"]))
    if any("." in term for term in (*terms, result)) or any(shape is None for shape in shapes):
        return None
    operands = [np.broadcast_to(np.float32(0), shape) for shape in shapes if shape is not None]
    path = np.einsum_path(f"{','.join(terms)}->{result}", *operands, optimize="greedy")[0][1:]
    row = []
    for operands_read in path:
        read = [terms[position] for position in operands_read]
        terms = [term for position, term in enumerate(terms) if position not in operands_read]
        needed = set(result).union(*terms)
        kept = "".join(sorted(set("".join(read)) & needed)) if terms else result
        row.append(Contraction(tuple(operands_read), f"{','.join(read)}->{kept}"))
        terms.append(kept)
    return row


def terms_of(equation: str) -> tuple[list[str], str]:
    """The letters of each operand, and of the result: without an arrow all that appear once."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    counts = Counter(letter for letter in left if letter != ",")
    return left.split(","), result if arrow else "".join(sorted(letter for letter, count in counts.items() if count == 1))


def _sizes(value_type: object) -> Sequence[int] | None:
    if not isinstance(value_type, TensorType) or not value_type.is_static or value_type.shape is None:
        return None
    return tuple(int(size or 0) for size in value_type.shape)
