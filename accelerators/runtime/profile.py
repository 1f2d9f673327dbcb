"""The profile of a run: rows by subgraph and node, copies, and the total, as a table, as data, and for a trace viewer."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.errors import MEND, DeviceMistake
from partita.accelerators.interface.accelerator import COPY, EXECUTED, NOT_RUN, OPTIMIZED_OUT, ProfileRow
from partita.accelerators.process.atomic import write_text
from partita.accelerators.runtime.steps import CopyStep, RunStep, Step
from partita.graph.formatting import counted, in_code, in_xml, shortened
from partita.graph.node import Node
from partita.graph.pictures import bars
from partita.graph.pictures.bars import HEAD, LEFT, LINE, bar, svg_of
from partita.graph.pictures.dot import PALETTE
from partita.graph.pictures.html import bundle, picture, table
from partita.graph.pictures.tables import Column, Tabular, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

OUTSIDE = "in no row"
"""The name of the row for otherwise unaccounted time."""

NOTHING_US = 1e-3
"""Smaller times are rounding errors of sums."""


@attrs.frozen(slots=True)
class Row:
    """One node (or fused kernel, or whole subgraph, or copy) of a run."""

    subgraph: str
    """The subgraph's name; "" outside of all subgraphs."""
    index: int
    """Its number in the subgraph, from 1."""
    node: str
    """The node's name."""
    status: str
    """EXECUTED, NOT_RUN or OPTIMIZED_OUT."""
    layer_type: str
    """Its op; "Subgraph" if the device does not report single nodes, "Copy" for a copy between devices."""
    real_us: float
    """Wall time in microseconds."""
    cpu_us: float
    """Processor time in microseconds."""
    device: str
    """The device that it ran on."""
    exec_type: str
    """The kernel or implementation that ran it."""
    types: str = ""
    """The element types that it read and wrote; empty if the device does not report them."""


@attrs.frozen(slots=True)
class Span:
    """One step of a run."""

    name: str
    """The subgraph, or the copied value."""
    device: str
    """The device of the step."""
    start_us: float
    """The start in microseconds: the sum of earlier steps."""
    real_us: float
    """The duration in microseconds, the sum of its rows."""
    rows: tuple[Row, ...]
    """The rows of the step."""

    @property
    def inside(self) -> list[Row]:
        """The nodes and kernels that ran in it, if the device reports them."""
        return [row for row in self.rows if row.status == EXECUTED and row.subgraph not in ("", row.node)]


COLUMNS: tuple[Column[Row], ...] = (
    Column("subgraph", lambda row: shortened(row.subgraph)),
    Column("#", lambda row: row.index, right=True),
    Column("node", lambda row: shortened(row.node)),
    Column("status", lambda row: row.status),
    Column("layer_type", lambda row: shortened(row.layer_type)),
    Column("real µs", lambda row: f"{row.real_us:,.1f}", right=True),
    Column("cpu µs", lambda row: f"{row.cpu_us:,.1f}", right=True),
    Column("device", lambda row: shortened(row.device)),
    Column("exec_type", lambda row: shortened(row.exec_type)),
)
"""The columns of a row in a terminal."""

TYPES: Column[Row] = Column("types", lambda row: shortened(row.types))
"""A further column, if something ran in another type than float32."""

PLAIN = ("", "float32")
"""The types for which no such column is needed."""

WIDTH = 130
"""Width of the table in characters if it goes to a file or a pipe."""


CALLS = 9
"""Maximum number of calls of a profile; each row is their median."""

FEWEST = 3
"""Minimum number of calls for a median that a single one cannot move."""

SECONDS = 1.0
"""After this many seconds of measured calls no further one begins, once there are FEWEST."""

LONGEST = 10.0
"""After this many seconds no further call begins in any case."""


