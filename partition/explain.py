"""Reasons for borders, derived from the evidence on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from partita.graph.cached_property import lazy
from partita.graph.node import Node
from partita.partition.calls import Chosen
from partita.partition.errors import hook_error, not_a, raised
from partita.partition.evidence import GIVEN, Evidence
from partita.partition.op_index import OpIndex
from partita.partition.property import HOOKS
from partita.partition.reasons import Border, Outside
from partita.partition.selector import SubgraphSelector

Reason = tuple[str, str]
"""The rule, and the reason in words."""


class Explanation:
    """The reasons of one run. Each query takes constant time; `borders` and `outside` are linear."""

    def __init__(self, index: OpIndex, groups: Sequence[Chosen], evidence: Sequence[Evidence]) -> None:
        self.index = index
        self.groups = groups
        self.evidence = evidence

    @lazy
    def owner(self) -> list[int]:
        """The group of each op, or -1."""
        owner = [-1] * len(self.index)
        for k, chosen in enumerate(self.groups):
            for v in chosen.members:
                owner[v] = k
        return owner

    def renamed(self, names: Sequence[str]) -> Explanation:
        """The same with other group names."""
        groups = [attrs.evolve(chosen, name=name) for chosen, name in zip(self.groups, names, strict=True)]
        return Explanation(self.index, groups, self.evidence)

    def name(self, v: int) -> str:
        """The op's name."""
        return self.index.nodes[v].name

    def borders(self) -> Iterator[Border]:
        """All edges that end at a border, by consumer, also those from graph inputs. Constants have none: they are copied."""
        index, owner = self.index, self.owner
        for v, node in enumerate(index.nodes):
            k = owner[v]
            if k >= 0:
                variables = dict.fromkeys(e.node for e in node.reads if e.node.is_variable)
                for variable in variables:
                    size = _bytes_between(variable, node)
                    yield Border(variable.name, node.name, self.groups[k].name, "input", "a graph input", size)
            for u in dict.fromkeys(index.preds[v]):
                if owner[u] != k:
                    rule, text = self.of_edge(u, v)
                    size = _bytes_between(index.nodes[u], node)
                    yield Border(self.name(u), node.name, self.groups[self.side(u, v)].name, rule, text, size)

    def outside(self) -> Iterator[Outside]:
        """All ops that are in no group."""
        for v, k in enumerate(self.owner):
            if k < 0:
                yield Outside(self.name(v), *self.of_node(v))

    def side(self, u: int, v: int) -> int:
        """The group whose border the edge ends at: that of the property that chose first."""
        a, b = self.owner[u], self.owner[v]
        if a < 0 or b < 0:
            return max(a, b)
        return a if self.groups[a].order <= self.groups[b].order else b

    def of_edge(self, u: int, v: int) -> Reason:
        """The reason why the edge u→v ends at a border."""
        mine = self.side(u, v)
        inner, other = (u, v) if self.owner[u] == mine else (v, u)
        evidence = self.evidence[self.groups[mine].order]
        reason = self._not_offered(other) or self._given_back(evidence, other)
        if reason is not None:
            return reason
        if (u, v) in self.index.control:
            return "control", f"{self.name(v)!r} comes after {self.name(u)!r} and reads nothing of it: subgraphs follow values"
        if (u, v) in evidence.refused:
            hook = evidence.refused[u, v]
            cur, new = (v, u) if hook == "select_input" else (u, v)
            return "callback", f"{hook}({self.name(cur)}, {self.name(new)}) of {evidence.property!r} said no"
        if (u, v) in evidence.passed:
            refusal = self._would_refuse(evidence, mine, inner, other, u)
            return refusal or ("cycle", self._passed_over(*evidence.passed[u, v], mine))
        if evidence.growth == "pattern":
            return "pattern", f"a match of {evidence.asks} ends here"
        if evidence.labels is not None and evidence.labels[other] != evidence.labels[inner]:
            return self._other_label(evidence, other, inner)
        if other in evidence.dropped:
            return "cycle", f"the growth from {self.name(evidence.dropped[other])!r} dropped it, since it closed a cycle"
        for end in (inner, other):
            if end in evidence.unexpanded:
                return "cycle", f"{self.name(evidence.unexpanded[end])!r} is reached by both ends, so it was not followed further"
        return self._apart(evidence, other)

    def _would_refuse(self, evidence: Evidence, mine: int, inner: int, other: int, producer: int) -> Reason | None:
        """The refusal of an edge that was not offered, by a selector whose answers depend on its two nodes alone."""
        selector = evidence.selector_of(self.groups[mine].members)
        hook = "select_output" if inner == producer else "select_input"
        cur, new = self.index.nodes[inner], self.index.nodes[other]
        if not getattr(selector, "stateless", False) or getattr(selector, hook)(cur, new):
            return None
        return "callback", f"{hook}({cur.name}, {new.name}) of {evidence.property!r} said no"

    def _passed_over(self, offered: int, closed: int, mine: int) -> str:
        if self.owner[closed] == mine:  # refused over one edge, taken over another
            return f"{self.name(offered)!r} was not offered, for a path joins it to {self.name(closed)!r}, refused until then"
        return f"joining would close a cycle through {self.name(closed)!r}"

    def passed_over(self, u: int, v: int) -> tuple[int, int] | None:
        """The end of the edge u→v that a walk did not offer, and the closed node that prevented it."""
        k = self.side(u, v)
        return None if k < 0 else self.evidence[self.groups[k].order].passed.get((u, v))

    def _apart(self, evidence: Evidence, other: int) -> Reason:
        """The reason why two ops of the same property are in different groups although it did not refuse the edge."""
        k = self.owner[other]
        if k < 0:
            return "unselected", f"no subgraph of {evidence.property!r} reached {self.name(other)!r}"
        name = self.groups[k].name
        if other in evidence.cut:
            return "size", f"{self.name(other)!r} is in {name!r}: {evidence.cut[other]}"
        if evidence.growth == "seed":
            return "taken", f"{self.name(other)!r} is in {name!r}, chosen before or held apart by a rejected node"
        if evidence.labels is None or evidence.filtered or evidence.growth == GIVEN:
            return "taken", f"{self.name(other)!r} is in {name!r}"
        return "cycle", f"one subgraph with {name!r} would close a cycle"

    def of_node(self, v: int) -> Reason:
        """The reason why the op is in no group, from each property."""
        reason = self._not_offered(v)
        if reason is not None:
            return reason
        refusals = [self._refusal(evidence, v) for evidence in self.evidence]
        if not refusals:
            return "unsupported", "there is no property"
        rules = [rule for rule, _ in refusals]
        rule = next((r for r in rules if r not in ("unsupported", "pattern")), rules[0])
        return rule, "; ".join(dict.fromkeys(text for _, text in refusals))

    def _refusal(self, evidence: Evidence, v: int) -> Reason:
        reason = self._given_back(evidence, v)
        if reason is not None:
            return reason
        if evidence.growth == "pattern":
            return self._missed(evidence, v)
        if evidence.labels is not None and evidence.labels[v] is None:
            return self._other_label(evidence, v, None)
        if evidence.growth == GIVEN:
            return "unselected", f"none of the groups given for {evidence.property!r} holds {self.name(v)!r}"
        if v in evidence.dropped:
            return "cycle", f"the growth from {self.name(evidence.dropped[v])!r} dropped it, since it closed a cycle"
        why = self._why_not(evidence, self.index.nodes[v])
        said = "said no" if why is None else f"said no ({why})"
        return "unsupported", f"select({self.name(v)}) of {evidence.property!r} {said}, and no subgraph took it in"

    def _not_offered(self, v: int) -> Reason | None:
        if self.index.offered[v]:
            return None
        if not self.index.live[v]:
            return "dead", f"no output needs {self.name(v)!r}"
        return "call", f"{self.name(v)!r} is a call that an earlier partition made"

    def _given_back(self, evidence: Evidence, v: int) -> Reason | None:
        """The reason, if the op was in a group of this property that was declined."""
        if v in evidence.declined:
            hook = HOOKS[evidence.declined[v]]
            return "hook", f"{hook.name} {hook.declined} for its subgraph, by {evidence.property!r}"
        if v in evidence.limited:
            return "size", f"{self.name(v)!r} was in a subgraph {evidence.limited[v]}"
        if v in evidence.filtered:
            return "filter", f"filter of {evidence.property!r} removed {self.name(v)!r}"
        return None

    def _other_label(self, evidence: Evidence, other: int, inner: int | None) -> Reason:
        node = self.index.nodes[other]
        if evidence.by_affinity:
            affinity = self.index.affinity[other]
            text = f"{node.name!r} is on {affinity}" if affinity else f"{node.name!r} has no affinity"
            return "device", text if inner is None else f"{text}, {self.name(inner)!r} on {self.index.affinity[inner]}"
        reason = self._why_not(evidence, node)
        if reason is not None:
            return "unsupported", f"{evidence.property!r} does not run {node.name!r}: {reason}"
        return "unsupported", f"{evidence.property!r} does not take {node.name!r} ({node.op})"

    @staticmethod
    def _why_not(evidence: Evidence, node: Node) -> str | None:
        """The reason given by the selector itself."""
        if not isinstance(evidence.selector, SubgraphSelector):
            return None
        try:
            reason = evidence.selector.why_not(node)
        except Exception as error:
            raise hook_error(evidence.property, "why_not", node, raised(error)) from error
        if reason is not None and not isinstance(reason, str):
            raise hook_error(evidence.property, "why_not", node, not_a("a text or None", reason))
        return reason

    def _missed(self, evidence: Evidence, v: int) -> Reason:
        missed = evidence.missed.get(v)
        if missed is None:
            return "pattern", f"no match of {evidence.asks} has {self.name(v)!r}"
        size = len(missed.nodes)
        if missed.cycle:
            way = self.name(missed.through)
            return "cycle", f"a match of {size} ops from {self.name(v)!r} would close a cycle through {way!r}"
        user = "a graph output" if missed.through < 0 else repr(self.name(missed.through))
        return "pattern", f"an inner value of the match of {size} ops from {self.name(v)!r} is used outside, by {user}"


def _bytes_between(producer: Node, consumer: Node) -> int | None:
    """The bytes of the values between two nodes; None if a size is not static."""
    sizes = [getattr(entry.type, "nbytes", None) for entry in dict.fromkeys(consumer.reads) if entry.node is producer]
    return None if None in sizes else sum(size for size in sizes if size is not None)
