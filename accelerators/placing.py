"""Finding a place for each node: fallback by priority, after what is pinned, forbidden, or placed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelerators.choosing import choose, unsupported
from accelerators.device_list import Device, parse_devices
from accelerators.ending import at_a_device
from accelerators.errors import AcceleratorError, NotSupported
from accelerators.placement import Placement, without_calls
from accelerators.rules import Forbid, Pin, Rules, resolve_rules
from accelerators.support import SupportTable
from graph.graph import Graph
from passes.infer import infer
from passes.views import TypeView


@at_a_device()
def query(
    graph: Graph, devices: str | Sequence[str] | None = None, *, pin: Pin | None = None, forbid: Forbid | None = None
) -> Placement:
    """Where HETERO would place each op: on the first of the devices that runs it. Affinities of the graph play no part.

    `pin={"conv.*": device}` forces nodes whose whole name matches, `forbid={"Softmax": device}` excludes an op or such nodes."""
    asked = parse_devices(devices)
    return place(live_part(_checked_types(checked_graph(graph, "query"))), asked, pin, forbid)


def place(
    graph: Graph,
    devices: Sequence[Device],
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    fixed: Mapping[str, str] | None = None,
) -> Placement:
    """The placement of a graph with types; `fixed` gives the devices of nodes that have theirs already.

    Calls are placed whole, on the first device that takes all that is inside; what none takes is inlined."""
    fixed = fixed or {}
    inlined: list[str] = []
    while True:
        rules = resolve_rules(graph, devices, pin, forbid)
        table = SupportTable(graph, devices)
        homeless = _homeless_calls(graph, devices, table, rules, fixed)
        if not homeless:
            break
        inlined += homeless
        graph = typed(without_calls(graph, homeless))
    where, refused = {}, []
    for node in graph.nodes:
        if node.is_op:
            label = fixed.get(node.name) or choose(node.name, devices, table, rules)
            if label is None:
                refused.append(node)
            else:
                where[node.name] = label
    if refused:
        raise unsupported(refused, devices, table, rules)
    by_hand = dict.fromkeys(fixed, "it had this affinity")
    by_hand.update((name, rule) for name, (_, rule) in rules.pinned.items())
    placement = Placement(table, devices, rules, where, by_hand, tuple(inlined))
    _check_forced(placement, table, rules, fixed)
    return placement


def _homeless_calls(
    graph: Graph, devices: Sequence[Device], table: SupportTable, rules: Rules, fixed: Mapping[str, str]
) -> list[str]:
    calls = [node.name for node in graph.nodes if node.is_call and node.name not in fixed]
    return [name for name in calls if choose(name, devices, table, rules) is None]


def _check_forced(placement: Placement, table: SupportTable, rules: Rules, fixed: Mapping[str, str]) -> None:
    """What the user forces onto a device has to run there."""
    for name in (*rules.pinned, *fixed):
        label = placement.get(name)
        reason = table.refusals(label).get(name) if label is not None else None
        if reason is not None:
            how = rules.pinned[name][1] if name in rules.pinned else "its affinity"
            raise NotSupported(
                f"{how} puts it on {label!r}, which does not run it: {reason}",
                where=f"node {name!r} ({placement.graph[name].op})",
                remedy="Choose another device, or let query place it",
            )


def checked_graph(graph: Graph, where: str) -> Graph:
    """The argument, if it is a graph."""
    if not isinstance(graph, Graph):
        raise AcceleratorError(f"{type(graph).__name__} is no Graph", where=where, remedy="Read a model with load(...) first")
    return graph


def typed(graph: Graph) -> Graph:
    """The graph with the types of its values, as far as they follow."""
    known = all(made is not None for node in graph.nodes for made, name in zip(node.output_types, node.output_names) if name)
    return graph if known else infer(graph, strict=False)


def _checked_types(graph: Graph) -> Graph:
    """The same, and declared types are held against what follows, unless InferShape has done so."""
    return graph if isinstance(graph.attrs.get("shape"), TypeView) else infer(graph, strict=False, check_declared=True)


def live_part(graph: Graph) -> Graph:
    """The graph without the nodes that no output needs."""
    from passes import apply_pass

    return apply_pass(graph, "EliminateDead", verify=False)
