"""Contents of the page as plain records. In JSON each field is a list, and each text is stored once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

NOWHERE = -1
"""Index of a missing item, device or type."""


@attrs.define(slots=True, eq=False)
class Item:
    """A box: an op, an input or output, or a container (a call, a body, a kernel, a section)."""

    kind: str
    """input, output, op, call, body, kernel or section."""
    name: str
    """Name of the node."""
    label: str
    """The op, or a summary of the contents."""
    parent: int
    """Item that contains it; -1 if none."""
    owner: str = ""
    """Its device, or else the property that chose its subgraph; determines its colour."""
    details: tuple[str, ...] = ()
    """Weights and attributes, a line each."""
    us: float = NOWHERE
    """Microseconds that it took in the run."""
    is_open: bool = False
    """True if its contents are shown initially."""


@attrs.frozen(slots=True)
class Value:
    """A value that one item computes and others read."""

    source: int
    """Item that computes it."""
    name: str
    """Name of the value."""
    type: str
    """Type as text; empty if unknown."""
    nbytes: int
    """Size in bytes; -1 if unknown."""


@attrs.frozen(slots=True)
class Wall:
    """An edge that ends at a subgraph's border, with the reason."""

    producer: int
    """Item that computes the value."""
    consumer: int
    """Item that reads it."""
    inside: str
    """Subgraph whose border it is."""
    rule: str
    """Kind of reason."""
    text: str
    """The reason in words."""


@attrs.frozen(slots=True)
class Refusal:
    """A reason why some items are not where they were wanted."""

    what: str
    """Category: "not on cuda", "in no subgraph"."""
    rule: str
    """Kind of reason; may be empty."""
    text: str
    """The reason in words."""
    items: tuple[int, ...]
    """The refused items."""


@attrs.frozen(slots=True)
class Transfer:
    """Values that go from one device or property to another."""

    source: str
    """Device or property that computes the values."""
    target: str
    """Device or property that reads them."""
    values: int
    """Number of values."""
    nbytes: int
    """Total size in bytes of those with a known size."""
    unknown: int
    """Number of values of unknown size."""


@attrs.frozen(slots=True)
class Bar:
    """A stretch of a run: a subgraph, a copy, or a kernel inside."""

    name: str
    """Name of what ran."""
    what: str
    """Its op, or its executor."""
    owner: str
    """Device that ran it."""
    start_us: float
    """Start time."""
    us: float
    """Duration."""
    depth: int
    """0 for a step of the run, 1 for a kernel inside."""
    item: int
    """Its box; -1 if none."""


@attrs.frozen(slots=True)
class Lap:
    """One step of one real call."""

    request: int
    """Number of the call, from 1."""
    name: str
    """Subgraph, or copied value."""
    owner: str
    """The device."""
    thread: str
    """Thread that called the device."""
    start_us: float
    """Start time."""
    us: float
    """Duration."""
    waited_us: float
    """Time that the call had waited for it."""
    item: int
    """Its box; -1 if none."""


@attrs.frozen(slots=True)
class Seen:
    """The recorder's observations of one value."""

    item: int
    """Box of the subgraph that computes it; -1 if none."""
    name: str
    """Name of the value."""
    owner: str
    """Device that computed it."""
    calls: int
    """Number of recorded calls."""
    nans: int
    """Number of NaN."""
    infinities: int
    """Number of infinities."""
    first: int
    """Number of the first call with NaN or infinities; 0 if none."""
    low: str
    """Smallest finite element; empty if there is none."""
    high: str
    """Largest finite element."""
    checksum: str
    """Checksum of the last call; empty if not requested."""


@attrs.frozen(slots=True)
class Probe:
    """A sample: one subgraph of one call that the recorder compared with numpy."""

    item: int
    """Box of the subgraph; -1 if none."""
    name: str
    """Name of the subgraph."""
    owner: str
    """Its device."""
    call: int
    """Number of the call."""
    text: str
    """The error, or why there is none."""
    is_ok: bool
    """True if the error is allowed."""


@attrs.frozen(slots=True)
class Subgraph:
    """One subgraph that became a call."""

    item: int
    """Its box."""
    ops: int
    """Number of its ops."""
    seconds: float
    """Seconds of compiling; -1 if unknown."""


@attrs.frozen(slots=True)
class Change:
    """A change since an earlier report."""

    item: int
    """Its box; -1 if it is gone."""
    what: str
    """Kind of change."""
    name: str
    """Name of the op or subgraph."""
    text: str
    """State before and now."""


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
"""Tables of a scene, with their row types."""


@attrs.frozen(slots=True, eq=False)
class Scene:
    """Everything that the page shows."""

    title: str
    """Name of the model."""
    subtitle: str
    """Kind of the object that is shown, in a few words."""
    owned_by: str
    """Kind of owners: "device" or "property"."""
    owners: tuple[str, ...]
    """Devices or properties, in order of their colours."""
    facts: tuple[tuple[str, str], ...]
    """Overview: names and amounts."""
    notes: tuple[str, ...]
    """Further notes."""
    items: list[Item]
    """The boxes."""
    values: list[Value]
    """Values that the items compute."""
    edges: list[tuple[int, int]]
    """Pairs of a value and an item that reads it, by index."""
    walls: list[Wall]
    """Borders."""
    refusals: list[Refusal]
    """Refusals, those of most items first."""
    transfers: list[Transfer]
    """Values that go from one device or property to another."""
    subgraphs: list[Subgraph]
    """The calls, in order."""
    bars: list[Bar]
    """The run, in order."""
    run: str
    """Inputs of the profiled run; empty without a profile."""
    total_us: float
    """Microseconds of the run."""
    before: str = ""
    """Title of the earlier report; empty without one."""
    changes: list[Change] = attrs.field(factory=list)
    """Changes since then, by kind."""
    laps: list[Lap] = attrs.field(factory=list)
    """Steps of real calls, by start time."""
    recorded: str = ""
    """Summary of the recorder in one line; empty without one."""
    seen: list[Seen] = attrs.field(factory=list)
    """Values that it observed."""
    probes: list[Probe] = attrs.field(factory=list)
    """Samples that it took."""
    compared: tuple[tuple[str, str, str], ...] = ()
    """Compared counts: name, amount before, amount now."""

    costs: dict[str, Any] | None = None
    """The costs of a placement, by which the page plans again: devices, boxes of ops, times and tensors."""

    def to_json(self) -> str:
        """The scene as JSON. A list of records is stored as one list per field; texts are indices into `texts`."""
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
            "costs": self.costs,
            "texts": texts.listed,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Texts:
    """A table with one entry for each distinct text."""

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
