"""Queries a device about the transformed graph, and returns the answers by the names of the original nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from partita.accelerators.errors import MEND, DeviceMistake, Returns, named
from partita.accelerators.interface.inlining import inlined_with_owners
from partita.accelerators.interface.provenance import FUSED as FUSED
from partita.accelerators.interface.provenance import Answer, Answers, carried_back, lost_calls, worse
from partita.graph.build import is_made_call
from partita.graph.formatting import in_code
from partita.graph.graph import Graph
from partita.graph.nested import bodies_of
from partita.graph.node import Node
from partita.graph.order import reachable
from partita.passes.infer import with_missing_types

if TYPE_CHECKING:
    from partita.accelerators.interface.accelerator import Accelerator

Judge = Callable[[Node, Graph], Answer]
"""Judges an op of a graph: True, or the reason why not."""

Support = dict[str, Answer]
"""For each op node: True, or the reason why not."""


def query_through_transform(device: Accelerator, graph: Graph, whole: bool = True) -> Support:
    """Calls `device.supports` for each op of the transformed graph, and carries the answers back to the original nodes, by stage.

    A call that the first stage inlined is supported if all ops of its body are. A call that a partition made is compiled
    alone, so its body decides: support for the op `Call` tells nothing about its contents. If the graph is itself a body (not
    the `whole`), the device has to support the calls in it as ops too. Linear in the graph and its calls' bodies."""
    trail = [graph]
    for stage in _stages(device, graph):
        lost = lost_calls(graph, stage) if len(trail) == 1 else []
        if lost:
            return _query_inlined(device, graph, lost, whole)
        if stage is not trail[-1]:
            trail.append(stage)
    last = trail[-1]
    answers: Answers = {node: _supported(device, node, last) for node in last.nodes if node.is_op}
    own = {node.name for node in graph.nodes if is_made_call(node)}
    alone = _asked_alone(device, [node for node in answers if node.name in own and is_made_call(node)])
    answers.update({call: answer for call, answer in alone.items() if whole or answers[call] is True})
    for new, old in zip(reversed(trail), reversed(trail[:-1]), strict=False):
        answers = carried_back(old, new, answers, device.loses_nothing)
    return {node.name: answers[node] for node in graph.nodes if node.is_op}


def with_own_nodes(graph: Graph) -> Graph:
    """A copy with its own nodes, also in bodies, so that a device may set affinities without changing the caller's graph."""
    copied = copy.deepcopy(graph.evolve(attrs={}))
    copied.attrs.update(graph.attrs)
    return copied


def _stages(device: Accelerator, graph: Graph) -> Iterator[Graph]:
    steps = iter(device.stages(graph))
    while (stage := _next_stage(device, steps)) is not _END:
        if not isinstance(stage, Graph):
            raise DeviceMistake(f"it gave {in_code(stage)}, not a Graph", where=f"stages of device {device.name!r}", remedy=MEND)
        yield stage


_END = object()
_next_stage = named(lambda device, steps: next(steps, _END), "stages", Returns(), lambda device: f"device {device.name!r}")


def _asked_alone(device: Accelerator, calls: Sequence[Node]) -> Answers:
    """The answers about calls, from queries of their bodies as separate graphs; shared bodies are queried once."""
    bodies = {id(call.subgraph): call.subgraph for call in calls if call.subgraph is not None}
    refused = {key: first_refusal(query_through_transform(device, body, whole=False), body) for key, body in bodies.items()}
    return {call: refused[id(call.subgraph)] or True for call in calls}


def _query_inlined(device: Accelerator, graph: Graph, lost: Sequence[Node], whole: bool) -> Support:
    """The answers if these calls are inlined: a function of the model is queried in place, a partition's call alone, as it will
    be compiled."""
    names = {call.name for call in lost}
    flat, owners = inlined_with_owners(graph, names, nested=True)
    flat = _with_all_that_calls_read(flat, [*filter(is_made_call, lost)]) if whole else flat
    answers = query_through_transform(device, flat, whole)
    inside: Support = {}
    for node in flat.nodes:
        owner = owners.get(node.name)
        if owner is not None:
            answer = answers[node.name]
            inside[owner] = worse(inside.get(owner, True), True if answer is True else f"its body holds {node.name!r}: {answer}")
    if whole:
        inside.update((call.name, answer) for call, answer in _asked_alone(device, [*filter(is_made_call, lost)]).items())
    return {
        node.name: inside.get(node.name, True) if node.name in names else answers[node.name] for node in graph.nodes if node.is_op
    }


