"""A decoder shared by sessions: its steps, compiled on first use of a size, and the fallback that copies caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.decoder.input_roles import Roles, TooLong, Unfit, roles_of
from partita.accelerators.decoder.kv_pairs import State, find_caches, held, positions, with_room
from partita.accelerators.decoder.step import LENGTH, StepSizes, most_positions, prompt_graph, step_graph
from partita.accelerators.decoder.tokens import token_axes
from partita.accelerators.errors import CompileError, InputError, NotSupported, RunError
from partita.accelerators.process.forking import Guard
from partita.graph.body_builder import BodyBuilder, body_call
from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.microsoft import DOMAIN, NoBody, body_of
from partita.graph.microsoft.grouped import appended
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType, numpy_dtype
from partita.passes import apply_pass

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel

Array = np.ndarray[Any, Any]


class Decoder:
    """A compiled model with caches."""

    def __init__(self, model: CompiledModel, source: Graph, anew: Callable[[Graph], CompiledModel] | None) -> None:
        self.model = model
        roles = decoder_roles(source)
        if roles is None:
            raise NotSupported(
                "the model keeps nothing from call to call: no input comes back as an output with something behind it",
                where=f"model {source.name!r}",
                remedy="A session is for decoders with past and present keys and values",
            )
        self.roles: Roles = roles
        self.checker = InputChecker(roles.graph)
        """Checks the caller's inputs."""
        self._anew = anew
        self._steps: dict[StepSizes, CompiledModel] = {}
        self._prompts: dict[int, CompiledModel | None] = {}
        """The model without a past for each number of sequences, if that is compiled for any number of tokens."""
        self._guard = Guard()
        self.limit: int | None = None
        """The maximum number of positions that its attention supports; None if no limit was found."""
        self._token_axes: tuple[tuple[int | None, ...] | None] | None = None
        self._is_closed = False
        self.notes: list[str] = []
        """The reasons why caches are copied, if they are."""
        if anew is None:
            self.notes.append("caches are copied: the devices of this model have no attention to a cache that is appended to")
        rings = [cache.past.name for cache in roles.caches if cache.is_ring]
        if rings:
            self.notes.append(f"caches are copied: {rings[0]!r} is a ring, in which new positions take the places of old ones")

    @property
    def room(self) -> int | None:
        """The model's own capacity in positions; None if its caches grow, or are ring buffers."""
        rooms = [cache.room for cache in self.roles.caches if cache.room is not None and not cache.is_ring]
        return min(rooms) if rooms else None

    @property
    def copies(self) -> bool:
        """True if caches are copied in each call."""
        return bool(self.notes)

    def token_axes(self) -> tuple[int | None, ...] | None:
        """The axis of tokens of each output, None if it depends on the last one; None if tokens cannot be read in pieces."""
        with self._guard.lock:
            if self._token_axes is None:
                self._token_axes = (token_axes(self.roles),)
            return self._token_axes[0]

    def has_step(self, sizes: StepSizes) -> bool:
        """True if the step for these sizes is compiled."""
        return sizes in self._steps

    def reads_any_length(self, state: State) -> bool:
        """True if any number of tokens is read at once without a compilation. If the model itself is compiled for each size, the
        model without a past may still be compiled for all."""
        return self.model.is_for_any_size or (not state.length and self._prompt(state) is not None)

    def _prompt(self, state: State) -> CompiledModel | None:
        """The model without a past; None if it is not compiled for any number of tokens."""
        assert state.batch is not None
        with self._guard.lock:
            if state.batch not in self._prompts and self._anew is not None and not self._is_closed:
                try:
                    compiled = self._anew(prompt_graph(self.roles, state.batch))
                    self._prompts[state.batch] = compiled if compiled.is_for_any_size else None
                except (Unfit, CompileError, NotSupported):
                    self._prompts[state.batch] = None
            return self._prompts.get(state.batch)

    def close(self) -> None:
        """Close the steps; later calls of sessions are errors."""
        with self._guard.lock:
            self._is_closed = True
            for model in (*self._steps.values(), *self._prompts.values()):
                if model is not None:
                    model.close()

    def step(self, sizes: StepSizes) -> CompiledModel | None:
        """The step for these sizes; None if the decoder is not recognised, and from then on caches are copied. Also None if the
        model supports fewer positions than these sizes require: then `limit` is the number that it supports."""
        with self._guard.lock:
            if self._is_closed:
                raise RunError("the model is closed", where=f"model {self.roles.graph.name!r}", remedy="Compile it again")
            if sizes not in self._steps and not self.copies:
                assert self._anew is not None
                try:
                    self._steps[sizes] = self._anew(step_graph(self.roles, sizes))
                except TooLong as error:
                    most = most_positions(self.roles, sizes)
                    self.limit = most or self.limit
                    if not most:
                        self.notes.append(f"caches are copied: {error.cause}")
                except (Unfit, CompileError, NotSupported) as error:
                    self.notes.append(f"caches are copied: {error.cause}")
            return self._steps.get(sizes)

    # -- state -------------------------------------------------------------------------------------------

    def begin(self, state: State, batch: int) -> None:
        """Creates empty caches for this many sequences."""
        state.batch, state.length = batch, 0
        for cache in self.roles.caches:
            kind = cache.past.output_types[0]
            assert isinstance(kind, TensorType) and kind.shape is not None
            shape = self.roles.cache_shape(cache, batch, 0)
            if -1 in shape:
                cause = f"the size {kind.shape[shape.index(-1)]!r} of the cache {cache.past.name!r} is not known"
                raise InputError(cause, where=f"model {self.roles.graph.name!r}", remedy="Give it when compiling: shapes={...}")
            state.arrays[cache.past.name] = np.zeros(shape, numpy_dtype(kind.dtype))

    def make_room(self, state: State, room: int) -> None:
        """Resizes each cache to this many positions; the positions in use stay in place."""
        for cache in self.roles.caches:
            array = state.arrays[cache.past.name]
            if cache.grows and array.shape[cache.axis] != room:
                state.arrays[cache.past.name] = with_room(held(array, cache, state.length), cache.axis, state.length, room)

    # -- running -----------------------------------------------------------------------------------------

    def append(self, step: CompiledModel, state: State, rows: int, given: Mapping[str, Any]) -> list[Any]:
        """The outputs of a step, except caches; new positions are written after those in use."""
        outputs = step({**given, **state.arrays, LENGTH: np.array([state.length])})
        for cache in self.roles.caches:
            buffer = state.arrays[cache.past.name]
            positions(buffer, cache.axis, state.length, state.length + rows)[...] = outputs[cache.output]
        state.length += rows
        return self._others(outputs)

    def copy(self, state: State, rows: int, given: Mapping[str, Any], room: int | None = None) -> list[Any]:
        """The same by the model itself: each present becomes the next past, or its new positions are written after those in use
        in buffers of capacity `room`."""
        if room is not None:
            self.make_room(state, room)
        pasts = {name: np.ascontiguousarray(array) for name, array in state.used(self.roles.caches).items()}
        prompt = None if room is None or state.length or self.model.is_for_any_size else self._prompt(state)
        outputs = self.model({**given, **pasts}) if prompt is None else prompt(given)
        state.length += rows
        for cache in self.roles.caches:
            name, present = cache.past.name, outputs[cache.output]
            if room is None or not cache.grows:
                state.arrays[name] = present
            else:
                new = min(rows, present.shape[cache.axis])
                last = positions(present, cache.axis, present.shape[cache.axis] - new, present.shape[cache.axis])
                positions(state.arrays[name], cache.axis, state.length - new, state.length)[...] = last
        return self._others(outputs)

    def _others(self, outputs: Sequence[Any]) -> list[Any]:
        cached = {cache.output for cache in self.roles.caches}
        return [value for i, value in enumerate(outputs) if i not in cached]

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs that are not caches."""
        cached = {cache.output for cache in self.roles.caches}
        return [name for i, name in enumerate(self.roles.graph.output_names) if i not in cached]


def decoder_roles(source: Graph) -> Roles | None:
    """The inputs of a decoder by their roles; None if it keeps nothing from call to call. Linear."""
    source = with_heads(apply_pass(with_joined_caches(source), "SimplifyIdentities", verify=False))
    caches = find_caches(source)
    return roles_of(source, caches) if caches else None


HEADS = ("q_num_heads", "kv_num_heads", "kv_num_heads")
"""The attributes with the number of heads of the first three inputs."""


def with_heads(graph: Graph) -> Graph:
    """The graph with each Attention of rank 3 rewritten to one of rank 4 between reshapes and transposes. Linear."""
    if not any(_is_flat(node) for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        if _is_flat(node):
            _split(node, rewriter)
        else:
            rewriter.keep(node)

    return rewrite(graph, visit)


def _is_flat(node: Node) -> bool:
    kind = node.inputs[0].type if node.op == "Attention" and not node.domain and node.inputs[0] is not None else None
    return isinstance(kind, TensorType) and kind.rank == 3 and all(name in node.attrs for name in HEADS)


def _split(node: Node, rewriter: Rewriter) -> None:
    """Rewrites one Attention. Present keys and values have separate heads in both forms; the result's are packed again."""
    rebuilt = rewriter.rebuilt(node, output_types=(None, *node.output_types[1:]))
    read: list[NodeEntry | None] = list(rebuilt.inputs)
    for slot, name in enumerate(HEADS):
        entry = read[slot]
        assert entry is not None
        apart = rewriter.keep(op("Reshape", entry, rewriter.keep(constant(np.array([0, 0, int(node.attrs[name]), -1])))))
        read[slot] = rewriter.keep(op("Transpose", apart, perm=[0, 2, 1, 3]))[0]
    attrs = {name: value for name, value in rebuilt.attrs.items() if name not in HEADS}
    kept = rewriter.keep(node, rebuilt.evolve(inputs=tuple(read), attrs=attrs))
    turned = rewriter.keep(op("Transpose", kept, perm=[0, 2, 1, 3]))
    rewriter.replace(node[0], rewriter.keep(op("Reshape", turned, rewriter.keep(constant(np.array([0, 0, -1])))))[0])


