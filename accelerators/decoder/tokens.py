"""Decides if the tokens of one call may be read in pieces: only attention to the caches may combine them.

A model that takes a mean over its tokens, or moves them along, computes something else for a piece than for all tokens. Ops are
followed from the tokens to the outputs. An op that is not known to keep tokens separate counts as one that combines them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

import attrs
import numpy as np

from partita.accelerators.decoder.attention_match import find_regions
from partita.accelerators.decoder.input_roles import Roles, Unfit, readers_of
from partita.accelerators.decoder.kv_pairs import TO_THE_END
from partita.accelerators.decoder.values_at_length import Known, known_at, of_sizes
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType, numpy_dtype

FEW, MORE = 7, 11
"""Numbers of tokens at which shapes are compared: a dimension that differs counts tokens."""

ELEMENTWISE = ops("unary", "broadcast", "quantizing", "casting", "forwarding") | {"DynamicQuantizeLinear", "Expand"}
"""Ops that compute each element from those at the same position."""

ALONG_ONE = {"LpNormalization": -1, "TopK": -1, "ArgMax": 0, "ArgMin": 0, "Concat": 0, "Split": 0, "Gather": 0}
"""Ops that compute along one axis, with its default."""


@attrs.frozen(slots=True)
class Along:
    """The tokens are along an axis of a value."""

    axis: int
    each: int
    """Number of consecutive elements along that axis for each token."""


State = Along | Literal["last"]
"""The dependence of a value on tokens: each part on its own token, or all of it on the last one."""


class Joined(Exception):
    """An op combines tokens, or may do so."""


def token_axes(roles: Roles) -> tuple[int | None, ...] | None:
    """The axis of tokens of each output except caches, None if it depends on the last one; None if tokens cannot be
    read in pieces. Linear."""
    if "rows" in roles.fixed or any(_may_count(node, roles) for node in roles.asked):
        return None
    follow = of_sizes(roles)
    try:
        regions = find_regions(roles.graph, roles.caches, follow, readers_of(roles.graph))
    except Unfit:
        return None
    looked_at = [entry for node in roles.graph.nodes if not node.is_constant for entry in node.outputs if entry not in follow]
    batch = roles.fixed.get("batch", 2)
    few, more = (known_at(roles, follow, looked_at, batch, rows, 1, others=max(batch, 2)) for rows in (FEW, MORE))
    walk = _TokenWalk(roles, follow, few, more)
    for region in regions:
        walk.inside.update(region.nodes)
        walk.results[region.result.node] = region.result
    try:
        return walk.outputs()
    except Joined:
        return None


def _may_count(node: Node, roles: Roles) -> bool:
    """True for an integer for all tokens of a call, such as the position of the first: the next piece would need another."""
    kind = node.output_types[0]
    if not isinstance(kind, TensorType) or kind.shape is None or numpy_dtype(kind.dtype).kind not in "iu":
        return False
    return all(dim == 1 or (isinstance(dim, str) and roles.symbols.get(dim) == "batch") for dim in kind.shape)


class _TokenWalk:
    """Follows tokens from the inputs to the outputs."""

    def __init__(self, roles: Roles, follow: Collection[NodeEntry], few: Known, more: Known) -> None:
        self.roles = roles
        self.follow = follow
        self.few = few
        self.more = more
        self.states: dict[NodeEntry, State] = {}
        self.inside = {node for cache in roles.caches for node in (cache.joined.node, roles.graph.outputs[cache.output].node)}
        """The ops of attention, which may combine tokens."""
        self.results: dict[Node, NodeEntry] = {}

    def outputs(self) -> tuple[int | None, ...]:
        for node in self.roles.graph.nodes:
            self._pass(node)
        cached = {cache.output for cache in self.roles.caches}
        return tuple([self._axis(entry) for i, entry in enumerate(self.roles.graph.outputs) if i not in cached])

    def _axis(self, entry: NodeEntry) -> int | None:
        """The axis of an output's tokens."""
        state = self.states.get(entry)
        if entry.node in self.inside and entry.node not in self.results:
            raise Joined
        if not isinstance(state, Along):
            return None
        if state.each != 1 or self.shape(entry)[state.axis] != FEW:
            raise Joined
        return state.axis

    def _pass(self, node: Node) -> None:
        """Derives the state of an op's outputs from those of its inputs."""
        if node in self.results:
            self.states[self.results[node]] = Along(self._only_axis(self.results[node]), 1)
        elif node.is_variable:
            kind = node.output_types[0]
            dims = kind.shape or () if isinstance(kind, TensorType) else ()
            counts_tokens = any(isinstance(dim, str) and self.roles.symbols.get(dim) == "rows" for dim in dims)
            if counts_tokens and node not in self.roles.filled:
                self.states[node[0]] = Along(self._only_axis(node[0]), 1)
        elif node.is_op and node not in self.inside and node[0] not in self.follow:
            read = [entry for entry in (*node.inputs, *node.captures) if entry is not None and entry not in self.follow]
            if any(entry.node in self.inside and entry.node not in self.results for entry in read):
                raise Joined
            states = {self.states[entry] for entry in read if entry in self.states}
            if states == {"last"}:
                self.states.update(dict.fromkeys(node.outputs, "last"))
            elif states:
                self._leave_apart(node, states)

    def _leave_apart(self, node: Node, states: Collection[State]) -> None:
        """Sets the state of an op that keeps tokens separate; raises Joined if it may not."""
        if "last" in states or node.bodies:
            raise Joined
        if self._takes_last(node):
            self.states[node[0]] = "last"
            return
        each = self._each(node)
        for entry in node.outputs:
            if node.op == "DynamicQuantizeLinear" and entry.index > 0:
                continue
            self.states[entry] = Along(self._only_axis(entry), each)

    def _each(self, node: Node) -> int:
        """The number of consecutive elements per token in the op's output."""
        op = str(node.op)
        states = {slot: self.states.get(entry) for slot, entry in enumerate(node.inputs) if entry is not None}
        along = {slot: state for slot, state in states.items() if isinstance(state, Along)}
        first = next(iter(along.values()))
        if op in ops("reshape") and list(along) == [0]:
            return self._reshaped(node, first)
        if len({state.each for state in along.values()}) > 1:
            raise Joined
        if op in ELEMENTWISE:
            counted = {len(self.shape(node.inputs[slot])) - state.axis for slot, state in along.items()}
            if len(counted) > 1:
                raise Joined
        elif op in ops("matrix_product"):
            self._check_product(node, along)
        elif op == "Transpose" or (op == "RotaryEmbedding" and 0 in along) or (op == "Gather" and list(along) == [1]):
            pass
        else:
            touched = _touched(self, node)
            if any(state.axis in touched for state in along.values()) or (op.startswith("Gather") and list(along) != [0]):
                raise Joined
        return first.each

    def _check_product(self, node: Node, along: Mapping[int, Along]) -> None:
        """Raises Joined if the product sums over tokens."""
        for slot, state in along.items():
            rank = len(self.shape(node.inputs[slot]))
            is_first = slot == 0
            turned = node.op == "Gemm" and bool(node.attrs.get("transA" if is_first else "transB", 0))
            summed = rank - (1 if is_first != turned else 2)
            if slot > 1 and node.op == "Gemm":
                continue
            if slot > 1 or state.axis == max(summed, 0):
                raise Joined

    def _reshaped(self, node: Node, state: Along) -> int:
        before, after = self.shape(node.inputs[0]), self.shape(node[0])
        axis = self._only_axis(node[0])
        each, rest = divmod(state.each * math.prod(before[state.axis + 1 :]), math.prod(after[axis + 1 :]))
        if rest or each < 1 or after[axis] % (each * FEW):
            raise Joined
        return each

    def _takes_last(self, node: Node) -> bool:
        """True if the op selects the last token."""
        state = self.states.get(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node.op not in ("Gather", "Slice") or not isinstance(state, Along) or state.each != 1:
            return False
        if self.shape(node.inputs[0])[state.axis] != FEW:
            return False
        if node.op == "Gather":
            axis = int(node.attrs.get("axis", 0)) % len(self.shape(node.inputs[0]))
            return axis == state.axis and self._is_last(node, 1, "")
        steps = self.numbers(node, 4, "steps")
        is_alone = _touched(self, node) == {state.axis} and steps in (None, [1])
        return is_alone and self._is_last(node, 1, "starts") and self._is_end(node)

    def _is_last(self, node: Node, slot: int, name: str) -> bool:
        """True if the op's index is the position of the last token, for any number of tokens."""
        pairs = ((self.few, FEW), (self.more, MORE))
        return all(self.numbers(node, slot, name, known) in ([-1], [count - 1]) for known, count in pairs)

    def _is_end(self, node: Node) -> bool:
        """True if a Slice extends to the end, for any number of tokens."""
        ends = [(self.numbers(node, 2, "ends", known), count) for known, count in ((self.few, FEW), (self.more, MORE))]
        return all(numbers == [count] or (numbers and numbers[0] >= TO_THE_END) for numbers, count in ends)

    def numbers(self, node: Node, slot: int, name: str, known: Known | None = None) -> list[int] | None:
        """The integers of an op's attribute, or of a known input."""
        if name in node.attrs:
            return [int(number) for number in np.atleast_1d(np.asarray(node.attrs[name]))]
        entry = node.inputs[slot] if slot < len(node.inputs) else None
        if entry is None:
            return None
        value: Any = entry.node.value if entry.node.value is not None else (known or self.few).values.get(entry)
        if value is None:
            raise Joined
        return [int(number) for number in np.ravel(value)]

    def shape(self, entry: NodeEntry | None) -> tuple[int, ...]:
        """The shape of a value."""
        shape = None if entry is None else _constant_shape(entry) or self.few.shapes.get(entry)
        if shape is None:
            raise Joined
        return shape

    def _only_axis(self, entry: NodeEntry) -> int:
        """The single axis that counts tokens."""
        few, more = self.shape(entry), self.more.shapes.get(entry)
        if more is None or len(more) != len(few):
            raise Joined
        differing = [axis for axis, (one, other) in enumerate(zip(few, more, strict=True)) if one != other]
        if len(differing) != 1:
            raise Joined
        return differing[0]


def _constant_shape(entry: NodeEntry) -> tuple[int, ...] | None:
    return None if entry.node.value is None else entry.node.value.shape


def _touched(walk: _TokenWalk, node: Node) -> set[int]:
    """The axes along which an op computes."""
    op, rank = str(node.op), len(walk.shape(node.inputs[0]))
    if op in ops("softmax"):
        old = walk.roles.graph.opsets.get("", 13) < 13
        axis = int(node.attrs.get("axis", 1 if old else -1)) % rank
        return set(range(axis, rank)) if old else {axis}
    if op in ops("row_norm"):
        return set(range(int(node.attrs.get("axis", -1)) % rank, rank))
    if op in ALONG_ONE:
        return {int(node.attrs.get("axis", ALONG_ONE[op])) % rank}
    if op == "GatherND":
        first = int(node.attrs.get("batch_dims", 0))
        return set(range(first, first + walk.shape(node.inputs[1])[-1]))
    if op == "Slice" or op.startswith("Reduce"):
        axes = walk.numbers(node, 3 if op == "Slice" else 1, "axes")
        return set(range(rank)) if axes is None else {axis % rank for axis in axes}
    raise Joined
