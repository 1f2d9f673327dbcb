"""Display of a plan and of a partition's report in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.graph.formatting import counted
from partita.graph.pictures.html import lines, picture, table
from partita.graph.pictures.svg import notebook_svg

if TYPE_CHECKING:
    from partita.partition.plans import Plan


def plan_html(plan: Plan) -> str:
    """The plan's tables, and its graph in the colours of the subgraphs."""
    shown = tables_html(plan, [group.name for group in plan.groups])
    if plan.graph is None:
        return shown
    owner = {node: group.name for group in plan.groups for node in group.nodes}
    svg = notebook_svg(plan.graph, lambda node: owner.get(node.name))
    return shown + ("" if svg is None else picture(svg, f"{plan.graph_name}, a colour for each subgraph"))


def tables_html(plan: Plan, calls: Sequence[str]) -> str:
    """The subgraphs under the names of these calls, the reasons of the other ops, and the borders by rule."""
    inside = sum(len(group.nodes) for group in plan.groups)
    share = f"{inside:,} of {counted(inside + len(plan.outside), 'op')}"
    title = f"{plan.graph_name}: {share} in {counted(len(plan.groups), 'subgraph')}"
    rows = [
        (call, group.device or "", len(group.nodes), ", ".join(group.nodes[:6]) + (", …" if len(group.nodes) > 6 else ""))
        for call, group in zip(calls, plan.groups, strict=True)
    ]
    shown = table(("subgraph", "device", "ops", "nodes"), rows, title=title)
    if plan.outside:
        shown += table(("in no subgraph", "rule", "because"), [(o.node, o.rule, o.text) for o in plan.outside], most=12)
    if plan.borders:
        edges = [(f"{b.producer} → {b.consumer}", b.inside, b.rule, b.text) for b in plan.borders if b.rule != "input"]
        shown += table(("border", "of", "rule", "because"), edges, most=12)
    return shown + lines(plan.notes)
