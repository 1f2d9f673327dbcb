"""The precision and device of each op, with reasons: a plan to read, lock, change, save as JSON, and apply."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.precision.calibration import Range
from partita.accelerators.precision.device_plan import DevicePlan, lowered_on
from partita.accelerators.precision.lowered_ops import KEPT, PRECISIONS, lowerable, with_channel_scales
from partita.graph.errors import did_you_mean
from partita.graph.formatting import counted
from partita.graph.graph import Graph, require_graph
from partita.graph.pictures.tables import Tabular
from partita.partition.fingerprint import difference, fingerprint
from partita.passes.infer import infer

if TYPE_CHECKING:
    from rich.table import Table

VERSION = 1
"""The version of the JSON form."""

FAR = 1e37
"""Limit of the ranges of values: their width has to fit float32."""


@attrs.frozen(slots=True)
class PrecisionRow:
    """One op that may be lowered."""

    node: str
    """The op's name."""
    op: str
    precision: str
    """Its precision: float32, or a lower one."""
    reason: str
    """The reason."""
    errors: Mapping[str, float]
    """The error of the model's output if this op alone runs in a lower precision, by precision."""
    gains: Mapping[str, float]
    """The gain of the op in a lower precision, in the plan's unit, by precision."""
    locked: bool = False
    """True if the user set it."""


class NoSuchOp(AcceleratorError, KeyError):
    """A plan has no op of that name."""

    __str__ = AcceleratorError.__str__


