"""If, Loop, Scan, SequenceMap: ops that run a body.

A body is a callable from a list of its formal inputs to a list of its outputs, with its captured values already
bound. It may have `output_types`, a list of (dtype, shape) or None, from which a loop without iterations makes its
empty scan outputs, and `sizes`, which maps its symbols to their values for given inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from partita.graph.numerics.registry import BODIES, differs, fails, numerics


class LoopBody(Protocol):
    """The callable that `evaluate` takes in place of an attribute that is a graph."""

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]: ...


@numerics("If", why=fails(BODIES))
def choose(condition: np.ndarray, *, then_branch: LoopBody, else_branch: LoopBody) -> tuple[Any, ...]:
    """Runs one branch."""
    return tuple((then_branch if condition.item() else else_branch)([]))


@numerics("Loop", wants=("n_outputs",), why=fails(BODIES))
def loop(
    trips: np.ndarray | None = None, condition: np.ndarray | None = None, *carried: Any, body: LoopBody, n_outputs: int,
) -> tuple[Any, ...]:
    """Iterates while the condition holds, at most ``trips`` times; outputs that are not carried are stacked along a new axis."""
    state = list(carried)
    collected: list[list[np.ndarray]] = [[] for _ in range(n_outputs - len(state))]
    limit = None if trips is None else trips.item()
    go = True if condition is None else bool(condition.item())
    step = 0
    while go and (limit is None or step < limit):
        proceed, *results = body([np.array(step, np.int64), np.array(go), *state])
        go = bool(proceed.item())
        state = results[: len(state)]
        for values, value in zip(collected, results[len(state) :]):
            values.append(value)
        step += 1
    formal = [np.array(step, np.int64), np.array(go), *state]
    scanned = [_stacked(values, body, 1 + len(state) + i, formal) for i, values in enumerate(collected)]
    return (*state, *scanned)


@numerics("Scan", since=9, why=fails(BODIES))
def scan(
    *inputs: np.ndarray, body: LoopBody, num_scan_inputs: int, scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None, scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[np.ndarray, ...]:
    """Feeds slices of the scan inputs, along the given axes, forwards or backwards, to the body."""
    n_states = len(inputs) - num_scan_inputs
    axes = scan_input_axes or [0] * num_scan_inputs
    rows = [np.moveaxis(x, axis, 0) for x, axis in zip(inputs[n_states:], axes)]
    rows = [x[::-1] if backwards else x for x, backwards in zip(rows, scan_input_directions or [0] * len(rows))]
    states, scanned = _scan_rows(list(inputs[:n_states]), rows, body)
    backwards = scan_output_directions or [0] * len(scanned)
    scanned = [y[::-1] if flip else y for y, flip in zip(scanned, backwards)]
    output_axes = scan_output_axes or [0] * len(scanned)
    return (*states, *(np.moveaxis(y, 0, axis) for y, axis in zip(scanned, output_axes)))


@numerics("Scan", until=8, why=fails(BODIES))
def batched_scan(
    lengths: np.ndarray | None, *inputs: np.ndarray, body: LoopBody, num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> tuple[np.ndarray, ...]:
    """Opset 8 scans each sample of a batch by itself; samples may be shorter than the longest."""
    n_states = len(inputs) - num_scan_inputs
    longest = inputs[n_states].shape[1]
    flips = directions or [0] * num_scan_inputs
    samples = []
    for i in range(inputs[0].shape[0]):
        length = longest if lengths is None else int(lengths[i])
        rows = [x[i, :length][::-1] if flip else x[i, :length] for x, flip in zip(inputs[n_states:], flips)]
        states, scanned = _scan_rows([x[i] for x in inputs[:n_states]], rows, body)
        samples.append([*states, *(_padded(y, longest) for y in scanned)])
    return tuple(np.stack(values) for values in zip(*samples))


@numerics("SequenceMap", why=fails(BODIES))
def sequence_map(sequence: list[Any], *others: Any, body: LoopBody) -> tuple[list[Any], ...]:
    """Runs the body on each element; other sequences are iterated along with it, tensors are passed unchanged."""
    rows = [
        body([element, *(other[i] if isinstance(other, list) else other for other in others)])
        for i, element in enumerate(sequence)
    ]
    if not rows:
        return tuple([] for _ in getattr(body, "output_types", [None]))
    return tuple(list(values) for values in zip(*rows))


def _scan_rows(states: list[Any], rows: list[np.ndarray], body: LoopBody) -> tuple[list[Any], list[np.ndarray]]:
    """The last states, and each of the body's further outputs stacked over the iterations."""
    results = []
    for slices in zip(*rows):
        outputs = list(body([*states, *map(np.asarray, slices)]))
        states, scanned = outputs[: len(states)], outputs[len(states) :]
        results.append(scanned)
    if results:
        return states, [np.stack(values) for values in zip(*results)]
    n_outputs = len(getattr(body, "output_types", states))
    formal = [*states, *(np.empty(x.shape[1:], x.dtype) for x in rows)]
    return states, [_stacked([], body, i, formal) for i in range(len(states), n_outputs)]


def _stacked(values: list[Any], body: LoopBody, output: int, formal: Sequence[Any]) -> Any:
    """The values stacked along a new first axis. Without values, an empty array of the declared type, or one-dimensional
    without a declaration; sizes follow from the body's formal inputs, and are 0 otherwise."""
    if values:
        return np.stack(values)
    stated = getattr(body, "output_types", None)
    dtype, shape = (stated[output] if stated else None) or (np.dtype(np.float32), ())
    sizes = body.sizes(formal) if hasattr(body, "sizes") else {}
    return np.empty((0, *(size if isinstance(size, int) else sizes.get(size, 0) for size in shape or ())), dtype)


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    """Pads with zero rows up to ``length`` rows."""
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1))


@numerics("SequenceInsert", why=differs("where an item goes to the end"))
def sequence_insert(items: list[Any], item: np.ndarray, position: np.ndarray | None = None) -> list[Any]:
    """Inserts the item before a position, which may be the end, and counts from there if negative. (ONNX's own reference inserts
    at the front instead of the end, and nothing into an empty sequence.)"""
    index = len(items) if position is None else int(np.asarray(position).reshape(()))
    if not -len(items) <= index <= len(items):
        raise ValueError(f"position {index} is outside of a sequence of {len(items)}")
    index += len(items) if index < 0 else 0
    return [*items[:index], item, *items[index:]]


@numerics("Optional", why=differs("because it wraps the value in a list"))
def optional(x: Any = None, *, type: Any = None) -> Any:
    """The value itself; without an input, an empty optional."""
    return x