@attrs.frozen(slots=True, eq=False, repr=False)
class Profile(Tabular):
    """Measured runs of a model; each row is their median."""

    model: str
    """The model's name."""
    inputs: str
    """The inputs of the run: "the inputs given", "the last call", or "inputs made up"."""
    total_us: float
    """The sum of all rows in microseconds."""
    spans: tuple[Span, ...]
    """The steps in order."""
    not_run: tuple[Row, ...]
    """Nodes that no output needs."""
    elapsed_us: float = 0.0
    """Wall time of the steps in microseconds: the rows, and what the devices do around them without reporting it."""
    calls: int = 1
    """Number of measured runs."""
    outside: Row | None = None
    """The wall time that no row of a device accounts for, as a row; None if there is none."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the steps in order, and of nodes that did not run."""
        return tuple(row for span in self.spans for row in span.rows) + self.not_run

    @property
    def listed(self) -> tuple[Row, ...]:
        """The rows of tables and files: all rows, and `outside` as the last one."""
        return self.rows if self.outside is None else (*self.rows, self.outside)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "model": self.model,
            "inputs": self.inputs,
            "total_us": self.total_us,
            "elapsed_us": self.elapsed_us,
            "calls": self.calls,
            "rows": [attrs.asdict(row) for row in self.listed],
        }

    def to_json(self) -> str:
        """The profile as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a file for chrome://tracing or Perfetto, a line for each device; it is written completely or not at all."""
        write_text(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": self._events()}, ensure_ascii=False) + "\n")

    def _events(self) -> list[dict[str, Any]]:
        lines = {device: i for i, device in enumerate(dict.fromkeys(span.device for span in self.spans))}
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": i, "args": {"name": device}} for device, i in lines.items()
        ]
        for span in self.spans:
            line = {"ph": "X", "pid": 1, "tid": lines[span.device]}
            events.append({**line, "name": span.name, "cat": "subgraph", "ts": span.start_us, "dur": span.real_us})
            start = span.start_us
            for row in span.inside:
                args = {"op": row.layer_type, "exec_type": row.exec_type, "types": row.types, "cpu_us": row.cpu_us}
                events.append({**line, "name": row.node, "cat": "node", "ts": start, "dur": row.real_us, "args": args})
                start += row.real_us
        return events

    def to_table(self, slowest: int | None = None) -> Table:
        """The rows (or only the `slowest`) and the total, as a rich table for a terminal."""
        caption = f"total: {self.total_us:,.0f} µs of {self.elapsed_us:,.0f} µs on the clock"
        calls = "" if self.calls == 1 else f", median of {self.calls} calls"
        columns = COLUMNS if all(row.types in PLAIN for row in self.listed) else (*COLUMNS, TYPES)
        rows = self.listed if slowest is None else sorted(self.listed, key=lambda row: -row.real_us)[:slowest]
        return terminal_table(columns, rows, f"{self.model} ({self.inputs}){calls}", caption, folds=True)

    def print(self, slowest: int | None = None) -> None:
        """Print the table."""
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else WIDTH).print(self.to_table(slowest))

    def __str__(self) -> str:
        lines = [
            f"{row.subgraph}: {row.index}. {row.node}: {row.status} layer_type: {row.layer_type} real: {row.real_us:.0f} "
            f"cpu: {row.cpu_us:.0f} device: {row.device} exec_type: {row.exec_type}"
            + ("" if row.types in PLAIN else f" types: {row.types}")
            for row in self.listed
        ]
        return "\n".join([*lines, f"total: {self.total_us:.0f} microseconds"])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The representation for notebooks."""
        return bundle(self, profile_html(self))

    def __repr__(self) -> str:
        return f"<Profile of {self.model!r}: {counted(len(self.rows), 'row')}, {self.total_us:,.0f} µs>"


class Measurement:
    """Observes the steps of one run."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.total_us = 0.0
        """The sum of the rows so far."""
        self.elapsed_us = 0.0
        """Wall time of the steps so far in microseconds, without the cost of measuring between them."""
        self.outside_cpu_us = 0.0
        """Processor time of the steps so far, in microseconds, that no row accounts for."""

    def __call__(self, step: Step, run: Callable[[], None]) -> None:
        """Measures one step, and reads the device's rows before another run overwrites them."""
        with step.unit.measuring:
            start, cpu = perf_counter_ns(), thread_time_ns()
            run()
            real_us, cpu_us = (perf_counter_ns() - start) / 1e3, (thread_time_ns() - cpu) / 1e3
            try:
                device_rows = () if isinstance(step, CopyStep) else step.unit.compiled.profile_rows()
            except Exception as error:
                raise step.unit.failure(error) from error
        label = step.unit.device.label
        if isinstance(step, RunStep):
            rows = _unit_rows(step, device_rows, real_us, cpu_us)
            name = step.unit.name
        else:
            way = f"host to {label}" if step.up else f"{label} to host"
            rows = (Row("", 1, step.name, EXECUTED, COPY, real_us, cpu_us, label, way),)
            name = f"copy {step.name}"
        inside_us = sum(row.real_us for row in rows)
        self.spans.append(Span(name, label, self.total_us, inside_us, rows))
        self.total_us += inside_us
        self.elapsed_us += real_us
        self.outside_cpu_us += max(0.0, cpu_us - sum(row.cpu_us for row in rows))


def profile_of(measurements: Sequence[Measurement], model: str, inputs: str, dead: Sequence[Node]) -> Profile:
    """The measured runs as one profile, each row the median of its times."""
    spans: list[Span] = []
    start_us = 0.0
    for same in zip(*(one.spans for one in measurements), strict=True):
        spans.append(_median_span(same, start_us))
        start_us += spans[-1].real_us
    outside_us = statistics.median(one.elapsed_us - one.total_us for one in measurements)
    outside = _outside(outside_us, statistics.median(one.outside_cpu_us for one in measurements))
    not_run = [Row("", i, node.name, NOT_RUN, node.op or "", 0.0, 0.0, "", "") for i, node in enumerate(dead, 1)]
    elapsed_us = start_us + outside_us
    return Profile(model, inputs, start_us, tuple(spans), tuple(not_run), elapsed_us, len(measurements), outside)