class PrecisionPlan(Tabular, MutableMapping[str, str]):
    """The precision of each op that may be lowered, by name.

    Assigning changes and locks it; `apply` writes the precisions into a graph."""

    def __init__(
        self,
        graph_name: str,
        written_fingerprint: str,
        rows: Mapping[str, PrecisionRow],
        ranges: Mapping[str, Range],
        tolerance: float,
        error: float | None,
        unit: str,
        devices: DevicePlan | None = None,
    ) -> None:
        self.graph_name = graph_name
        self.fingerprint = written_fingerprint
        """Identifies the graph, node for node."""
        self._rows = dict(rows)
        self.ranges = dict(ranges)
        """The range of the integers of each value, by value."""
        self.tolerance = tolerance
        """The allowed error of the output against float32."""
        self.error = error
        """The measured error with the whole plan applied; None once the plan was changed."""
        self.unit = unit
        """The unit of gains: microseconds, or bytes of weights."""
        self.devices = devices
        """The device of each op, if devices were chosen with the precisions; else None."""

    @property
    def rows(self) -> tuple[PrecisionRow, ...]:
        """All ops that may be lowered, in the graph's order."""
        return tuple(self._rows.values())

    @property
    def locked(self) -> dict[str, str]:
        """The precisions that the user set; passed to `choose_precision` as `lock`, they apply to another choice too."""
        return {row.node: row.precision for row in self.rows if row.locked}

    @property
    def placement(self) -> dict[str, str]:
        """The device of each op, by name; empty if the plan has no devices."""
        return {} if self.devices is None else dict(self.devices.placement)

    @property
    def pinned(self) -> dict[str, str]:
        """The devices that the user set; passed to `choose_precision` as `pin`, they apply to another choice too."""
        return {} if self.devices is None else self.devices.pinned

    def place(self, name: str, device: str) -> None:
        """Moves an op to another of the plan's devices, in this choice and in those that are given `pinned`."""
        if self.devices is None:
            remedy = 'Choose for several devices, as "HETERO:first,second", with win="time"'
            raise AcceleratorError("the plan says nothing of devices", where=f"plan.place({name!r})", remedy=remedy)
        self.devices.place(name, device)
        self.error = None

    def __getitem__(self, name: str) -> str:
        return self._row(name).precision

    def __setitem__(self, name: str, precision: str) -> None:
        row = self._row(name)
        check_precision(precision, f"plan[{name!r}]")
        self._rows[name] = attrs.evolve(row, precision=precision, reason="set by hand", locked=True)
        self.error = None

    def __delitem__(self, name: str) -> None:
        raise AcceleratorError(
            "every op has a precision", where=f"plan[{name!r}]", remedy=f"Assign another one; {KEPT!r} is that of the model"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _row(self, name: str) -> PrecisionRow:
        if name not in self._rows:
            remedy = did_you_mean(str(name), self._rows) or "It lists products whose weights are float32 constants"
            raise NoSuchOp(f"there is no op {name!r} that may be lowered", where="precision plan", remedy=remedy)
        return self._rows[name]

    def lock(self, *names: str) -> None:
        """Locks the precision of these ops for later choices; of all ops, if none is named."""
        for name in names or tuple(self._rows):
            self._rows[name] = attrs.evolve(self._row(name), locked=True)

    def why(self, name: str) -> str:
        """The op's precision and device, and the reasons for them. Ops that are never lowered have only a device."""
        label = self.placement.get(name)
        if name not in self._rows and label is not None:
            return "\n".join([f"{name} is on {label}", *self._why_there(name)])
        row = self._row(name)
        there = "" if label is None else f" on {label}"
        lines = [f"{row.node} ({row.op}) runs in {row.precision}{there}: {row.reason}"]
        for precision, error in row.errors.items():
            gain = row.gains.get(precision)
            won = "" if gain is None else f", and wins {amount(gain, self.unit)}"
            lines.append(f"  {precision} alone moves the answer by {error:.2g}{won}")
        return "\n".join([*lines, *self._why_there(name)])

    def _why_there(self, name: str) -> list[str]:
        return [] if self.devices is None else self.devices.why(name)

    def apply(self, graph: Graph, config: Mapping[str, Any] | None = None) -> Graph:
        """The graph in these precisions: standard ONNX, which `save` writes and other engines read.

        If the plan has devices, they become the affinities of its ops; `config` is as for `compile`, and each device is queried
        about the lowered ops."""
        require_graph(graph)
        if fingerprint(graph) != self.fingerprint:
            raise AcceleratorError(
                f"the plan was made for another graph (its name was {self.graph_name!r}): {difference(graph, list(self), False)}",
                where=f"graph {graph.name!r}",
                remedy="Apply it to the graph that choose_precision was given, or choose again",
            )
        typed = infer(with_channel_scales(graph), strict=False)
        missing = [name for name in self if name not in typed]
        if missing:
            raise AcceleratorError(f"the plan names {missing[0]!r}, which is not in the graph", where=f"graph {graph.name!r}")
        able = {node.name for node in lowerable(typed)}
        wrong = [name for name, precision in self.items() if precision != KEPT and name not in able]
        if wrong:
            cause = f"the plan lowers {wrong[0]!r}, which is not a product with constant float32 weights"
            raise AcceleratorError(cause, where=f"graph {graph.name!r}")
        if self.devices is None:
            return lowered_on(typed, self, self.ranges, None, ())
        return lowered_on(typed, self, self.ranges, self.devices.placement, self.devices.devices, config)

    def to_json(self) -> str:
        """The plan as text."""
        content = {
            "partita_precision": VERSION,
            "graph": self.graph_name,
            "fingerprint": self.fingerprint,
            "tolerance": self.tolerance,
            "error": self.error,
            "unit": self.unit,
            "ops": [attrs.asdict(row) for row in self.rows],
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            **({} if self.devices is None else {"placed": self.devices.to_dict()}),
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PrecisionPlan:
        """The plan that `to_json` wrote."""
        try:
            content = json.loads(text)
            if content["partita_precision"] != VERSION:
                raise ValueError(f"its version is {content['partita_precision']}, not {VERSION}")
            rows = _rows(content["ops"])
            tolerance = float(content["tolerance"])
            if not 0 <= tolerance < math.inf:
                raise ValueError(f"its tolerance is {tolerance}")
            ranges = {str(name): _range(*map(float, bounds)) for name, bounds in content["ranges"].items()}
            error = None if content["error"] is None else float(content["error"])
            devices = DevicePlan.from_dict(content["placed"]) if "placed" in content else None
            return cls(
                str(content["graph"]), str(content["fingerprint"]), rows, ranges, tolerance, error, str(content["unit"]), devices
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            raise AcceleratorError(
                f"this is not a precision plan: {problem}", where="PrecisionPlan.from_json", remedy="Read what to_json wrote"
            ) from problem

    def to_table(self) -> Table:
        """The plan as a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        placed = () if self.devices is None else ("device",)
        columns = "op", "kind", "precision", *placed, "alone moves the answer by", "wins", "why"
        table = Table(*columns, title=Text(self._title()))
        for row in self.rows:
            errors = ", ".join(f"{name} {error:.1e}" for name, error in row.errors.items())
            gains = ", ".join(f"{name} {amount(gain, self.unit)}" for name, gain in row.gains.items())
            label = [self.placement.get(row.node, "")] if placed else []
            table.add_row(*map(Text, (row.node, row.op, row.precision, *label, errors, gains, row.reason)))
        return table

    def _title(self) -> str:
        counts = {name: sum(row.precision == name for row in self.rows) for name in (KEPT, *PRECISIONS)}
        shown = ", ".join(f"{counted(count, 'op')} in {name}" for name, count in counts.items() if count)
        measured = "not measured" if self.error is None else f"off by {self.error:.2g}"
        shown = (shown or "no op may be lowered") + self._devices()
        return f"{self.graph_name}: {shown}; {measured}, where {self.tolerance:g} is allowed"

    def _devices(self) -> str:
        """The number of ops of each device, in words."""
        counts = Counter(self.placement.values())
        return "".join(f"; {counted(count, 'op')} on {label}" for label, count in counts.items())

    def __str__(self) -> str:
        placement = self.placement
        there = {row.node: f" on {placement[row.node]}" if row.node in placement else "" for row in self.rows}
        rows = [f"  {row.node} ({row.op}): {row.precision}{there[row.node]}: {row.reason}" for row in self.rows]
        measured = [] if self.devices is None else [f"  {sentence}" for sentence in self.devices.measured]
        return "\n".join([self._title(), *rows, *measured])

    def __repr__(self) -> str:
        return f"<PrecisionPlan of {self._title()}>"


def _rows(listed: Iterable[Mapping[str, Any]]) -> dict[str, PrecisionRow]:
    """Parses the ops of a plan, by name."""
    rows: dict[str, PrecisionRow] = {}
    for row in map(_row, listed):
        if row.node in rows:
            raise ValueError(f"it lists {row.node!r} twice")
        check_precision(row.precision, f"plan[{row.node!r}]")
        rows[row.node] = row
    return rows


def _row(content: Mapping[str, Any]) -> PrecisionRow:
    """Parses one op of a plan; ValueError, TypeError or AttributeError if it is invalid."""
    errors, gains = ({str(name): float(n) for name, n in content[key].items()} for key in ("errors", "gains"))
    words = {key: str(content[key]) for key in ("node", "op", "precision", "reason")}
    if not isinstance(content["locked"], bool):
        raise TypeError(f"'locked' is {content['locked']!r}, which is neither true nor false")
    return PrecisionRow(**words, errors=errors, gains=gains, locked=content["locked"])


def _range(low: float, high: float) -> Range:
    if not -FAR <= low <= high <= FAR:
        raise ValueError(f"no numbers lie between {low} and {high}")
    return low, high


def amount(gain: float, unit: str) -> str:
    """The gain, in words."""
    return f"{gain:,.0f} {unit}" if unit == "bytes" else f"{gain:,.1f} {unit}"


def check_precision(precision: str, where: str) -> None:
    """Raises for an unknown precision."""
    if precision not in (KEPT, *PRECISIONS):
        names = (KEPT, *PRECISIONS)
        raise AcceleratorError(
            f"there is no precision {precision!r}", where=where,
            remedy=did_you_mean(str(precision), names) or f"There are {', '.join(names)}",
        )
