"""Report of a partition, for people: a summary, a table, a dictionary, and explanations of single nodes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.errors import did_you_mean
from partita.graph.formatting import counted
from partita.graph.node import Node
from partita.graph.pictures.html import bundle
from partita.graph.pictures.tables import Tabular
from partita.partition.errors import PartitionError
from partita.partition.explain import Explanation
from partita.partition.notebook import tables_html
from partita.partition.reasons import Border, Group, Outside

if TYPE_CHECKING:
    from rich.table import Table

    from partita.partition.plans import Plan

@attrs.frozen(slots=True, eq=False, repr=False)
class PartitionReport(Tabular):
    """`g.attrs["partition_report"]`. Everything is computed on demand."""

    plan: Plan
    """The plan that was applied."""
    calls: tuple[str, ...]
    """The names of the calls in the graph, in the order of `groups`."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """The subgraphs that became calls."""
        return self.plan.groups

    @property
    def borders(self) -> tuple[Border, ...]:
        """All edges that end at a subgraph's border, with reasons."""
        return self.plan.borders

    @property
    def outside(self) -> tuple[Outside, ...]:
        """All ops that are in no subgraph, with reasons."""
        return self.plan.outside

    @property
    def notes(self) -> tuple[str, ...]:
        """Further notes."""
        return self.plan.notes

    def renamed(self, calls: Sequence[str]) -> PartitionReport:
        """The same with other call names."""
        groups = tuple([attrs.evolve(group, name=name) for group, name in zip(self.groups, calls, strict=True)])
        reasons = self.plan.reasons
        if isinstance(reasons, Explanation):
            reasons = reasons.renamed(calls)
        return PartitionReport(attrs.evolve(self.plan, groups=groups, reasons=reasons), tuple(calls))

    def cycle_path(self, border: Border) -> tuple[str, ...] | None:
        """The path by which a border of rule "cycle" would close a cycle, found in linear time.

        If a walk passed a node over, and its subgraph became smaller later, or the closed node joined it after all, there
        is no such path; then the result is the path between the node and the closed one. None if the graph has no path
        of either kind."""
        return self._cycle_path(border, self._finder())

    def _finder(self) -> PathFinder | None:
        reasons = self.plan.reasons
        return PathFinder(reasons) if isinstance(reasons, Explanation) else None

    def _cycle_path(self, border: Border, finder: PathFinder | None) -> tuple[str, ...] | None:
        reasons = self.plan.reasons
        if finder is None or border.rule != "cycle" or not isinstance(reasons, Explanation):
            return None
        index = reasons.index
        u, v = index.number[index.graph[border.producer]], index.number[index.graph[border.consumer]]
        path, passed = finder.path(u, v), reasons.passed_over(u, v)
        return path if path is not None or passed is None else finder.path_between(*passed)

    def explain(self, node: str) -> str:
        """The subgraph of the op, and the reason for each border between it and a node outside."""
        home = next((g for g in self.groups if node in g.nodes), None)
        out = next((o for o in self.outside if o.node == node), None)
        if home is None and out is None:
            known = [n for g in self.groups for n in g.nodes] + [o.node for o in self.outside]
            raise PartitionError(f"there is no op {node!r} in the report", remedy=did_you_mean(node, known))
        lines = [f"{node} is in {home.name}" if home else f"{node} is in no subgraph: {out.rule}: {out.text}"]  # type: ignore[union-attr]
        lines += self._shared_constants(node, home) if home else ()
        for border in self.borders:
            if node in (border.producer, border.consumer):
                lines.append(f"  {border.producer} -> {border.consumer}: {border.rule}: {border.text}")
        return "\n".join(lines)

    def _shared_constants(self, node: str, home: Group) -> Iterator[str]:
        """The constants that an op which reads only constants shares with others of its subgraph: they are the reason why
        it is there."""
        graph = self.plan.graph
        reads = graph[node].reads if graph is not None else ()
        if graph is None or not all(entry.node.is_constant for entry in reads):
            return
        sharing: dict[Node, dict[str, None]] = {entry.node: {} for entry in reads}
        for other in home.nodes:
            for entry in graph[other].reads:
                if other != node and entry.node in sharing:
                    sharing[entry.node][other] = None
        for constant, others in sharing.items():
            if others:
                yield f"  it reads only constants, and shares {constant.name!r} with {_some(tuple(others))}"

    def to_dict(self, paths: bool = False) -> dict[str, Any]:
        """Everything as plain data; with `paths` also the path of each cycle (slow on large graphs)."""
        borders = [attrs.asdict(border) for border in self.borders]
        if paths:
            finder = self._finder()
            for row, border in zip(borders, self.borders, strict=True):
                path = self._cycle_path(border, finder)
                row["path"] = None if path is None else list(path)
        return {
            "graph": self.plan.graph_name,
            "groups": [
                {**attrs.asdict(group), "nodes": list(group.nodes), "call": call}
                for group, call in zip(self.groups, self.calls, strict=True)
            ],
            "borders": borders,
            "outside": [attrs.asdict(node) for node in self.outside],
            "notes": list(self.notes),
        }

    def to_table(self, most: int = 30) -> Table:
        """The subgraphs and the ops outside, for a terminal, by rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table("subgraph", "device", "ops", "nodes, or why not", title=Text(self._headline()))
        table.columns[2].justify = "right"
        for group, call in list(zip(self.groups, self.calls, strict=True))[:most]:
            table.add_row(Text(call), Text(group.device or "-"), str(len(group.nodes)), Text(_some(group.nodes)))
        if len(self.groups) > most:
            table.add_row(f"... {len(self.groups) - most} more", "", "", "")
        table.add_section()
        for rule, nodes in self._by_rule().items():
            more = ", ..." if len(nodes) > 1 else ""
            table.add_row("(outside)", "-", str(len(nodes)), Text(f"{rule}: {nodes[0].text}{more}"))
        return table

    def print(self, most: int = 30) -> None:
        """Prints the table, with at most `most` subgraphs."""
        import rich

        rich.print(self.to_table(most))

    def _by_rule(self) -> dict[str, list[Outside]]:
        rules: dict[str, list[Outside]] = {}
        for node in self.outside:
            rules.setdefault(node.rule, []).append(node)
        return rules

    def _headline(self) -> str:
        inside = sum(len(group.nodes) for group in self.groups)
        return f"{inside:,} of {counted(inside + len(self.outside), 'op')} in {counted(len(self.groups), 'subgraph')}"

    def __str__(self) -> str:
        lines = [f"{self.plan.graph_name}: {self._headline()}"]
        for group, call in zip(self.groups[:10], self.calls[:10], strict=True):
            lines.append(f"  {call}: {counted(len(group.nodes), 'op')} ({_some(group.nodes)})")
        if len(self.groups) > 10:
            lines.append(f"  ... and {len(self.groups) - 10} more")
        lines += [f"  outside: {counted(len(nodes), 'op')}, {rule}: {nodes[0].text}" for rule, nodes in self._by_rule().items()]
        borders = Counter(border.rule for border in self.borders)
        if borders:
            lines.append("  borders: " + ", ".join(f"{count} {rule}" for rule, count in sorted(borders.items())))
        return "\n".join([*lines, *self.notes])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Rich display in notebooks."""
        return bundle(self, tables_html(self.plan, self.calls))

    def __repr__(self) -> str:
        return f"<PartitionReport: {counted(len(self.groups), 'subgraph')}>"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


