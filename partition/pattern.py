"""Patterns: small shapes of ops to match, written as a sequence along the data flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from partita.graph.node import Node
from partita.partition.errors import PartitionError
from partita.partition.selector import domain_and_op


class Operand:
    """An operand that is not part of the match."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The text of the operand in a printed pattern."""

    def __repr__(self) -> str:
        return self.name


ANY = Operand("ANY")
"""Anything, absent or present; it is not part of the match."""

CONST = Operand("CONST")
"""A constant."""

Written = Any
"""A part as written by users: see `Pattern`."""


@attrs.frozen(eq=False)
class Part:
    """One member of a sequence: the nodes that fit, and their operands."""

    ops: frozenset[tuple[str, str]] | None
    """The (domain, op) pairs that fit; None for any op."""
    predicate: Callable[[Node], bool] | None
    """A predicate that the node must satisfy as well."""
    optional: bool
    """True if the part may be omitted from a match."""
    operands: tuple[Operand | tuple[Part, ...], ...]
    """Its operands, without the one that continues the sequence; a tuple of parts is a sequence that ends
    there."""
    text: str
    """The part as written by the user."""


class Pattern:
    """A sequence of parts, each of which reads the value of the part before (as any operand).

    A part is written as
    - an op: `"Conv"`; alternatives: `"Relu|Clip"`; optional with a question mark at the end: `"BatchNormalization?"`,
      `"Relu|Clip?"`; any op: `"*"`; an op of another domain: `"com.microsoft::Gelu"`;
    - a predicate on nodes: `lambda node: node.attrs.get("group", 1) == 1`;
    - a tuple `(part, operand, ...)`: an op and its operands besides the sequence's own value, each operand being `ANY`, `CONST`,
      another part, or a list of parts (a sequence that ends there). Operands that are parts belong to the match. Listed operands
      match in order, for commutative ops such as Add in any order; operands that are not listed may be anything.

    >>> Pattern("Conv", "BatchNormalization?", "Add?", "Relu|Clip?")   # an Add with anything
    Pattern('Conv', 'BatchNormalization?', 'Add?', 'Relu|Clip?')
    >>> Pattern(("Add", "MatMul", CONST), "Relu?")                    # MatMul, then a bias
    Pattern(('Add', 'MatMul', CONST), 'Relu?')
    >>> Pattern("Conv", ("Add", ["Conv", "BatchNormalization"]))      # two branches
    Pattern('Conv', ('Add', ['Conv', 'BatchNormalization']))

    A value made and read inside must not be used outside (a graph output is a use), unless `shared=True`.
    Matching: the first node (in topological order) that fits the sequence's first part is tried first, the longest match wins,
    and each match is a separate subgraph. A match that would close a cycle is refused.
    """

    def __init__(self, *parts: Written, shared: bool = False) -> None:
        self.parts = tuple(_part(part) for part in parts)
        """The sequence."""
        self.shared = shared
        """True if inner values may be used outside too."""
        self._written = parts
        if all(part.optional for part in self.parts):
            raise PartitionError(
                "a pattern needs a part that is not optional", where=repr(self), remedy='Write Pattern("Conv", "Relu?")'
            )

    def op_names(self) -> list[str]:
        """The names of all ops in it."""
        return sorted({f"{domain}::{op}" if domain else op for part in self.parts for domain, op in _ops_in(part)})

    @property
    def most_nodes(self) -> int:
        """Maximum number of nodes of a match."""
        return sum(map(_most_nodes, self.parts))

    def __repr__(self) -> str:
        return f"Pattern({', '.join(map(_written, self._written))}{', shared=True' if self.shared else ''})"


def _written(part: Written) -> str:
    """The part as written; for a function its name, which is the same in every process."""
    if isinstance(part, (tuple, list)):
        inner = ", ".join(map(_written, part))
        return f"[{inner}]" if isinstance(part, list) else f"({inner}{',' if len(part) == 1 else ''})"
    return str(getattr(part, "__name__", type(part).__name__)) if callable(part) else repr(part)


def _ops_in(part: Part) -> Iterator[tuple[str, str]]:
    yield from part.ops or ()
    for operand in part.operands:
        if isinstance(operand, tuple):
            for inner in operand:
                yield from _ops_in(inner)


def _most_nodes(part: Part) -> int:
    return 1 + sum(sum(map(_most_nodes, inner)) for inner in part.operands if isinstance(inner, tuple))


def _part(written: Written) -> Part:
    if isinstance(written, str):
        return _named(written)
    if isinstance(written, tuple) and written:
        head = _part(written[0])
        operands = tuple(_operand(operand) for operand in written[1:])
        return attrs.evolve(head, operands=operands, text=repr(written))
    if callable(written):
        return Part(None, written, False, (), getattr(written, "__name__", repr(written)))
    raise PartitionError(
        f"{written!r} is not part of a pattern",
        where="Pattern",
        remedy='A part is "Op", "Op|Op", "Op?", a predicate, or a tuple (part, operand, ...)',
    )


def _named(text: str) -> Part:
    optional = text.endswith("?")
    names = [name.strip() for name in text.removesuffix("?").split("|")]
    if any(not name or "?" in name for name in names):
        raise PartitionError(
            f"{text!r} is not part of a pattern", where="Pattern", remedy='The question mark comes at the end: "Relu|Clip?"'
        )
    ops = None if "*" in names else frozenset(map(domain_and_op, names))
    return Part(ops, None, optional, (), text)


def _operand(written: Written) -> Operand | tuple[Part, ...]:
    if isinstance(written, Operand):
        return written
    sequence: Sequence[Written] = written if isinstance(written, list) else [written]
    parts = tuple(_part(part) for part in sequence)
    if not parts or parts[-1].optional:
        raise PartitionError(f"the operand {written!r} has to end with a part that is not optional", where="Pattern")
    return parts
