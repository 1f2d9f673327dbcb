"""A plan: groups of nodes and their reasons, made before the graph is rewritten, and optionally stored as JSON; and the last
steps of a partition, which PartitionGraph shares with `plan.apply`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import attrs

from partita.graph.cached_property import lazy
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.pictures.html import bundle
from partita.partition.calls import CallMaker, Chosen
from partita.partition.errors import PartitionError
from partita.partition.explain import Explanation
from partita.partition.fingerprint import difference, fingerprint
from partita.partition.hooks import Hooks, Witness
from partita.partition.names import names_in
from partita.partition.notebook import plan_html
from partita.partition.op_index import OpIndex, build_op_index
from partita.partition.planner import Planned, settle
from partita.partition.property import HOOKS, SubgraphProperty, overridden_hooks
from partita.partition.reasons import Border, Group, Outside, Reasons, WrittenReasons
from partita.partition.report import PartitionReport
from partita.partition.splicer import splice
from partita.partition.with_types import Typed, with_types
from partita.passes.registry import REPORT

VERSION = 1
"""The version of the JSON form."""


@attrs.frozen(slots=False, eq=False, repr=False)
class Plan:
    """The plan of a partition. The graph is not changed until `apply`."""

    graph_name: str
    """The graph's name."""
    groups: tuple[Group, ...]
    """The subgraphs in order of their first nodes."""
    notes: tuple[str, ...]
    """Further notes."""
    reasons: Reasons
    """The source of reasons for borders."""
    graph: Graph | None = None
    """The graph, unless the plan was read from a file."""
    properties: tuple[SubgraphProperty, ...] = ()
    """The properties that made it, unless it was read from a file."""
    dedup_inputs: Mapping[str, bool] = attrs.field(factory=dict)
    """By name of the call, whether each outer value enters it only once."""
    infer_types: bool = True
    """True if missing types are inferred before the plan is applied, as they were before it was made."""
    written_fingerprint: str | None = None
    """The fingerprint from a file."""

    @lazy
    def borders(self) -> tuple[Border, ...]:
        """All edges that end at a subgraph's border. Computed on first use, in linear time."""
        return tuple(self.reasons.borders())

    @lazy
    def outside(self) -> tuple[Outside, ...]:
        """All ops that are in no subgraph."""
        return tuple(self.reasons.outside())

    @lazy
    def fingerprint(self) -> str:
        """A hash that is equal for graphs with the same nodes."""
        if self.written_fingerprint is not None:
            return self.written_fingerprint
        assert self.graph is not None
        return fingerprint(self.graph)

    def apply(self, g: Graph, subgraph_property: SubgraphProperty | Sequence[SubgraphProperty] | None = None) -> Graph:
        """The graph partitioned as planned, after the plan is checked again.

        The calls are made by the properties that made the plan, or by those given here, found by name; a plan read from a file,
        applied without properties, makes plain calls."""
        return apply_plan(self, g, subgraph_property)

    def to_json(self) -> str:
        """The plan as JSON, identical byte for byte for the same graph and options."""
        content = {
            "partita_plan": VERSION,
            "graph": self.graph_name,
            "fingerprint": self.fingerprint,
            "infer_types": self.infer_types,
            "groups": [{**_fields(group), "dedup_inputs": self.dedup_inputs.get(group.name, True)} for group in self.groups],
            "borders": [_fields(border) for border in self.borders],
            "outside": [_fields(node) for node in self.outside],
            "notes": list(self.notes),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan in the output of `to_json`."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PartitionError(f"this is not JSON: {error}", where="Plan.from_json") from error
        if not isinstance(content, dict) or content.get("partita_plan") != VERSION:
            raise PartitionError(
                "this is not a plan of a version that is known",
                where="Plan.from_json",
                remedy="Give the text that plan.to_json() returned",
            )
        try:
            return cls._from_content(content)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            remedy = "Make it again with plan(g, ...)"
            raise PartitionError(f"the plan is damaged: {error}", where="Plan.from_json", remedy=remedy) from error

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Plan:
        groups, dedup_inputs = [], {}
        for fields in content["groups"]:
            dedup_inputs[fields["name"]] = bool(fields["dedup_inputs"])
            groups.append(_record(Group, {key: value for key, value in fields.items() if key != "dedup_inputs"}))
        reasons = WrittenReasons(
            tuple([_record(Border, fields) for fields in content["borders"]]),
            tuple([_record(Outside, fields) for fields in content["outside"]]),
        )
        return cls(
            str(content["graph"]),
            tuple(groups),
            tuple([_checked("notes", note, str) for note in content["notes"]]),
            reasons,
            dedup_inputs=dedup_inputs,
            infer_types=bool(content.get("infer_types", True)),
            written_fingerprint=str(content["fingerprint"]),
        )

    def __str__(self) -> str:
        ops = sum(len(group.nodes) for group in self.groups)
        lines = [f"plan for {self.graph_name!r}: {counted(ops, 'op')} in {counted(len(self.groups), 'subgraph')}"]
        for group in self.groups:
            device = f" on {group.device}" if group.device else ""
            shown = ", ".join(group.nodes[:4]) + (", ..." if len(group.nodes) > 4 else "")
            lines.append(f"  {group.name}{device}: {counted(len(group.nodes), 'op')} ({shown})")
        return "\n".join([*lines, *self.notes])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Rich display in notebooks."""
        return bundle(self, plan_html(self))

    def __repr__(self) -> str:
        return f"<Plan for {self.graph_name!r}: {counted(len(self.groups), 'subgraph')}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """The pickled form: the plan as JSON, without the graph and the properties, as `from_json` reads it."""
        return Plan.from_json, (self.to_json(),)

    def __copy__(self) -> Plan:
        return self

    def __deepcopy__(self, memo: Any) -> Plan:
        return self  # the plan is immutable, and refers to the graph it was made for

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Plan) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def _fields(record: Any) -> dict[str, Any]:
    return attrs.asdict(record, recurse=False)


Record = TypeVar("Record", Group, Border, Outside)

_KINDS = {"index": int, "device": str | None, "bytes": int | None, "nodes": list}
"""The types of the fields of records in JSON; all others are texts."""


def _record(kind: type[Record], fields: Mapping[str, Any]) -> Record:
    """The record with these fields, each checked for its type."""
    checked = {name: _checked(name, value, _KINDS.get(name, str)) for name, value in fields.items()}
    if "nodes" in checked:
        checked["nodes"] = tuple([_checked("nodes", name, str) for name in checked["nodes"]])
    return kind(**checked)


def _checked(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.80} stands for {name}")
    return value


def plan_of(planned: Planned, properties: Sequence[SubgraphProperty], reasons: Reasons | None = None) -> Plan:
    """The plan as shown to users."""
    nodes = planned.index.nodes
    groups = tuple(
        Group(c.name, c.hooks.name, c.index, c.device, tuple([nodes[v].name for v in c.members])) for c in planned.groups
    )
    return Plan(
        planned.typed.source.name,
        groups,
        (*planned.notes(), *planned.maker.notes),
        reasons or Explanation(planned.index, planned.groups, planned.evidence),
        planned.typed.source,
        tuple(properties),
        {c.name: c.dedup for c in planned.groups},
        infer_types=planned.typed.inferred,
    )


def finish(
    planned: Planned, properties: Sequence[SubgraphProperty], graph_attrs: Mapping[str, Any], reasons: Reasons | None = None
) -> Graph:
    """Splices the calls in, attaches the report, and calls the properties' post_partition."""
    result = splice(planned.maker.given, planned.groups, planned.order, planned.maker.adjusted)
    calls = tuple(chosen.built.name for chosen in planned.groups if chosen.built is not None)
    result.attrs.clear()
    result.attrs.update(graph_attrs)
    result.attrs[REPORT] = PartitionReport(plan_of(planned, properties, reasons), calls)
    planned.witness.check(planned.groups[0].hooks.name if planned.groups else "", "connect_subgraph_inputs")
    for subject in properties:
        if HOOKS["post_partition"] in overridden_hooks(subject):
            watched = Witness(Typed(result, result))
            Hooks(subject, watched).call("post_partition", None, subject.post_partition, result)
            watched.check(subject.name, "post_partition")
            planned.witness.check(subject.name, "post_partition")
    return result


def apply_plan(plan: Plan, g: Graph, given: SubgraphProperty | Sequence[SubgraphProperty] | None) -> Graph:
    """The graph partitioned according to the plan, which must have been made for it."""
    if g is not plan.graph and fingerprint(g) != plan.fingerprint:
        ops = [*(name for group in plan.groups for name in group.nodes), *(outside.node for outside in plan.outside)]
        raise PartitionError(
            f"the plan was made for another graph (its name was {plan.graph_name!r}): {difference(g, ops, before=plan.graph)}",
            where=f"graph {g.name!r}",
            remedy="Plan again: plan(g, ...)",
        )
    if given is not None:
        properties = [given] if isinstance(given, SubgraphProperty) else list(given)
    else:
        properties = list(plan.properties) if isinstance(plan.reasons, Explanation) else _plain_ones(plan)
    typed = with_types(g, plan.infer_types, properties)
    with Witness(typed) as witness:
        return _apply(plan, typed, properties, given is not None, witness)


def _apply(plan: Plan, typed: Typed, properties: list[SubgraphProperty], given: bool, witness: Witness) -> Graph:
    g = typed.graph
    index = build_op_index(g)
    live = plan.reasons if isinstance(plan.reasons, Explanation) else None
    if live is not None and not given:
        made_by = [(chosen.order, chosen.hooks.property) for chosen in live.groups]
    else:
        made_by = [_maker_of(group, properties) for group in plan.groups]
        if live is not None:
            made_by = [(chosen.order, subject) for chosen, (_, subject) in zip(live.groups, made_by, strict=True)]
    chosen = _chosen(plan, index, made_by, witness)
    evidence = [attrs.evolve(e, declined=dict(e.declined)) for e in (live.evidence if live is not None else ())]
    taken = names_in(g) | {group.name for group in plan.groups}
    planned = Planned(index, chosen, evidence, settle(index, chosen), CallMaker(index, taken, typed), witness, typed)
    kept: list[Chosen] = []
    for order in sorted({c.order for c in chosen}):
        mine = [c for c in chosen if c.order == order]
        declined = planned.maker.make(mine)
        kept += [c for k, c in enumerate(mine) if k not in declined]
        for k, hook in declined.items():
            planned.maker.notes.append(f"{hook} of {mine[k].hooks.name!r} left the ops of {mine[k].name} as they were")
            if evidence:
                evidence[order].declined.update(dict.fromkeys(mine[k].members, hook))
    if len(kept) < len(chosen):
        planned.groups = sorted(kept, key=lambda c: c.members[0])
        planned.order = settle(index, planned.groups)
    graph_attrs = {key: value for key, value in g.attrs.items() if key != "subgraph_property"}
    return finish(planned, properties, graph_attrs, None if evidence else plan.reasons)


Maker = tuple[int, SubgraphProperty]
"""The index of the property that chose the groups, and the property that makes their calls."""


def _plain_ones(plan: Plan) -> list[SubgraphProperty]:
    """Properties of the plan's names that make plain calls, for a plan from a file."""
    return [plain_property(name) for name in dict.fromkeys(group.property for group in plan.groups)]


def plain_property(name: str) -> SubgraphProperty:
    """A property of this name that makes plain calls."""
    plain = SubgraphProperty()
    plain.name = name
    return plain


def _maker_of(group: Group, properties: Sequence[SubgraphProperty]) -> Maker:
    """The property of the group's name among those given, or among their variants for its device."""
    makers = [
        (i, subject.for_device(group.device))
        for i, subject in enumerate(properties)
        if group.property in (subject.name, subject.for_device(group.device).name)
    ]
    if len(makers) == 1:
        return makers[0]
    raise PartitionError(
        f"the plan has subgraphs of a property {group.property!r}, "
        + ("which is not among those given" if not makers else "and several of those given have this name"),
        where="plan.apply",
        remedy="Give all of the properties, under names of their own, or none for plain calls",
    )


def _chosen(plan: Plan, index: OpIndex, made_by: Sequence[Maker], witness: Witness) -> list[Chosen]:
    """The plan's groups as node numbers. Their selectors are known unless the plan comes from a file."""
    grown = plan.reasons.groups if isinstance(plan.reasons, Explanation) else [None] * len(plan.groups)
    number = {node.name: v for v, node in enumerate(index.nodes)}
    chosen = []
    for group, (order, subject), old in zip(plan.groups, made_by, grown, strict=True):
        missing = [name for name in group.nodes if name not in number]
        if missing:
            raise PartitionError(f"the plan's node {missing[0]!r} is not in the graph", where=f"subgraph {group.name!r}")
        members = sorted(number[name] for name in group.nodes)
        dedup = plan.dedup_inputs.get(group.name, True)
        selector = None if old is None else old.selector
        chosen.append(Chosen(order, group.index, group.device, members, group.name, Hooks(subject, witness), dedup, selector))
    return chosen
