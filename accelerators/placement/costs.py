"""The costs that `place` minimises: times of ops on devices, and of hand-overs between devices, given or estimated."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import write_text
from partita.accelerators.process.json_form import form_error
from partita.graph.errors import ReadError, check_path
from partita.graph.flops import count_flops
from partita.graph.formatting import counted, in_xml
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.pictures.bars import HEAD, LEFT, LINE, NARROWEST, WIDTH, bar, svg_of
from partita.graph.pictures.dot import PALETTE
from partita.graph.pictures.tables import Tabular
from partita.graph.types import TensorType

if TYPE_CHECKING:
    from rich.table import Table

CROSSING_US = 20.0
"""Estimated cost of switching from one device to another."""

BYTES_PER_US = 8000.0
"""Estimated number of bytes that pass between devices per microsecond."""

FLOPS_PER_US = 50_000.0
"""Estimated number of operations of the first device per microsecond."""

SLOWER = 4.0
"""Estimated ratio of the times of a device and of the one that is preferred to it."""

HOST = "host"
"""The source of a model's inputs, and the destination of its outputs, in hand-overs."""

MOST = 1e15
"""The greatest time, in microseconds, and the greatest rate: sums of times stay finite, and can be compared."""

TIME, ENERGY = "µs", "µJ"
"""The units of costs."""

VERSION = 1
"""The version of the JSON form."""

_FORM = {
    "partita_costs": int, "source": str, "times": {str: {str: float}},
    "hand_overs": [{"from": str, "to": str, "launch_us": float, "bytes_per_us": float}],
}


