"""Ops that only reorder elements: strides of their results in memory.

numpy computes them, on uninitialized arrays of one byte per element: the reshape, transpose or slice of such an array either is a
view of it or is not, and its strides count elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import shape_of
from partita.accelerators.tvm.sizes.extent import Extent
from partita.accelerators.tvm.sizes.views import SizedView
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

Ghost = np.ndarray[Any, np.dtype[np.uint8]] | SizedView
"""An array that represents a tensor's positions, not its elements; a `SizedView` if sizes are extents."""

VIEWS = ops("reshape") | {"Identity"}
"""Ops that move nothing."""


@attrs.frozen(slots=True)
class Strides:
    """The positions of a tensor's elements in a flat buffer."""

    offset: int
    """The position of the first element."""
    steps: tuple[int, ...]
    """The distance in the buffer between neighbours, in each dimension."""

    def at(self, indices: Sequence[str]) -> str:
        """The position of an element in the flat buffer."""
        terms = [str(self.offset)] if self.offset else []
        terms += [index if step == 1 else f"({index}) * {step}" for index, step in zip(indices, self.steps, strict=True) if step]
        return " + ".join(terms) or "0"


def ghost(shape: tuple[int, ...]) -> Ghost:
    """A contiguous tensor of this shape."""
    return SizedView.whole(shape) if any(isinstance(size, Extent) for size in shape) else np.empty(shape, np.uint8)


def broadcast_to(view: Ghost, shape: tuple[int, ...]) -> Ghost:
    """The view, broadcast to this shape."""
    if isinstance(view, SizedView) or any(isinstance(size, Extent) for size in shape):
        return _sized(view).broadcast(shape)
    return np.broadcast_to(view, shape)


def part_of(view: Ghost, axis: int, first: int, count: int) -> Ghost:
    """`count` neighbours along a dimension, from `first` on."""
    if isinstance(view, SizedView):
        return view.part(axis, first, count)
    return view[(slice(None),) * axis + (slice(first, first + count),)]


def _sized(view: Ghost) -> SizedView:
    """The array of a whole tensor, as a `SizedView`."""
    if isinstance(view, SizedView):
        return view
    return SizedView(view.shape, view.strides)


def strides_in(view: Ghost, whole: Ghost) -> Strides:
    """The strides of a view in the whole tensor."""
    if isinstance(view, SizedView):
        return Strides(view.offset, view.steps)  # type: ignore[arg-type]
    assert not isinstance(whole, SizedView)
    start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return Strides(start, tuple([step if size > 1 else 0 for step, size in zip(view.strides, view.shape)]))


def followed(view: Ghost, path: Sequence[Node], end: NodeEntry) -> Ghost | None:
    """The view after the ops of the path, up to the value `end`; None if one of them copies."""
    for i, node in enumerate(path):
        value = end if i == len(path) - 1 else next(e for e in path[i + 1].reads if e.node is node)
        moved = _moved(view, node, value)
        if moved is None or moved.shape != shape_of(value):
            return None
        view = moved
    return view


def undone(view: Ghost, path: Sequence[Node]) -> Ghost | None:
    """The view of the path's first input, given the view of its result; the ops are reshapes and transposes."""
    for node in reversed(path):
        assert node.inputs[0] is not None
        if node.op == "Transpose":
            view = view.transpose(np.argsort(_order(node, view.ndim)).tolist())
        else:
            reshaped = _reshaped(view, shape_of(node.inputs[0]))
            if reshaped is None:
                return None
            view = reshaped
    return view


def _moved(view: Ghost, node: Node, value: NodeEntry) -> Ghost | None:
    if node.op in VIEWS:
        return _reshaped(view, shape_of(value))
    if node.op == "Transpose":
        return view.transpose(_order(node, view.ndim))
    if node.op == "Expand":
        return broadcast_to(view, shape_of(value))
    if node.op == "Split":
        axis = node.attrs.get("axis", 0) % view.ndim
        first = _start(node, value, axis, view.shape[axis])
        return None if first is None else part_of(view, axis, first, shape_of(value)[axis])
    if node.op == "Gather":
        return _gathered(view, node)
    if node.op == "Slice":
        return _sliced(view, node, value)
    return view


def _start(node: Node, part: NodeEntry, axis: int, whole: Any) -> Any:
    """The start of a part of a Split; None if it is unknown. There may be a thousand parts, so their types are read without
    creating values. Outputs that are left out have no type."""
    before = [value_type.shape for value_type in node.output_types[: part.index] if isinstance(value_type, TensorType)]
    if len(before) == part.index and None not in before:
        return sum((shape[axis] or 0) for shape in before)  # type: ignore[index,misc]
    sizes = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else node.attrs.get("split")
    if sizes is not None:
        return int(sum(sizes[: part.index]))
    own = shape_of(part)[axis]
    if (len(node.inputs) > 1 and node.inputs[1] is not None) or not isinstance(own, int) or not isinstance(whole, int):
        return None
    return whole - own if part.index == len(node.output_names) - 1 else part.index * own


def _order(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(node.attrs.get("perm") or reversed(range(rank)))


def _reshaped(view: Ghost, shape: tuple[int, ...]) -> Ghost | None:
    if isinstance(view, SizedView):
        return view.reshape(shape)
    if any(isinstance(size, Extent) for size in shape):
        return None
    reshaped = view.reshape(shape)
    return reshaped if reshaped.size and np.may_share_memory(reshaped, view) else None


def _gathered(view: Ghost, node: Node) -> Ghost | None:
    index = None if node.inputs[1] is None else node.inputs[1].node.value
    if index is None or index.ndim:
        return None
    axis = node.attrs.get("axis", 0) % view.ndim
    if isinstance(view, SizedView):
        return view.one(axis, view.shape[axis] + int(index) if index < 0 else int(index))
    before = (slice(None),) * axis
    return view[(*before, int(index), ...)]  # With an ellipsis a single element is a view too, not a copy.


def _sliced(view: Ghost, node: Node, value: NodeEntry) -> Ghost | None:
    given = [None if entry is None else entry.node.value for entry in node.inputs[1:]]
    if len(given) < 2 or any(value is None for value, entry in zip(given, node.inputs[1:]) if entry is not None):
        return None
    starts, ends, axes, steps = [*(None if v is None else v.tolist() for v in given), None, None][:4]
    assert starts is not None and ends is not None
    slices = zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts))
    if isinstance(view, SizedView):
        return _sliced_at_any_size(view, [(axis % view.ndim, start, step) for axis, start, _, step in slices], shape_of(value))
    taken = [slice(None)] * view.ndim
    for axis, start, end, step in slices:
        if step < 1:
            return None
        taken[axis] = slice(start, end, step)
    return view[tuple(taken)]


def _sliced_at_any_size(view: SizedView, slices: Sequence[tuple[int, int, int]], result: tuple[int, ...]) -> SizedView | None:
    """The slice with the sizes of the result, given axis, start and step of each sliced dimension; None unless all steps are
    positive. A slice of dynamic size lies inside the view, as was assumed when its size was computed."""
    for axis, start, step in slices:
        size = view.shape[axis]
        if step < 1:
            return None
        if isinstance(size, int):
            start = slice(start, None).indices(size)[0]
        view = view.part(axis, size + start if start < 0 else start, result[axis]).every(axis, step, result[axis])
    return view