_PAST = {"GroupQueryAttention": 3, "MultiHeadAttention": 6}
"""The index of the input with earlier keys, for each of onnxruntime's ops."""


def with_joined_caches(graph: Graph) -> Graph:
    """The graph with each of onnxruntime's attentions that has a cache decomposed, so that the join of the cache with new
    positions is visible. Linear.

    GroupQueryAttention takes the number of valid positions of each sequence. In a session all are valid, so new positions follow
    all earlier ones. If that did not hold, the attention would not be recognised, since its mask depends on the number."""
    if not any(_has_cache(node) for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        body = _body(node, graph) if _has_cache(node) else None
        if body is None:
            rewriter.keep(node)
            return
        rewriter.keep(node, rewriter.rebuilt(body_call(node, body, "Joined")))

    return inline_calls(rewrite(graph, visit))


def _has_cache(node: Node) -> bool:
    past = _PAST.get(str(node.op)) if node.domain == DOMAIN else None
    return past is not None and past < len(node.inputs) and node.inputs[past] is not None


def _body(node: Node, graph: Graph) -> Graph | None:
    builder = BodyBuilder(node, graph.opsets)
    try:
        if node.op == "GroupQueryAttention":
            return appended(builder)
        return body_of(node, builder.types, builder.values, builder.version).evolve(opsets=graph.opsets)
    except NoBody:
        return None