def as_number(value: object) -> float:
    """The value as a float; NaN if it is not a finite number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _invalid(cause: str, remedy: str) -> AcceleratorError:
    return AcceleratorError(cause, where="costs", remedy=remedy)


def _launch(value: object) -> float:
    us = as_number(value)
    if not 0 <= us <= MOST:
        raise _invalid(f"the launch_us of a hand-over is {value!r:.80}", f"Give microseconds, from 0 to {MOST:g}")
    return us


def _rate(value: object) -> float:
    rate = as_number(value)
    if not 1 / MOST <= rate <= MOST:
        raise _invalid(f"the bytes_per_us of a hand-over are {value!r:.80}", f"Give a rate above 0, of {MOST:g} at most")
    return rate


def _times(given: object) -> dict[str, dict[str, float]]:
    """The times as plain numbers; an error names the place of one that is none."""
    if not isinstance(given, Mapping) or not all(isinstance(times, Mapping) for times in given.values()):
        raise _invalid(f"they are not a table of times: {given!r:.80}", 'Give {"cpu": {"conv1": 12.5}}')
    checked: dict[str, dict[str, float]] = {}
    for device, times in given.items():
        checked[device] = {name: as_number(us) for name, us in times.items()}
        for name, us in checked[device].items():
            if not (isinstance(device, str) and isinstance(name, str)):
                raise _invalid(f"{device!r:.80} and {name!r:.80} are not two names", 'Give {"cpu": {"conv1": 12.5}}')
            if not 0 <= us <= MOST:
                cause = f"the time of {name!r} on {device!r} is {times[name]!r:.80}"
                raise _invalid(cause, f"Give microseconds, from 0 to {MOST:g}; leave out what does not run there")
    return checked


def _pairs(given: object) -> dict[tuple[str, str], HandOver]:
    """The hand-overs; an error names one that is none, or that leads nowhere."""
    remedy = 'Give {("cpu", "cuda"): HandOver(...)}, with two different names'
    if not isinstance(given, Mapping):
        raise _invalid(f"they are not a table of hand-overs: {given!r:.80}", remedy)
    for pair, one in given.items():
        names = pair if isinstance(pair, tuple) else ()
        if len(names) != 2 or not all(isinstance(name, str) for name in names) or names[0] == names[1]:
            raise _invalid(f"nothing is handed over along {pair!r:.80}", remedy)
        if not isinstance(one, HandOver):
            raise _invalid(f"the hand-over from {names[0]!r} to {names[1]!r} is {one!r:.80}", remedy)
    return dict(given)


@attrs.frozen(slots=True)
class HandOver:
    """The cost of handing tensors over from one device to another."""

    launch_us: float = attrs.field(default=CROSSING_US, converter=_launch)
    """Microseconds of a hand-over, however small."""
    bytes_per_us: float = attrs.field(default=BYTES_PER_US, converter=_rate)
    """Bytes per further microsecond."""

    def us(self, nbytes: float) -> float:
        """The microseconds of handing over one tensor."""
        return self.launch_us + nbytes / self.bytes_per_us


@attrs.frozen(slots=True)
class Costs(Tabular):
    """Microseconds of each op on each device, and of hand-overs between devices."""

    times: Mapping[str, Mapping[str, float]] = attrs.field(converter=_times)
    """By device, the microseconds of each op by name; an op without a time is not placed there."""
    hand_overs: Mapping[tuple[str, str], HandOver] = attrs.field(factory=dict, converter=_pairs)
    """By source and destination. Pairs of devices that are absent have the default; pairs with "host" cost nothing."""
    source: str = attrs.field(default="given", converter=str)
    """The origin of the numbers."""
    unit: str = attrs.field(default=TIME, validator=attrs.validators.in_((TIME, ENERGY)))
    """The unit of all costs: microseconds, or microjoules if energy is to be saved."""

    def hand_over(self, source: str, destination: str) -> HandOver | None:
        """The hand-over between two devices, or a device and the host; None if it costs nothing."""
        found = self.hand_overs.get((source, destination))
        if found is not None or source == destination or HOST in (source, destination):
            return found
        return HandOver()

    def to_json(self) -> str:
        """The costs as text, equal for equal costs."""
        content = {
            "partita_costs": VERSION,
            "source": self.source,
            **({} if self.unit == TIME else {"unit": self.unit}),
            "times": {device: dict(times) for device, times in self.times.items()},
            "hand_overs": [{"from": a, "to": b, **attrs.asdict(one)} for (a, b), one in sorted(self.hand_overs.items())],
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Costs:
        """The costs in the output of `to_json`."""
        remedy = "Give the text that costs.to_json() returned"
        try:
            content = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise AcceleratorError(f"this is not JSON: {error}", where="Costs.from_json", remedy=remedy) from error
        wrong = form_error(content, _FORM)
        if wrong is None and content["partita_costs"] != VERSION:
            wrong = "this is not a version of costs that is known"
        if wrong is None and content.get("unit", TIME) not in (TIME, ENERGY):
            wrong = f"its unit is {content['unit']!r:.40}"
        if wrong is not None:
            raise AcceleratorError(wrong, where="Costs.from_json", remedy=remedy)
        pairs = {(row["from"], row["to"]): HandOver(row["launch_us"], row["bytes_per_us"]) for row in content["hand_overs"]}
        return cls(content["times"], pairs, content["source"], content.get("unit", TIME))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the costs into a file."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Costs:
        """The costs that `save` wrote."""
        path = check_path("Costs.load", path, AcceleratorError)
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ReadError(f"no costs can be read from it: {error}", where=path) from error
        return cls.from_json(text)

    def to_svg(self) -> str:
        """The times of ops by device, and the hand-overs, as a picture."""
        return costs_svg(self)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write that picture into an SVG file."""
        write_text(path, self.to_svg())

    def to_table(self) -> Table:
        """The sums by device and the hand-overs, as a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table("cost", "ops", self.unit, title=Text(f"costs ({self.source})"))
        for column in table.columns[1:]:
            column.justify = "right"
        for device, times in self.times.items():
            table.add_row(Text(f"all on {device}"), str(len(times)), f"{sum(times.values()):,.1f}")
        for (source, destination), one in self.hand_overs.items():
            table.add_row(Text(f"{source} to {destination}"), "", f"{one.launch_us:,.1f} + bytes / {one.bytes_per_us:,.0f}")
        return table

    def __str__(self) -> str:
        lines = [f"costs ({self.source})"]
        for device, times in self.times.items():
            lines.append(f"  {device}: {counted(len(times), 'op')}, {sum(times.values()):,.1f} {self.unit} in all")
        for (source, destination), one in self.hand_overs.items():
            launch = f"{one.launch_us:,.1f} {self.unit}"
            lines.append(f"  {source} to {destination}: {launch}, and 1 {self.unit} for {one.bytes_per_us:,.0f} bytes")
        return "\n".join(lines)


GivenCosts = Costs | Mapping[str, Mapping[str, float]] | Callable[[Node, str], "float | None"]
"""Costs; the times of a table, by device and name; or a function from a node and a device to its time, None if it has none."""


def costs_of(given: GivenCosts | None, graph: Graph, labels: Sequence[str]) -> Costs:
    """The costs that the user gave, or estimates."""
    if given is None:
        return estimated(graph, labels)
    if isinstance(given, Costs):
        return given
    if not callable(given):
        return Costs(given)
    times: dict[str, dict[str, float]] = {label: {} for label in labels}
    for node in graph.nodes:
        if node.is_op:
            for label in labels:
                us = given(node, label)
                if us is not None:
                    times[label][node.name] = us
    return Costs(times)


def estimated(graph: Graph, labels: Sequence[str]) -> Costs:
    """Times by operations and bytes, as if each device were slower than the one named before it: without measurements, the order
    of the devices is all that is known of their speed."""
    flops = count_flops(graph).by_node
    first = {
        node.name: 1.0 + flops.get(node.name, 0) / FLOPS_PER_US + sum(map(_bytes, node.outputs)) / BYTES_PER_US
        for node in graph.nodes if node.is_op
    }
    times = {label: {name: us * SLOWER**rank for name, us in first.items()} for rank, label in enumerate(labels)}
    return Costs(times, source="estimated by operations, bytes and the order of the devices")


def _bytes(entry: Any) -> int:
    return tensor_bytes(entry.type) or 0


def tensor_bytes(kind: Any) -> int | None:
    """The bytes of a tensor, dynamic sizes counted as 1; None for other types and unknown ranks."""
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype == "string":
        return None
    sizes = tuple(size if isinstance(size, int) else 1 for size in kind.shape)
    return attrs.evolve(kind, shape=sizes).nbytes if not kind.is_static else kind.nbytes


def finite(us: float | None) -> float:
    """The time, or infinity if there is none."""
    return math.inf if us is None else float(us)


HANDED_OVER = 1 << 20
"""The bytes of the hand-overs in a picture of costs."""


def costs_svg(costs: Costs, width: int = WIDTH) -> str:
    """The picture of costs as SVG: for each device a line with a bar for each op, with those too narrow to be seen in one bar at
    the end, and for each hand-over one with its launch and its bytes. Linear."""
    ops = {device: list(times.items()) for device, times in costs.times.items()}
    overs = {
        f"{a} to {b}": [("launch", one.launch_us), ("1 MiB", one.us(HANDED_OVER) - one.launch_us)]
        for (a, b), one in costs.hand_overs.items()
    }
    drawn, top = [f'<text x="4" y="19" font-weight="bold">{in_xml(f"costs ({costs.source})"[:140])}</text>'], HEAD
    for title, lines_of in (("all ops", ops), ("a hand-over of 1 MiB", overs)):
        longest = max((sum(us for _, us in bars) for bars in lines_of.values()), default=0.0)
        if longest:
            drawn.append(f'<text x="4" y="{top + 14}" font-weight="bold">{title}</text>')
            top += LINE
        for i, (label, bars) in enumerate(lines_of.items() if longest else ()):
            total, start = sum(us for _, us in bars), 0.0
            drawn.append(f'<text x="4" y="{top + 14}">{in_xml(f"{label[:28]}: {total:,.1f} {costs.unit}")}</text>')
            scale = (width - 2 * LEFT - 10) / longest
            narrow = [us for _, us in bars if 0 < us * scale < NARROWEST]
            wide = [one for one in bars if one[1] * scale >= NARROWEST]
            for name, us in [*wide, (counted(len(narrow), "narrow bar"), sum(narrow))]:
                drawn += bar(name, start, us, top, scale, PALETTE[i % len(PALETTE)], 2 * LEFT, costs.unit)
                start += us
            top += LINE
    return svg_of(drawn, width, top + 8)
