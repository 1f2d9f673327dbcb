"""Splits a captured graph of which Partita can run only parts: those become calls, and torch runs the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.logs import logger
from partita.torch_compile.captured import Captured
from partita.torch_compile.exporting import NotExported, export_graph
from partita.torch_compile.graph_call import GraphCall
from partita.torch_compile.layouts import is_number, memory_of
from partita.torch_compile.side_effects import sets_a_mode, writes_to_shared

if TYPE_CHECKING:
    import torch

LEAST = 2
"""Minimum number of ops of a part; for smaller ones the transfer of tensors would cost more than it saves."""


def split(module: torch.fx.GraphModule, inputs: Sequence[Any], call: Callable[[Any], GraphCall]) -> Callable[..., Any]:
    """The graph with a call for each part that Partita runs.

    Halves of the graph, in its order, are exported, and halves of those that cannot be, until the ops are found that have to stay
    in torch: for n ops with k different ones this takes about 2 k log n exports, of ever smaller parts. A graph that changes its
    inputs, or tensors with views, in place stays in torch as a whole. So does one that sets a mode of torch's, such as autocast,
    for some of its ops: half of it would leave torch in that mode."""
    ops = [node for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr") and not _is_taken(node)]
    setter = next(filter(sets_a_mode, ops), None)
    for op, reason in ((writes_to_shared(module), "changes a tensor in place"), (setter, "sets a mode of torch's")):
        if op is not None:
            logger("torch").info("torch runs all of a graph, since %s %s", op.name, reason)
            return module.forward
    pieces = _pieces(module, ops, inputs)
    cut = _cut(module, ops, [piece.first for piece in pieces[1:]])
    for number, piece in enumerate(pieces):
        if piece.is_exported and piece.last - piece.first >= LEAST:
            part = getattr(cut, f"submod_{number}")
            part.forward = call(part)
    left = [op for piece in pieces if not piece.is_exported for op in ops[piece.first : piece.last]]
    names = ", ".join(dict.fromkeys(str(op.target) for op in left))
    logger("torch").info("a graph of %d ops is cut into %d parts; torch runs %s", len(ops), len(pieces), names)
    return cut.forward


@attrs.frozen
class Piece:
    """Neighbouring ops of the graph."""

    first: int
    last: int
    """Index after the last op."""
    is_exported: bool
    """True if they have a form in ONNX together."""


def _pieces(module: Any, ops: Sequence[Any], inputs: Sequence[Any]) -> list[Piece]:
    """All ops in pieces: neighbours that stay in torch together, and neighbours that can be exported together."""
    middle = len(ops) // 2
    halves = (0, middle), (middle, len(ops))
    joined: list[Piece] = []
    unfit = set[Any]()
    for piece in (piece for half in halves for piece in _halved(module, ops, inputs, *half, unfit)):
        before = joined[-1] if joined else None
        if before is None or before.is_exported != piece.is_exported:
            joined.append(piece)
            continue
        first, last = before.first, piece.last
        # The whole graph was tried before.
        if piece.is_exported and (last - first == len(ops) or not _is_exported(module, ops, inputs, first, last)):
            joined.append(piece)
            continue
        joined[-1] = Piece(first, last, piece.is_exported)
    return joined


def _halved(module: Any, ops: Sequence[Any], inputs: Sequence[Any], first: int, last: int, unfit: set[Any]) -> list[Piece]:
    """The ops of a range, halved until each piece can be exported, or is a single op that cannot, like those of `unfit` kinds."""
    if first == last:
        return []
    stays = next((i for i in range(first, last) if _kind(ops[i]) in unfit), None)
    if stays is not None:
        before, after = ((first, stays), (stays + 1, last))
        alone = [Piece(stays, stays + 1, False)]
        return _halved(module, ops, inputs, *before, unfit) + alone + _halved(module, ops, inputs, *after, unfit)
    is_exported = _is_exported(module, ops, inputs, first, last)
    if last - first == 1 and not is_exported:
        unfit.add(_kind(ops[first]))
    if is_exported or last - first == 1:
        return [Piece(first, last, is_exported)]
    middle = (first + last) // 2
    return _halved(module, ops, inputs, first, middle, unfit) + _halved(module, ops, inputs, middle, last, unfit)


def _kind(op: Any) -> Any:
    """The op with the types and ranks of its arguments."""
    import torch

    def kind(value: Any) -> Any:
        if not isinstance(value, torch.fx.Node):
            return repr(value)
        example = value.meta.get("example_value", value.meta.get("val"))
        return (example.dtype, example.dim()) if isinstance(example, torch.Tensor) else type(example)

    return op.op, op.target, *map(kind, torch.utils._pytree.tree_leaves((op.args, op.kwargs)))


def _is_exported(module: Any, ops: Sequence[Any], inputs: Sequence[Any], first: int, last: int) -> bool:
    """True if the ops of this range have a form in ONNX as one graph."""
    cut = _cut(module, ops, sorted({first, last} - {0, len(ops)}))
    number = 1 if first else 0
    part, given = getattr(cut, f"submod_{number}"), _inputs_of(cut, inputs, f"submod_{number}")
    try:
        export_graph(Captured.of(part), given, dynamic=False)
    except NotExported:
        return False
    return True


def _cut(module: Any, ops: Sequence[Any], starts: Sequence[int]) -> Any:
    """The graph as consecutive parts that begin with these ops: `submod_0`, `submod_1`, …"""
    import torch
    from torch.fx.passes.split_module import split_module

    part_of = {node: sum(start <= i for start in starts) for i, node in enumerate(ops)}
    for node in [*filter(_is_taken, module.graph.nodes)]:
        node.args[0].append(node)
        part_of[node] = part_of[node.args[0]]
    return split_module(module, torch.nn.Module(), lambda node: part_of.get(node, 0), keep_original_order=True)


def _is_taken(node: Any) -> bool:
    """True for the extraction of one of an op's several results. It belongs to the op's part: parts pass tensors, not tuples."""
    return node.target is operator.getitem and memory_of(node.args[0]) is None and not is_number(node.args[0])


def _inputs_of(cut: Any, inputs: Sequence[Any], name: str) -> tuple[Any, ...]:
    """Arguments of a part of the graph."""
    import torch

    calls: dict[str, tuple[Any, ...]] = {}

    class Noting(torch.fx.Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            calls[str(target)] = args
            return super().call_module(target, args, kwargs)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        Noting(cut).run(*inputs)
    return calls[name]
