"""Subgraphs that a device cannot compile, or can run only in part once their neighbours are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from partita.accelerators.errors import CompileError, asking
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.isolation import in_its_place
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.bodies import build_body, draft_body, find_exits
from partita.partition.op_index import build_op_index


@attrs.frozen(slots=True, eq=False)
class Failure:
    """A call some or all of whose ops have to move to other devices."""

    call: Node
    """The call."""
    error: CompileError
    """The error to raise if the ops cannot run."""
    ops: tuple[str, ...]
    """The ops of its body that the device refuses."""
    reason: str
    """The reason, for the report."""


def not_compiled(call: Node, error: CompileError, why_not: Callable[[Graph], CompileError | None] | None) -> Failure:
    """The device failed to compile the body. `why_not` returns the reason why it cannot compile a graph, and serves to find the
    op at fault, which moves. Without it, all ops move."""
    assert call.subgraph is not None
    ops = tuple(node.name for node in call.subgraph.nodes if node.is_op)
    if why_not is not None and len(ops) > 1:
        ops, error = _at_fault(call.subgraph, why_not, error)
    return Failure(call, error, ops, f"it took the op and could not compile it: {error.cause}")


def _at_fault(
    body: Graph, why_not: Callable[[Graph], CompileError | None], error: CompileError
) -> tuple[tuple[str, ...], CompileError]:
    """The last op of the shortest prefix of the body that does not compile, and the error; all ops if the first and the last op
    alone fail for the same reason. Takes logarithmically many compilations, and a device may reuse the kernels of earlier
    ones."""
    index = build_op_index(body)

    def refusal(members: range) -> CompileError | None:
        (exits,) = find_exits(index, [tuple(members)])
        return why_not(build_body(index, draft_body(index, tuple(members), exits, dedup=True), body.name))

    whole, broken = 0, len(index.nodes)
    while broken - whole > 1:
        middle = (whole + broken) // 2
        reason = refusal(range(middle))
        if reason is None:
            whole = middle
        else:
            broken, error = middle, reason
    last = refusal(range(len(index.nodes) - 1, len(index.nodes))) if broken == 1 else None
    is_all = last is not None and last.cause == error.cause
    return tuple(node.name for node in (index.nodes if is_all else index.nodes[broken - 1 : broken])), error


def cut_apart(call: Node, device: Device, config: Mapping[str, Any]) -> Failure | None:
    """The ops that the device supports in the whole graph but not in this part of it; None if there are none.

    Only a transform can make an answer depend on the neighbours: the query judged the ops that it merges as one op."""
    accelerator = device.accelerator
    assert call.subgraph is not None
    if not _depends_on_neighbours(accelerator):
        return None
    with asking(f"query of device {device.label!r}"):
        answers = in_its_place(accelerator, config).configured(config).query(call.subgraph)
    refused = {name: answer for name, answer in answers.items() if answer is not True}
    if not refused:
        return None
    name, answer = next(iter(refused.items()))
    where = f"subgraph {call.name!r} on {device.label!r}"
    error = CompileError(f"cut from its neighbours, {name!r} is not what it runs: {answer}", where=where)
    return Failure(call, error, tuple(refused), f"cut from its neighbours, it is not what it runs: {answer}")


def _depends_on_neighbours(accelerator: Accelerator) -> bool:
    kind = type(accelerator)
    rewrites = kind.transform is not Accelerator.transform or kind.stages is not Accelerator.stages
    return rewrites and kind.query is Accelerator.query and not kind.compile_refuses
