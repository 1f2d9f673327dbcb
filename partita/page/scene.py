"""What the page shows, as plain records. In their JSON form each field is a list, and each text is written once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

NOWHERE = -1
"""The number of an item, device or type that is not there."""


@attrs.define(slots=True, eq=False)
class Item:
    """A box: an op, an input or output, or something that holds others (a call, a body, a kernel, a section)."""

    kind: str
    """input, output, op, call, body, kernel or section."""
    name: str
    """The node's name."""
    label: str
    """The op, or a few words on what is inside."""
    parent: int
    """The item that holds it; -1: none."""
    owner: str = ""
    """Its device, or else the property that chose its subgraph: what its colour stands for."""
    details: tuple[str, ...] = ()
    """Its weights and attributes, a line each."""
    us: float = NOWHERE
    """Microseconds that it took in the run."""
    is_open: bool = False
    """Does the page begin with its inside shown?"""


@attrs.frozen(slots=True)
class Value:
    """A value that one item makes and others read."""

    source: int
    """The item that makes it."""
    name: str
    """The value's name."""
    type: str
    """Its type in words; empty where unknown."""
    nbytes: int
    """Its size; -1 where unknown."""


@attrs.frozen(slots=True)
class Wall:
    """An edge that ends at a subgraph's border, and why."""

    producer: int
    """The item that makes the value."""
    consumer: int
    """The item that reads it."""
    inside: str
    """The subgraph whose border it is."""
    rule: str
    """The kind of reason."""
    text: str
    """The reason in words."""


@attrs.frozen(slots=True)
class Refusal:
    """One reason for which some items are not where they were wanted."""

    what: str
    """What refused them: "not on cuda", "in no subgraph"."""
    rule: str
    """The kind of reason; empty where there is none."""
    text: str
    """The reason in words."""
    items: tuple[int, ...]
    """The items refused."""


@attrs.frozen(slots=True)
class Transfer:
    """The values that go from one device or property to another."""

    source: str
    """The device or property that the values come from."""
    target: str
    """The device or property that they go to."""
    values: int
    """How many values."""
    nbytes: int
    """Their size together, of those whose size is known."""
    unknown: int
    """How many have no known size."""


@attrs.frozen(slots=True)
class Bar:
    """A stretch of a run: a subgraph, a copy, or a kernel inside."""

    name: str
    """The name of what ran."""
    what: str
    """Its op, or what ran it."""
    owner: str
    """The device that ran it."""
    start_us: float
    """When it began."""
    us: float
    """How long it took."""
    depth: int
    """0 for a step of the run, 1 for what is inside."""
    item: int
    """Its box; -1: none."""


@attrs.frozen(slots=True)
class Lap:
    """One step of one real call."""

    request: int
    """The number of the call, from 1."""
    name: str
    """The subgraph, or the value that was copied."""
    owner: str
    """The device."""
    thread: str
    """The thread that called the device."""
    start_us: float
    """When it began."""
    us: float
    """How long it took."""
    waited_us: float
    """How long the call had waited for it."""
    item: int
    """Its box; -1: none."""


@attrs.frozen(slots=True)
class Seen:
    """What the recorder saw of one value."""

    item: int
    """The box of the subgraph that makes it; -1: none."""
    name: str
    """The value's name."""
    owner: str
    """The device that made it."""
    calls: int
    """How many calls were looked at."""
    nans: int
    """How many NaN there were."""
    infinities: int
    """How many infinities there were."""
    first: int
    """The first call that had one of them; 0: none."""
    low: str
    """The least finite number; empty where there is none."""
    high: str
    """The largest finite number."""
    checksum: str
    """The checksum of the last call; empty where none was asked for."""


@attrs.frozen(slots=True)
class Probe:
    """One subgraph of one call that the recorder held against numpy."""

    item: int
    """The box of the subgraph; -1: none."""
    name: str
    """The subgraph."""
    owner: str
    """Its device."""
    call: int
    """The number of the call."""
    text: str
    """The error, or why there is none."""
    is_ok: bool
    """Is it near enough?"""


