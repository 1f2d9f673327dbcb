"""Types of the results of ops with bodies, from those of the bodies' results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Dim, OptionalType, SequenceType, TensorType, Type
from partita.passes.infer.dim_symbols import is_generated, merged
from partita.passes.infer.rules import inside
from partita.passes.infer.sequences import common

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

Body = Callable[[str, Sequence[Type | None]], Sequence[Type | None]]
"""(attribute of the body, types of its first inputs) -> types of its results. The types of captures are added."""

ROUNDS, DEEPEST = 4, 2
"""Limits of the search for sizes that do not change in a loop: number of rounds, and depth of nested loops."""

_COUNT, _GOES_ON = TensorType("int64", ()), TensorType("bool", ())


def branching(c: Context, body: Body) -> Sequence[Type | None]:
    """An If: each result has the dtype and the sizes that both branches agree on."""
    branches = [body(name, ()) for name in ("then_branch", "else_branch")]
    for pair in zip(*branches, strict=False):
        dtypes = {kind.dtype for kind in pair if isinstance(kind, TensorType)}
        if len(dtypes) > 1:
            raise TypeMismatch(f"its branches return {pair[0]} and {pair[1]}", where=c.where)
    return [common(pair) for pair in zip(*branches, strict=True)]


def looping(c: Context, body: Body) -> Sequence[Type | None]:
    """A Loop: a carried value keeps the sizes that no step changes; the rows of each other result are stacked."""
    first = [_as_declared(c, slot) for slot in range(2, len(c.node.inputs))]
    single = [_as_one(c, slot, kind) for slot, kind in enumerate((_COUNT, _GOES_ON))]
    count, kept, results = len(first), *_settled(c, first, lambda given: body("body", (*single, *given))[1:])
    carried = [after if isinstance(before, OptionalType) else before for before, after in zip(kept, results, strict=False)]
    return [*carried, *[_stacked(kind, None, 0) for kind in results[count:]]]


def scanning(c: Context, body: Body) -> Sequence[Type | None]:
    """A Scan: the body gets slices of the last inputs along an axis; before opset 9 the first dimension is a batch."""
    scanned = int(c.attribute("num_scan_inputs"))
    has_batch = c.version < 9
    types = [c.type(slot) for slot in range(has_batch, len(c.node.inputs))]
    states, rows = types[: len(types) - scanned], types[len(types) - scanned :]
    axes = [1] * scanned if has_batch else c.attribute("scan_input_axes") or [0] * scanned
    batch: Dim = None
    lengths: list[Dim] = []
    slices: list[Type | None] = []
    for kind, axis in zip(rows, axes, strict=True):
        shape = kind.shape if isinstance(kind, TensorType) else None
        if isinstance(kind, TensorType) and shape is not None:
            inside(c, axis, len(shape))
            batch = shape[0] if has_batch else None
            lengths.append(shape[axis])
            left = [size for d, size in enumerate(shape) if d != axis % len(shape) and not (has_batch and d == 0)]
            kind = TensorType(kind.dtype, left)
        slices.append(kind)
    for size in lengths[1:]:
        if isinstance(size, int) and isinstance(lengths[0], int):
            c.equal(size, lengths[0], "the steps of the sequences")
    if has_batch:
        states = [_without_batch(kind) for kind in states]
    results = body("body", (*states, *slices))
    carried = [after if before is None else before for before, after in zip(states, results, strict=False)]
    length = next((size for size in lengths if size is not None), None)
    if has_batch:
        stacked = [_stacked(_stacked(kind, length, 0), batch, 0) for kind in results[len(states) :]]
        return [*[_stacked(kind, batch, 0) for kind in carried], *stacked]
    behind = c.attribute("scan_output_axes") or [0] * (len(results) - len(states))
    return [*carried, *[_stacked(kind, length, axis) for kind, axis in zip(results[len(states) :], behind, strict=True)]]


def mapping(c: Context, body: Body) -> Sequence[Type | None]:
    """A SequenceMap: its body gets an element of each sequence, and a tensor as it is."""
    given = [kind.element if isinstance(kind, SequenceType) else kind for kind in map(c.type, range(len(c.node.inputs)))]
    return [SequenceType(_stretched(kind)) for kind in body("body", given)]


RULES: dict[str, Callable[[Context, Body], Sequence[Type | None]]] = {
    "If": branching, "Loop": looping, "Scan": scanning, "SequenceMap": mapping,
}
"""The rules by op."""


def captured(node: Node, body: Graph) -> Sequence[Node]:
    """The body's inputs that are bound to the node's captures."""
    return body.inputs[len(body.inputs) - len(node.captures) :]


def _as_one(c: Context, slot: int, scalar: TensorType) -> Type:
    """The type of the counter or the condition: a scalar, or a vector of one if the body declares that, as some exporters do."""
    declared = c.node.attrs["body"].inputs[slot][0].type
    is_vector = isinstance(declared, TensorType) and declared.shape is not None and len(declared.shape) == 1
    return TensorType(scalar.dtype, (1,)) if is_vector else scalar


def _as_declared(c: Context, slot: int) -> Type | None:
    """The type of a carried value. A sequence, which may be empty at first, takes the type of its elements from the body."""
    given, declared = c.type(slot), c.node.attrs["body"].inputs[slot][0].type
    return merged(declared, given) if isinstance(given, SequenceType) and declared is not None else given


def _settled(
    c: Context, carried: Sequence[Type | None], step: Callable[[Sequence[Type | None]], Sequence[Type | None]]
) -> tuple[Sequence[Type | None], Sequence[Type | None]]:
    """The types of carried values that no step changes, and the types of the step's results for them. Sizes that a step changes
    become unknown; after several rounds, and in deeply nested loops, where rounds multiply, all sizes do."""
    for left in range(ROUNDS, -1, -1):
        if not left or c.depth > DEEPEST:
            carried = [_unshaped(kind) for kind in carried]
        results = step(carried)
        kept = [_kept(c, before, after) for before, after in zip(carried, results, strict=False)]
        if kept == list(carried) or not left or c.depth > DEEPEST:
            break
        carried = kept
    return kept, results


def _kept(c: Context, before: Type | None, after: Type | None) -> Type | None:
    if isinstance(before, TensorType) and isinstance(after, TensorType) and before.dtype != after.dtype:
        raise TypeMismatch(f"a step is given {before} and returns {after}", where=c.where)
    if isinstance(before, OptionalType):
        return before  # a step may return its element
    return before if after is None else after if before is None else common((before, after))


def _unshaped(kind: Type | None) -> Type | None:
    if isinstance(kind, (SequenceType, OptionalType)):
        return attrs.evolve(kind, element=_unshaped(kind.element))
    return TensorType(kind.dtype, None) if isinstance(kind, TensorType) else kind


def _stacked(kind: Type | None, length: Dim, axis: int) -> Type | None:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    shape = list(kind.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, length)
    return attrs.evolve(kind, shape=shape)


def _without_batch(kind: Type | None) -> Type | None:
    return TensorType(kind.dtype, kind.shape[1:]) if isinstance(kind, TensorType) and kind.shape else kind


def _stretched(kind: Type | None) -> Type | None:
    """The type of elements of a sequence: sizes that the body computes may differ from element to element, and are unknown."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, [None if isinstance(size, str) and is_generated(size) else size for size in kind.shape])
