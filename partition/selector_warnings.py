"""Notes on a selector for the report: op names that no op has, and methods that it does not override."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partita.graph.errors import UnknownOp, did_you_mean
from partita.graph.formatting import shortened
from partita.graph.ops.schemas import op_names
from partita.partition.hooks import Chooser
from partita.partition.op_index import OpIndex
from partita.partition.selector import SubgraphSelector, domain_and_op


def notes_on(chooser: Chooser, index: OpIndex, groups: Sequence[Sequence[int]]) -> Iterator[str]:
    """The notes. Linear."""
    yield from _unknown_names(chooser, index)
    if isinstance(chooser, SubgraphSelector) and follows_no_edge(chooser) and _touch(index, groups):
        kind = type(chooser).__name__
        yield (
            f"{kind} defines select alone, so each op that it takes is a subgraph of its own: the inherited select_input and "
            "select_output follow no edge"
        )


def follows_no_edge(selector: SubgraphSelector) -> bool:
    """True if both methods about edges are the inherited ones, which refuse."""
    kind = type(selector)
    return (
        kind.select_input is SubgraphSelector.select_input
        and kind.select_output is SubgraphSelector.select_output
        and not {"select_input", "select_output"} & vars(selector).keys()
    )


def _touch(index: OpIndex, groups: Sequence[Sequence[int]]) -> bool:
    """True if an edge leads from one group to another."""
    inside = {v for group in groups for v in group}
    return any(u in inside for v in inside for u in index.preds[v])


def _unknown_names(chooser: Chooser, index: OpIndex) -> Iterator[str]:
    missing = {domain_and_op(name): name for name in chooser.op_names()}
    for node in index.nodes:  # most graphs have all of these ops near the beginning
        if not missing:
            return
        missing.pop((node.domain, node.op or ""), None)
    for (domain, op), name in missing.items():
        known = op_names(domain) or {node.op for node in index.nodes if node.domain == domain and node.op}
        if known and op not in known:
            yield f"There is no op {name!r}, which {shortened(repr(chooser))} looks for. {_hint(op, domain, known)}"


def _hint(op: str, domain: str, known: frozenset[str] | set[str]) -> str:
    from partita.graph.readers.mxnet import onnx_ops

    try:
        mxnet = onnx_ops([op]) if not domain else frozenset()
    except UnknownOp:
        mxnet = frozenset()
    if mxnet:
        return f"It is a name of MXNet's; did you mean {' or '.join(sorted(mxnet))}?"
    return did_you_mean(op, known) or "Ops have ONNX's names; those of another domain are written domain::Op"