@attrs.frozen(slots=True)
class Subgraph:
    """One subgraph that became a call."""

    item: int
    """Its box."""
    ops: int
    """How many ops it has."""
    seconds: float
    """How long it took to compile; -1: unknown."""


@attrs.frozen(slots=True)
class Change:
    """Something that is otherwise than in an earlier report."""

    item: int
    """Its box; -1: it is gone."""
    what: str
    """The kind of change."""
    name: str
    """The name of the op or subgraph."""
    text: str
    """What was, and what is now."""


RECORDS: dict[str, type[Any]] = {
    "items": Item,
    "values": Value,
    "walls": Wall,
    "refusals": Refusal,
    "transfers": Transfer,
    "subgraphs": Subgraph,
    "bars": Bar,
    "laps": Lap,
    "seen": Seen,
    "probes": Probe,
    "changes": Change,
}
"""The tables of a scene, and what a row of each is."""


@attrs.frozen(slots=True, eq=False)
class Scene:
    """Everything that the page needs."""

    title: str
    """The model's name."""
    subtitle: str
    """What is shown, in a few words."""
    owned_by: str
    """What owners are: "device" or "property"."""
    owners: tuple[str, ...]
    """Devices or properties, in the order in which colours are given out."""
    facts: tuple[tuple[str, str], ...]
    """The overview: what, how much."""
    notes: tuple[str, ...]
    """Notes about whatever else happened."""
    items: list[Item]
    """The boxes."""
    values: list[Value]
    """The values that the items make."""
    edges: list[tuple[int, int]]
    """Numbers of a value and of an item that reads it."""
    walls: list[Wall]
    """Borders."""
    refusals: list[Refusal]
    """Reasons, those of most items first."""
    transfers: list[Transfer]
    """The values that go from one device or property to another."""
    subgraphs: list[Subgraph]
    """The calls, in order."""
    bars: list[Bar]
    """The run, in order."""
    run: str
    """The inputs of the run that was profiled; empty where there is no profile."""
    total_us: float
    """The microseconds of the run."""
    before: str = ""
    """The title of the earlier report that this one is compared with; empty where there is none."""
    changes: list[Change] = attrs.field(factory=list)
    """What changed since, by kind."""
    laps: list[Lap] = attrs.field(factory=list)
    """The steps of real calls, in the order in which they began."""
    recorded: str = ""
    """What the recorder did, in a line; empty where there is none."""
    seen: list[Seen] = attrs.field(factory=list)
    """The values that it saw."""
    probes: list[Probe] = attrs.field(factory=list)
    """The samples that it took."""
    compared: tuple[tuple[str, str, str], ...] = ()
    """What was counted: what, how much before, how much now."""

    def to_json(self) -> str:
        """The scene as JSON. A field of a list of records is a list of its own; texts are numbers of `texts`."""
        texts = _Texts()
        content = {
            "title": self.title,
            "subtitle": self.subtitle,
            "owned_by": self.owned_by,
            "owners": list(self.owners),
            "facts": [list(fact) for fact in self.facts],
            "notes": list(self.notes),
            "edges": [list(column) for column in zip(*self.edges)] or [[], []],
            **{name: texts.columns(record, getattr(self, name)) for name, record in RECORDS.items()},
            "run": self.run,
            "total_us": self.total_us,
            "before": self.before,
            "recorded": self.recorded,
            "compared": [list(row) for row in self.compared],
            "texts": texts.listed,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Texts:
    """A table in which every text stands once."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._number: dict[str, int] = {}

    def columns(self, record: type[attrs.AttrsInstance], rows: Iterable[Any]) -> dict[str, list[Any]]:
        """A list for each field of the record."""
        rows = list(rows)
        return {field.name: [self._plain(getattr(row, field.name)) for row in rows] for field in attrs.fields(record)}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            number = self._number.setdefault(value, len(self.listed))
            if number == len(self.listed):
                self.listed.append(value)
            return number
        if isinstance(value, tuple):
            return [self._plain(item) for item in value]
        return round(value, 3) if isinstance(value, float) and not value.is_integer() else int(value)