class PathFinder:
    """Searches paths in the graph with every group contracted. Each search is linear; every pair is searched once."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self._readers = explanation.index.consumers()
        self._found: dict[tuple[int, int], tuple[str, ...] | None] = {}

    def path(self, u: int, v: int) -> tuple[str, ...] | None:
        """The path through outside nodes that would leave and re-enter the two ends of the edge u→v, if they were one subgraph:
        names of ops and calls."""
        owner = self._explanation.owner
        start, goal = (x if owner[x] < 0 else ~owner[x] for x in (u, v))
        if (start, goal) not in self._found:
            self._found[start, goal] = self._search(start, goal, owner)
        return self._found[start, goal]

    def path_between(self, a: int, b: int) -> tuple[str, ...] | None:
        """The path from one op to the other, in either direction, with their subgraphs dissolved."""
        whole = self._explanation.owner
        owner = [-1 if k in (whole[a], whole[b]) else k for k in whole]
        forth = self._search(a, b, owner, straight=True)
        return forth if forth is not None else self._search(b, a, owner, straight=True)

    def _search(self, start: int, goal: int, owner: Sequence[int], straight: bool = False) -> tuple[str, ...] | None:
        """The shortest path; it has more than one edge, unless it may be `straight`."""
        came_from: dict[int, int] = {}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for after in self._next(here, owner):
                if after == goal and (straight or here != start):
                    return self._names(here, start, came_from, goal)
                if after not in came_from and after not in (start, goal):
                    came_from[after] = here
                    waiting.append(after)
        return None

    def _next(self, unit: int, owner: Sequence[int]) -> list[int]:
        members = [unit] if unit >= 0 else self._explanation.groups[~unit].members
        readers = dict.fromkeys(w for v in members for w in self._readers[v])
        return list(dict.fromkeys(w if owner[w] < 0 else ~owner[w] for w in readers))

    def _names(self, here: int, start: int, came_from: dict[int, int], goal: int) -> tuple[str, ...]:
        chain = [goal, here]
        while here != start:
            here = came_from[here]
            chain.append(here)
        explanation = self._explanation
        return tuple(explanation.name(x) if x >= 0 else explanation.groups[~x].name for x in reversed(chain))
