"""Subgraphs that cannot stay: a device could not compile one, or runs an op only next to others that are elsewhere now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from accelerators.errors import CompileError, asking
from accelerators.interface.accelerator import Accelerator
from accelerators.interface.device_list import Device
from accelerators.isolation import in_its_place
from graph.node import Node


@attrs.frozen(slots=True, eq=False)
class Failure:
    """A call whose ops, or some of them, have to go elsewhere."""

    call: Node
    """The call."""
    error: CompileError
    """The error to raise if the ops cannot run."""
    ops: tuple[str, ...]
    """The ops of its body that the device refuses."""
    reason: str
    """Why, for the report."""


def not_compiled(call: Node, error: CompileError) -> Failure:
    """The device failed to compile the body: all of it goes."""
    assert call.subgraph is not None
    ops = tuple(node.name for node in call.subgraph.nodes if node.is_op)
    return Failure(call, error, ops, f"it took the op and could not compile it: {error.cause}")


def cut_apart(call: Node, device: Device, config: Mapping[str, Any]) -> Failure | None:
    """The ops that the device took in the whole graph and refuses in this part of it; None if there are none.

    Only a transform can make an answer depend on the neighbours: it was asked about the ops that it merges as about
    one op.
    """
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
