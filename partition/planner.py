"""Chooses the groups: each property in turn takes from the nodes that the earlier ones left.

Every result is checked before anything is rewritten."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import attrs

from partita.graph.errors import check_count, check_flag, did_you_mean
from partita.graph.formatting import counted
from partita.graph.names import unique
from partita.partition.calls import CallMaker, Chosen
from partita.partition.checker import check_connected, check_partition
from partita.partition.choose import check_growth, choose_groups, is_connected
from partita.partition.errors import PartitionError
from partita.partition.evidence import Evidence
from partita.partition.hooks import Hooks, Witness
from partita.partition.names import names_in
from partita.partition.op_index import OpIndex, Preds, build_op_index
from partita.partition.options import PartitionOptions
from partita.partition.property import SubgraphProperty
from partita.partition.with_types import Typed


@attrs.define(slots=True, eq=False)
class Planned:
    """The result of planning, as node numbers."""

    index: OpIndex
    """The graph."""
    groups: list[Chosen]
    """The groups of all properties, in order of their first nodes."""
    evidence: list[Evidence]
    """The evidence of each property's choice."""
    order: list[int]
    """A topological order: v for an op outside, ~k for groups[k]."""
    maker: CallMaker
    """The maker of the calls, if they were made."""
    witness: Witness
    """The state of the graph before the hooks saw it."""
    typed: Typed
    """The original graph, and the typed one."""

    def notes(self) -> list[str]:
        """Notes from growth for the report."""
        notes = [note for evidence in self.evidence for note in evidence.notes]
        for repair in (repair for evidence in self.evidence for repair in evidence.repairs):
            groups = [repair.replaced, *repair.by]
            first, *rest = ["{" + ", ".join(self.index.nodes[v].name for v in group) + "}" for group in groups]
            cause = "would have closed a cycle with a subgraph chosen before"
            notes.append(f"Growth seed chose {first}, which {cause}: it became {', '.join(rest)}")
        return notes


