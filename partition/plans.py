"""A plan: groups of nodes and their reasons, made before the graph is rewritten, and optionally stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from partita.graph.cached_property import lazy
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.pictures.html import bundle
from partita.partition.errors import PartitionError
from partita.partition.fingerprint import fingerprint
from partita.partition.notebook import plan_html
from partita.partition.property import SubgraphProperty

VERSION = 1
"""The version of the JSON form."""


@attrs.frozen(slots=True)
class Group:
    """One subgraph."""

    name: str
    """The name of its call, unless the property chooses another."""
    property: str
    """The property that chose it."""
    index: int
    """Its index among the property's subgraphs."""
    device: str | None
    """The common affinity of its nodes."""
    nodes: tuple[str, ...]
    """Its ops, in topological order."""


@attrs.frozen(slots=True)
class Border:
    """An edge that ends at a subgraph's border, and the reason."""

    producer: str
    """The node that makes the value."""
    consumer: str
    """The node that reads it."""
    inside: str
    """The subgraph whose border it is: if both ends are in subgraphs, that of the property that chose first."""
    rule: str
    """The kind of reason: input, call, dead, unsupported, unselected, device, callback, control, filter, size, hook, pattern,
    taken or cycle."""
    text: str
    """The reason in words."""
    bytes: int | None = None
    """The bytes of the values between the two; None without static types, which InferShape infers."""


@attrs.frozen(slots=True)
class Outside:
    """An op that is in no subgraph, and the reason."""

    node: str
    """The op."""
    rule: str
    """The kind of reason, as for a border."""
    text: str
    """The reason in words."""


class Reasons(Protocol):
    """The source of a plan's reasons: computed on demand, or read from a file."""

    def borders(self) -> Iterable[Border]: ...
    def outside(self) -> Iterable[Outside]: ...


@attrs.frozen(slots=True)
class WrittenReasons:
    """Reasons read from a file."""

    border_list: tuple[Border, ...]
    """The borders."""
    outside_list: tuple[Outside, ...]
    """The ops outside."""

    def borders(self) -> Iterable[Border]:
        return self.border_list

    def outside(self) -> Iterable[Outside]:
        return self.outside_list


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
        from partita.partition.applying import apply_plan  # upward: users apply by a method of the plan

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
            raise PartitionError(f"this is no JSON: {error}", where="Plan.from_json") from error
        if not isinstance(content, dict) or content.get("partita_plan") != VERSION:
            raise PartitionError(
                "this is no plan of a version that is known",
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
        groups = tuple(
            Group(str(g["name"]), str(g["property"]), int(g["index"]), g["device"], tuple(map(str, g["nodes"])))
            for g in content["groups"]
        )
        reasons = WrittenReasons(
            tuple(Border(**border) for border in content["borders"]), tuple(Outside(**node) for node in content["outside"])
        )
        return cls(
            str(content["graph"]),
            groups,
            tuple(content["notes"]),
            reasons,
            dedup_inputs={g["name"]: bool(g["dedup_inputs"]) for g in content["groups"]},
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
