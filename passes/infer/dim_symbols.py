"""Symbolic sizes: substitution, and merging of two types of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import Dim, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

_GENERATED = re.compile(r"unk__\d+")
"""The symbols that inference makes up for sizes that are not integers and no symbols of inputs."""


def merged(a: Type | None, b: Type | None) -> Type | None:
    """Two types of a value merged.

    A static size takes precedence over a symbol, and the first type's symbol over the second's; a contradiction is an error."""
    if a is None or b is None or a == b:
        return a if b is None else b
    if isinstance(a, (TensorType, SparseTensorType)) and type(a) is type(b):
        assert isinstance(b, (TensorType, SparseTensorType))
        if a.dtype == b.dtype:
            return attrs.evolve(a, shape=_merged_shape(a, b))
    elif isinstance(a, (SequenceType, OptionalType)) and type(a) is type(b):
        assert isinstance(b, (SequenceType, OptionalType))
        return attrs.evolve(a, element=merged(a.element, b.element))
    elif isinstance(a, MapType) and isinstance(b, MapType) and a.key == b.key:
        return attrs.evolve(a, value=merged(a.value, b.value))
    raise TypeMismatch(f"{a} and {b} contradict each other")


def _merged_shape(
    a: TensorType | SparseTensorType, b: TensorType | SparseTensorType
) -> tuple[Dim, ...] | None:
    if a.shape is None or b.shape is None:
        return a.shape if b.shape is None else b.shape
    if len(a.shape) != len(b.shape):
        raise TypeMismatch(f"{a} and {b} contradict each other")
    return tuple(_merged_dim(m, n, a, b) for m, n in zip(a.shape, b.shape, strict=True))


def _merged_dim(m: Dim, n: Dim, a: Type, b: Type) -> Dim:
    if isinstance(m, int) and isinstance(n, int):
        if m != n:
            raise TypeMismatch(f"{a} and {b} contradict each other")
        return m
    if isinstance(n, int):
        return n
    return n if m is None else m


def bound(node: Node, shape: Sequence[Dim], symbols: dict[str, Dim]) -> TensorType:
    """The input's type with this shape; the values of its symbols are added to `symbols`."""
    declared = node[0].type
    if not isinstance(declared, TensorType):
        raise TypeMismatch(f"a shape is given for a value of type {declared}", where=f"input {node.name!r}")
    bound_type = TensorType(declared.dtype, shape)
    for old, new in zip(declared.shape or (), bound_type.shape or (), strict=False):
        if isinstance(old, str) and symbols.setdefault(old, new) != new:
            raise TypeMismatch(
                f"{old!r} would be both {symbols[old]} and {new}", where=f"input {node.name!r}"
            )
    try:
        merged(declared, bound_type)
    except TypeMismatch:
        raise TypeMismatch(
            f"the shape {bound_type} is given for an input declared {declared}",
            where=f"input {node.name!r}",
            remedy="Only symbolic and unknown sizes can be given",
        ) from None
    return bound_type


def map_types(g: Graph, symbols: Mapping[str, Dim]) -> Graph:
    """The graph with these symbols replaced in all types, including those in bodies."""
    if not symbols:
        return g

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        types = tuple([_substituted(known, symbols) for known in node.output_types])
        if types != node.output_types:
            rebuilt = rebuilt.evolve(output_types=types)
        if any(isinstance(value, Type) for value in node.attrs.values()):
            changed = {key: _substituted(value, symbols) for key, value in rebuilt.attrs.items() if isinstance(value, Type)}
            rebuilt = rebuilt.evolve(attrs={**rebuilt.attrs, **changed})
        rewriter.keep(node, map_bodies(rebuilt, lambda body: map_types(body, symbols)) if rebuilt.bodies else rebuilt)

    return rewrite(g, visit)


def _substituted(known: Type | None, symbols: Mapping[str, Dim]) -> Type | None:
    if isinstance(known, (TensorType, SparseTensorType)):
        if known.shape is None or not any(isinstance(size, str) and size in symbols for size in known.shape):
            return known
        return attrs.evolve(
            known, shape=tuple(symbols.get(d, d) if isinstance(d, str) else d for d in known.shape)
        )
    if isinstance(known, (SequenceType, OptionalType)):
        return attrs.evolve(known, element=_substituted(known.element, symbols))
    if isinstance(known, MapType):
        return attrs.evolve(known, value=_substituted(known.value, symbols))
    return known


def all_symbols(g: Graph) -> list[str]:
    """The symbols in all types of a graph and its bodies, in order of first use."""
    nodes = [node for graph in graphs_in(g) for node in graph.nodes]
    types = [known for node in nodes for known in (*node.output_types, *node.attrs.values()) if isinstance(known, Type)]
    return list(dict.fromkeys(symbol for known in types for symbol in symbols_in(known)))


def is_generated(symbol: str) -> bool:
    """True for a symbol that inference made up."""
    return _GENERATED.fullmatch(symbol) is not None


def generated(g: Graph, given: Iterable[Type | None]) -> set[str]:
    """The symbols that inference made up in this graph, which are meaningless outside of it."""
    symbols = {
        s
        for node in g.nodes
        for known in node.output_types
        for s in symbols_in(known)
        if is_generated(s)
    }
    return symbols - {s for known in given for s in symbols_in(known)}


def symbols_in(known: Type | None) -> Iterable[str]:
    """The symbols in a type, including nested types."""
    if isinstance(known, (TensorType, SparseTensorType)):
        return [size for size in known.shape or () if isinstance(size, str)]
    if isinstance(known, (SequenceType, OptionalType)):
        return symbols_in(known.element)
    return symbols_in(known.value) if isinstance(known, MapType) else ()