def _with_all_that_calls_read(flat: Graph, calls: Sequence[Node]) -> Graph:
    """The graph without these calls, with their otherwise unneeded inputs as outputs. A call that is compiled alone gets all of
    its inputs, even those that its body does not read, so some device has to compute them. Linear."""
    needed = set(reachable([entry.node for entry in flat.outputs]))
    read = dict.fromkeys(entry for call in calls for entry in call.reads if entry.node.is_op)
    there = {node.name: node for node in flat.nodes}
    values = [there[entry.node.name][entry.index] for entry in read if entry.node.name in there]
    unread = [value for value in values if value.node not in needed]
    return flat.evolve(outputs=(*flat.outputs, *unread), output_names=None) if unread else flat


NO_ANSWER = "its query gave no answer"


def first_refusal(answers: Mapping[str, object], body: Graph) -> str | None:
    """The first refusal of an op of the body, according to the device's answers."""
    for node in body.nodes:
        if node.is_op:
            answer = answers.get(node.name, NO_ANSWER)
            if answer is not True:
                return f"its body holds {node.name!r}: {answer}"
    return None


def _supported(device: Accelerator, node: Node, graph: Graph) -> Answer:
    """The device's answer about the node and, for an If, Loop or Scan, about all ops in its bodies."""
    answer = yes_or_why_not(device.says(node, graph), f"supports of device {device.name!r}", node.name)
    if answer is True and not node.is_call:
        return refused_inside(node, lambda inner, body: _supported(device, inner, body)) or True
    return answer


def refused_inside(node: Node, judge: Judge) -> str | None:
    """The first refusal of an op in the node's bodies."""
    for body in bodies_of(node):
        for inner in body.nodes:
            answer = judge(inner, body) if inner.is_op else True
            if answer is not True:
                return f"its body holds {inner.name!r}: {answer}"
    return None


def yes_or_why_not(answer: object, where: str, name: str) -> Answer:
    """Checks the answer of a device's hook about the node of this name: True, or a reason; False gets a generic reason."""
    if isinstance(answer, (bool, np.bool_)):
        return True if answer else "it does not say why"
    if isinstance(answer, str) and answer:
        return answer
    raise DeviceMistake(f"it answers {in_code(answer)} about {name!r}, not True or the reason why not", where=where, remedy=MEND)


def checked_answers(answers: object, graph: Graph, where: str) -> Support:
    """Checks the answers of a device's own `query`; raises DeviceMistake unless they are about nodes of the graph, by name."""
    if not isinstance(answers, Mapping):
        cause = f"it returned {type(answers).__name__}, not a mapping from node name to answer"
        raise DeviceMistake(cause, where=where, remedy=MEND)
    names = {node.name for node in graph.nodes}
    for name in answers:
        if not isinstance(name, str) or name not in names:
            raise DeviceMistake(f"it answers about {in_code(name)}, which is not the name of a node", where=where, remedy=MEND)
    return {name: yes_or_why_not(answer, where, name) for name, answer in answers.items()}


def query_by_op(graph: Graph, judge: Judge) -> Support:
    """The judge's answer for each op; a call is supported if all ops of its body are."""
    shown = with_missing_types(graph)
    return {node.name: _judged(node, shown, judge) for node in shown.nodes if node.is_op}


def _judged(node: Node, graph: Graph, judge: Judge) -> bool | str:
    if not node.is_call:
        return judge(node, graph)
    return judged_inside(node, judge) or True


def judged_inside(node: Node, judge: Judge) -> str | None:
    """The first refusal in the node's bodies; inner calls are judged by their own bodies."""
    return refused_inside(node, lambda inner, body: _judged(inner, body, judge))
