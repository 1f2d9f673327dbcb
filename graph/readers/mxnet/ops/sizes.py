"""Shapes made of integers and of sizes that are only known at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion

__all__ = ["SizeOf", "shape_of", "shape_value", "size_at"]


@attrs.frozen(slots=True)
class SizeOf:
    """A product of an integer and a value's dynamic sizes along some axes."""

    entry: NodeEntry
    """The value."""
    axes: tuple[int, ...]
    """Its axes, counted from the front."""
    factor: int = 1
    """The integer."""


Part = int | SizeOf
"""One dimension of a new shape; -1 is inferred."""


def size_at(c: Conversion, entry: NodeEntry, *axes: int) -> Part:
    """The product of a value's sizes along these axes; an integer if they are static."""
    dims = c.dims(entry)
    open_axes = tuple(axis for axis in axes if not isinstance(dims[axis], int))
    factor = math.prod(size for axis in axes if isinstance(size := dims[axis], int))
    return SizeOf(entry, open_axes, factor) if open_axes else factor


def shape_value(c: Conversion, what: str, parts: Sequence[Part], infer: bool = False) -> NodeEntry:
    """The shape as a value: a constant if it is static, else computed at run time.

    `infer` is for Reshape, which infers a single unknown dimension itself."""
    unknown = [i for i, part in enumerate(parts) if isinstance(part, SizeOf)]
    if infer and len(unknown) == 1 and -1 not in parts:
        parts = [-1 if i == unknown[0] else part for i, part in enumerate(parts)]
    known = [part for part in parts if isinstance(part, int)]
    if len(known) == len(parts):
        return c.integers(what, known)
    pieces = [_piece(c, f"{what}_{i}", part) for i, part in enumerate(parts)]
    return c.Concat(*pieces, axis=0, name=what)


def shape_of(c: Conversion, what: str, entry: NodeEntry) -> NodeEntry:
    """The value's shape as a value: a constant if it is static."""
    dims = c.shape(entry)
    known = [size for size in dims or () if isinstance(size, int)]
    if dims is not None and len(known) == len(dims):
        return c.integers(what, known)
    return c.Shape(entry, name=what)


def _piece(c: Conversion, what: str, part: Part) -> NodeEntry:
    """The part as an array of one element."""
    if isinstance(part, int):
        return c.integers(what, [part])
    shape = c.Shape(part.entry, name=f"{what}_of")
    sizes = c.Gather(shape, c.integers(f"{what}_axes", part.axes), name=f"{what}_sizes")
    if len(part.axes) > 1:
        sizes = c.ReduceProd(sizes, c.integers(f"{what}_all", [0]), name=f"{what}_product")
    return sizes if part.factor == 1 else c.Mul(sizes, c.integers(f"{what}_factor", [part.factor]), name=what)