def _median_span(spans: Sequence[Span], start_us: float) -> Span:
    """The step with the medians of its rows. Only runs with the same rows as the last one count."""
    last = spans[-1]
    alike = [span for span in spans if [row.node for row in span.rows] == [row.node for row in last.rows]]
    rows = tuple(_median_row(same) for same in zip(*(span.rows for span in alike)))
    return Span(last.name, last.device, start_us, sum(row.real_us for row in rows), rows)


def _median_row(rows: Sequence[Row]) -> Row:
    real_us, cpu_us = (statistics.median(values) for values in zip(*((row.real_us, row.cpu_us) for row in rows)))
    return attrs.evolve(rows[-1], real_us=real_us, cpu_us=cpu_us)


def _outside(real_us: float, cpu_us: float) -> Row | None:
    """The row for time that no row of a device accounts for. It is zero for devices that report one row for a whole subgraph."""
    if real_us <= NOTHING_US:
        return None
    return Row("", 1, OUTSIDE, EXECUTED, "Overhead", real_us, cpu_us, "", "what devices do around their kernels")


def _unit_rows(step: RunStep, device_rows: Sequence[ProfileRow], real_us: float, cpu_us: float) -> tuple[Row, ...]:
    """The device's rows, and rows for nodes that it does not mention: optimized out. One row for the whole if there are none."""
    unit = step.unit
    name, label = unit.name, unit.device.label
    if not device_rows:
        return (Row(name, 1, name, EXECUTED, "Subgraph", real_us, cpu_us, label, f"{counted(len(unit.ops), 'op')}"),)
    wrong = next((row for row in device_rows if not isinstance(row, ProfileRow)), None)
    if wrong is not None:
        raise DeviceMistake(f"its profile_rows hold {in_code(wrong)}, no ProfileRow", where=unit.title, remedy=MEND)
    mentioned = {row.node for row in device_rows}
    copied = {f"input {i}": node.name for i, node in enumerate(unit.body.inputs)}
    copied.update((f"output {i}", value) for i, value in enumerate(unit.body.output_names))
    gone = [node for node in unit.body.nodes if node.is_op and node.name not in mentioned]
    listed = [*device_rows, *(ProfileRow(node.name, node.op or "", OPTIMIZED_OUT, 0.0, 0.0, "") for node in gone)]
    names = [copied.get(row.node, row.node) if row.layer_type == COPY else row.node for row in listed]
    return tuple(
        Row(name, i, names[i - 1], row.status, row.layer_type, row.real_us, row.cpu_us, label, row.exec_type, row.types)
        for i, row in enumerate(listed, 1)
    )


SLOWEST = 15
"""Maximum number of rows listed of a profile."""


def profile_html(profile: Profile) -> str:
    """The timeline, and the slowest rows."""
    slowest = sorted(profile.rows, key=lambda row: -row.real_us)
    rows = [(row.node, row.layer_type, row.subgraph, row.device, row.real_us) for row in slowest]
    svg = timeline_svg(profile)
    header = ("node", "layer type", "subgraph", "device", "µs")
    title = f"the slowest of {len(rows):,}, on {profile.inputs}"
    return picture(svg, f"timeline of {profile.model}") + table(header, rows, title=title, most=SLOWEST)


def timeline_svg(profile: Profile, width: int = bars.WIDTH) -> str:
    """The picture of a profile as SVG: a line for each device, a bar for each step, and below it the kernels inside. Linear."""
    devices = list(dict.fromkeys(span.device for span in profile.spans))
    scale = (width - LEFT - 10) / (profile.total_us or 1)
    drawn = [f'<text x="4" y="19" font-weight="bold">{in_xml(profile.model[:60])}: {profile.total_us:,.0f} µs</text>']
    for i, device in enumerate(devices):
        top = HEAD + i * (2 * LINE + 8)
        drawn.append(f'<text x="4" y="{top + 15}">{in_xml(device[:16])}</text>')
        for span in profile.spans:
            if span.device == device:
                drawn += _span(span, top, scale, PALETTE[i % len(PALETTE)])
    return svg_of(drawn, width, HEAD + len(devices) * (2 * LINE + 8))


def _span(span: Span, top: float, scale: float, colour: str) -> list[str]:
    bars = bar(span.name, span.start_us, span.real_us, top, scale, colour)
    start = span.start_us
    for row in span.inside:
        bars += bar(f"{row.layer_type} {row.node}", start, row.real_us, top + LINE, scale, colour)
        start += row.real_us
    return bars