class Planner:
    """One run over one graph."""

    def __init__(self, typed: Typed, options: PartitionOptions, taken: set[str] | None = None) -> None:
        """`taken` are names that calls must not have, by default those in the graph."""
        check_growth(options.growth)
        check_count("min_subgraph_size", options.min_subgraph_size, PartitionError)
        check_count("max_subgraphs", options.max_subgraphs, PartitionError)
        check_count("max_nodes", options.max_nodes, PartitionError, 1)
        given = options.cuts
        if isinstance(given, str) or not (isinstance(given, Collection) and all(isinstance(name, str) for name in given)):
            raise PartitionError(f"cuts are names of ops, not {given!r:.80}", where="option cuts", remedy='Write ["conv1", ...]')
        self.typed = typed
        self.index = build_op_index(typed.graph)
        self.options = options
        self.witness = Witness(typed)
        self.taken = names_in(typed.graph) if taken is None else taken
        self.cuts = frozenset(given)
        strange = next((name for name in given if name not in self.taken), None)
        if strange is not None:
            hint = did_you_mean(strange, self.taken)
            raise PartitionError(f"{strange!r:.80} is not an op of the graph", where="option cuts", remedy=hint)
        self.maker = CallMaker(self.index, self.taken, typed)
        self.groups: list[Chosen] = []
        self.evidence: list[Evidence] = []

    def run(self, properties: Sequence[SubgraphProperty], make_calls: bool) -> Planned:
        """Chooses for each property in order; with `make_calls` also makes the calls, so that later properties may get the nodes
        of declined ones."""
        for number, subject in enumerate(properties):
            chosen = self._choose(number, subject)
            before = len(self.groups)
            self.groups += chosen
            order = self._check(self.evidence[-1], chosen)
            declined = self.maker.make(chosen) if make_calls else {}
            if declined:
                self._give_back(before, declined)
            self.witness.check(subject.name, "create_subgraph_node" if make_calls else "the selector's")
        in_order = sorted(self.groups, key=lambda chosen: chosen.members[0])
        if declined or in_order != self.groups:
            order = settle(self.index, in_order)
        return Planned(self.index, in_order, self.evidence, order, self.maker, self.witness, self.typed)

    def _choose(self, number: int, subject: SubgraphProperty) -> list[Chosen]:
        hooks = Hooks(subject, self.witness)
        if hooks.overrides("pre_partition"):
            hooks.call("pre_partition", None, subject.pre_partition, self.index.graph, dict(self.options.extra))
            self.witness.check(subject.name, "pre_partition")
        fixed = [chosen.members for chosen in self.groups]
        growth = self.options.growth or subject.growth
        groups, evidence = choose_groups(hooks, self.index, fixed, growth, given=self.options.groups)
        self.witness.check(subject.name, "create_subgraph_selector (or its selector's)")
        self.evidence.append(evidence)
        return self._named(number, hooks, self._limited(hooks, groups, evidence), evidence)

    def _limited(self, hooks: Hooks, groups: list[list[int]], evidence: Evidence) -> list[list[int]]:
        """The groups within the limits of the properties that make their calls, by first node."""
        by_maker: dict[SubgraphProperty, list[list[int]]] = {}
        for group in groups:
            device = self.index.common_affinity(group)
            by_maker.setdefault(hooks.property.for_device(device), []).append(group)
        by_maker.setdefault(hooks.property, [])
        kept = [group for maker, mine in by_maker.items() for group in self._within(maker, mine, evidence)]
        return sorted(kept, key=lambda group: group[0])

    def _within(self, maker: SubgraphProperty, groups: list[list[int]], evidence: Evidence) -> list[list[int]]:
        """The groups within one property's limits; the evidence gets the reasons for the others."""
        options = self.options
        least = maker.min_subgraph_size if options.min_subgraph_size is None else options.min_subgraph_size
        most = maker.max_subgraphs if options.max_subgraphs is None else options.max_subgraphs
        check_count(f"property {maker.name!r}: min_subgraph_size", least, PartitionError)
        check_count(f"property {maker.name!r}: max_subgraphs", most, PartitionError)
        largest = maker.max_nodes if options.max_nodes is None else options.max_nodes
        check_count(f"property {maker.name!r}: max_nodes", largest, PartitionError, 1)
        check_flag(maker.dedup_inputs, f"property {maker.name!r}: dedup_inputs", PartitionError)
        check_flag(maker.inline, f"property {maker.name!r}: inline", PartitionError)
        for group in groups:
            if len(group) < least:
                why = f"of {counted(len(group), 'op')}, fewer than min_subgraph_size={least}"
                evidence.limited.update(dict.fromkeys(group, why))
        kept = [group for group in groups if len(group) >= least]
        if largest is not None or self.cuts:
            preds = self.index.value_preds()
            kept = [piece for group in kept for piece in self._pieces(group, largest, evidence, preds)]
        kept.sort(key=lambda group: group[0])
        if most is not None and len(kept) > most:
            kept.sort(key=len, reverse=True)
            for group in kept[most:]:
                why = f"of {counted(len(group), 'op')}, beyond max_subgraphs={most}"
                evidence.limited.update(dict.fromkeys(group, why))
        return kept[:most]

    def _pieces(self, group: list[int], largest: int | None, evidence: Evidence, preds: Preds) -> list[list[int]]:
        """The group, cut along its topological order before each of `cuts` and into pieces of at most `largest` nodes, connected
        if the growth is.

        A path between two pieces leads from the earlier one to the later one, since the group closed no cycle."""
        largest, cuts = largest or len(group), self.cuts
        if len(group) <= largest and (not cuts or evidence.growth == "pattern"):
            return [group]
        if evidence.growth == "pattern":
            why = f"of {counted(len(group), 'op')}, more than max_nodes={largest}"
            evidence.limited.update(dict.fromkeys(group, why))
            return []
        starts = [0, *(i for i, v in enumerate(group) if i and cuts and self.index.nodes[v].name in cuts), len(group)]
        pieces = [
            group[i : min(i + largest, end)] for start, end in itertools.pairwise(starts) for i in range(start, end, largest)
        ]
        if len(pieces) == 1:
            return pieces
        why = f"one subgraph may hold max_nodes={largest}" if len(group) > largest else "it was cut by the option cuts"
        evidence.cut.update(dict.fromkeys(group, why))
        if is_connected(evidence.growth):
            pieces = [part for piece in pieces for part in _components(piece, evidence, preds)]
        if group[0] in evidence.selectors:
            evidence.selectors.update((piece[0], evidence.selectors[group[0]]) for piece in pieces)
        return pieces

    def _named(self, number: int, hooks: Hooks, groups: list[list[int]], evidence: Evidence) -> list[Chosen]:
        by_device: dict[str | None, Hooks] = {}
        chosen = []
        for i, members in enumerate(groups):
            device = self.index.common_affinity(members)
            if device not in by_device:
                own = hooks.property.for_device(device)
                by_device[device] = hooks if own is hooks.property else Hooks(own, self.witness, device)
            mine = by_device[device]
            name = unique(f"{mine.name}_{i}", self.taken)
            dedup = mine.property.dedup_inputs if self.options.dedup_inputs is None else self.options.dedup_inputs
            chosen.append(Chosen(number, i, device, members, name, mine, dedup, evidence.selector_of(members)))
        return chosen

    def _check(self, evidence: Evidence, chosen: list[Chosen]) -> list[int]:
        """Runs the independent check, before the groups are used."""
        order = settle(self.index, self.groups)
        if is_connected(evidence.growth):
            nodes = self.index.nodes
            refused = () if evidence.growth == "walk" else evidence.refused  # a walk may reach a refused node by another path
            shared = [(c.alone, c.readers) for c in self.index.read_alone()] if evidence.by_affinity else []
            check_connected(self.index.value_edges(), [c.members for c in chosen], refused, lambda v: nodes[v].name, shared)
        return order

    def _give_back(self, before: int, declined: dict[int, str]) -> None:
        mine = self.groups[before:]
        del self.groups[before:]
        for k, chosen in enumerate(mine):
            if k in declined:
                self.evidence[-1].declined.update(dict.fromkeys(chosen.members, declined[k]))
            else:
                self.groups.append(chosen)


def _components(nodes: list[int], evidence: Evidence, preds: Preds) -> list[list[int]]:
    """The components of the nodes by values along edges that were not refused, by first node. Near-linear."""
    component = {v: [v] for v in nodes}
    refused = () if evidence.growth == "walk" else evidence.refused
    for v in nodes:
        for u in preds[v]:
            if u in component and (u, v) not in refused and component[u] is not component[v]:
                less, more = sorted((component[u], component[v]), key=len)
                more += less
                component.update(dict.fromkeys(less, more))
    return sorted({id(part): sorted(part) for part in component.values()}.values())


def settle(index: OpIndex, groups: Sequence[Chosen]) -> list[int]:
    """Checks all groups at once -> a topological order with each group as one."""
    nodes = index.nodes
    return check_partition(index.edges, [c.members for c in groups], index.offered, lambda v: nodes[v].name)
