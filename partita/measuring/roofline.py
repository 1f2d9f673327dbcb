"""The roofline of a profile: what limits each kernel, bytes or operations, and how near it comes to that limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators import AcceleratorError, CompiledModel, Profile
from partita.accelerators.building.units import Unit
from partita.accelerators.compiling import compile as compile_model
from partita.accelerators.interface.accelerator import COPY, EXECUTED
from partita.accelerators.placement.costs import as_number
from partita.accelerators.runtime.profile import Row
from partita.graph.build import op, variable
from partita.graph.errors import PartitaError
from partita.graph.flops import count_flops, count_text
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.pictures.tables import Column, Tabular, terminal_table
from partita.graph.summary import size_text
from partita.passes.plan_memory import aligned_bytes

if TYPE_CHECKING:
    from rich.table import Table

SIDE = 512
"""Size of the square matrices whose product measures a device's operations."""

ELEMENTS = 1 << 24
"""Number of float32 elements whose negation measures a device's bytes: more than caches hold."""

CALLS = 16
"""Number of calls, the fastest of which counts."""


def _rate(value: object) -> float:
    rate = as_number(value)
    if not rate > 0:
        raise AcceleratorError(f"a peak of {value!r:.80}", where="roofline, option peaks", remedy="Give a number above 0")
    return rate


@attrs.frozen(slots=True)
class Peak:
    """The best rates of a device."""

    flops_per_us: float = attrs.field(converter=_rate)
    """Operations per microsecond."""
    bytes_per_us: float = attrs.field(converter=_rate)
    """Bytes read and written per microsecond."""

    def __str__(self) -> str:
        return f"{count_text(round(self.flops_per_us * 1e6))}FLOP/s, {self.bytes_per_us / 1e3:,.1f} GB/s"


@attrs.frozen(slots=True)
class Kernel:
    """One kernel of a profile, beside the peaks of its device."""

    name: str
    """The row of the profile: a node, or a whole subgraph."""
    op: str
    """Its op, or ops."""
    device: str
    """The device that ran it."""
    real_us: float
    """Measured microseconds."""
    nodes: tuple[str, ...]
    """The nodes that it computes."""
    flops: int
    """Its operations."""
    bytes: int
    """The bytes that it has to read and write: its inputs, weights and outputs, each once."""
    flops_us: float
    """The least microseconds for the operations."""
    bytes_us: float
    """The least microseconds for the bytes."""

    @property
    def limit(self) -> str:
        """The part that takes longer at the device's peak: "operations" or "bytes"."""
        return "operations" if self.flops_us > self.bytes_us else "bytes"

    @property
    def factor(self) -> float:
        """The time of the limit over that of the other part."""
        more, less = max(self.flops_us, self.bytes_us), min(self.flops_us, self.bytes_us)
        return more / less if less else np.inf

    @property
    def reached(self) -> float:
        """The share of the peak that it reaches. Above 1 if data come from caches, or the peak was measured low."""
        return max(self.flops_us, self.bytes_us) / self.real_us if self.real_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; an infinite factor is None."""
        factor = self.factor if np.isfinite(self.factor) else None
        return {**attrs.asdict(self), "limit": self.limit, "factor": factor, "reached": self.reached}


@attrs.frozen(slots=True, eq=False, repr=False)
class Roofline(Tabular):
    """The kernels of a profile, each with its limit."""

    model: str
    """The model's name."""
    peaks: Mapping[str, Peak]
    """The peak of each device."""
    kernels: tuple[Kernel, ...]
    """The kernels whose operations and bytes are known, in the order of the profile."""
    unknown: tuple[str, ...]
    """The rows of other kernels: those that an engine adds, and those of dynamic sizes."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        peaks = {label: attrs.asdict(peak) for label, peak in self.peaks.items()}
        kernels = [kernel.to_dict() for kernel in self.kernels]
        return {"model": self.model, "peaks": peaks, "kernels": kernels, "unknown": list(self.unknown)}

    def to_table(self, slowest: int | None = None) -> Table:
        """The kernels (or only the `slowest`), as a rich table for a terminal."""
        from rich.text import Text

        caption = Text("; ".join(f"{label}: {peak}" for label, peak in self.peaks.items()))
        slowest_first = sorted(self.kernels, key=lambda kernel: -kernel.real_us)
        return terminal_table(COLUMNS, slowest_first[:slowest], f"{self.model}: roofline", caption)

    def __repr__(self) -> str:
        return f"<Roofline of {self.model!r}: {len(self.kernels)} kernels>"


COLUMNS: tuple[Column[Kernel], ...] = (
    Column("kernel", lambda one: one.name),
    Column("op", lambda one: one.op),
    Column("device", lambda one: one.device),
    Column("µs", lambda one: f"{one.real_us:,.1f}", right=True),
    Column("FLOP", lambda one: count_text(one.flops).strip(), right=True),
    Column("bytes", lambda one: size_text(one.bytes), right=True),
    Column("limited by", lambda one: one.limit),
    Column("times the other", lambda one: f"{one.factor:,.1f}" if np.isfinite(one.factor) else "", right=True),
    Column("reached", lambda one: f"{one.reached:.0%}", right=True),
)
"""The columns of a kernel's row."""


def roofline(model: CompiledModel, profile: Profile | None = None, peaks: Mapping[str, Peak] | None = None) -> Roofline:
    """The limit of each kernel of a profile (by default of generated inputs), and how near it comes to that limit.

    `peaks` are those of devices; the others' are measured, by a product of large matrices and the negation of a large array
    on the device, compiled with the model's settings."""
    if not isinstance(model, CompiledModel):
        cause = f"it is not a compiled model: {model!r:.80}"
        raise AcceleratorError(cause, where="roofline", remedy="Give what pt.compile returned")
    profile = model.profile() if profile is None else profile
    if not isinstance(profile, Profile):
        cause = f"it is not a profile: {profile!r:.80}"
        raise AcceleratorError(cause, where="roofline, option profile", remedy="Give what model.profile(...) returned")
    if not isinstance(peaks or {}, Mapping) or not all(isinstance(peak, Peak) for peak in (peaks or {}).values()):
        remedy = "Give {'cpu': pt.Peak(flops_per_us=..., bytes_per_us=...)}"
        raise AcceleratorError(f"they are not a table: {peaks!r:.80}", where="roofline, option peaks", remedy=remedy)
    units = {unit.name: unit for unit in model.units}
    known = dict(peaks or {})
    for unit in units.values():
        if unit.device.label not in known:
            known[unit.device.label] = _peak(unit)
    kernels: list[Kernel] = []
    unknown: list[str] = []
    for span in profile.spans:
        rows = [row for row in span.rows if row.status == EXECUTED]
        if span.name in units:
            body = units[span.name].body
            owned = _owned(body, rows)
            flops = count_flops(body)
            main = {row.node: row for row in sorted(rows, key=lambda row: row.real_us)}
            for row in rows:
                nodes = owned.get(row.node, []) if main[row.node] is row else []
                size = _bytes(body, nodes)
                if not nodes or size is None or not {node.name for node in nodes}.isdisjoint(flops.unknown):
                    unknown.append(row.node)
                    continue
                count, peak = sum(flops.by_node[node.name] for node in nodes), known[row.device]
                names = tuple(node.name for node in nodes)
                least = count / peak.flops_per_us, size / peak.bytes_per_us
                kernels.append(Kernel(row.node, row.layer_type, row.device, row.real_us, names, count, size, *least))
    used = {unit.device.label: known[unit.device.label] for unit in units.values()}
    return Roofline(profile.model, used, tuple(kernels), tuple(unknown))


def _owned(body: Graph, rows: Sequence[Row]) -> dict[str, list[Node]]:
    """The nodes that each row computes. Those without a row were fused: into that of the node which reads them, if its op is
    theirs, or else into that of what they read or are read by."""
    ops = [node for node in body.nodes if node.is_op]
    names = {node.name: node.name for node in ops}
    owner = {row.node: row.node for row in rows if row.node in names and row.layer_type != COPY}
    whole = next((row.node for row in rows if row.node not in names and row.layer_type == "Subgraph"), None)
    if whole is not None:
        return {whole: ops}
    kinds = {row.node: row.layer_type.split("+") for row in rows if row.node in owner}
    for node in reversed(ops):
        later = [owner[reader.name] for reader in body.consumers(node) if reader.name in owner]
        fused = [one for one in later if node.op in kinds[one] and body[one].op not in kinds[one]]
        if node.name not in owner and fused:
            owner[node.name] = fused[0]
    for forwards in (True, False):
        for node in ops if forwards else reversed(ops):
            beside = [entry.node for entry in node.reads] if forwards else body.consumers(node)
            near = [owner[other.name] for other in beside if other.name in owner]
            if node.name not in owner and near:
                owner[node.name] = near[0]
    owned: dict[str, list[Node]] = {}
    for node in ops:
        if node.name in owner:
            owned.setdefault(owner[node.name], []).append(node)
    return owned


def _bytes(body: Graph, nodes: Sequence[Node]) -> int | None:
    """The bytes that nodes read from and leave for others; None if some size is not known."""
    inside = set(nodes)
    entries = {entry for node in nodes for entry in node.reads if entry.node not in inside}
    returned = set(body.outputs)
    for node in nodes:
        leaves = not inside.issuperset(body.consumers(node))
        entries |= {entry for entry in node.outputs if entry.name and (leaves or entry in returned)}
    sizes = [aligned_bytes(entry.type, 1) for entry in entries]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _peak(unit: Unit) -> Peak:
    """The rates of the unit's device in a product of matrices, and in the negation of an array."""
    a, b = (variable(name, "float32", (SIDE, SIDE)) for name in "ab")
    product, negation = op("MatMul", a, b), op("Neg", variable("x", "float32", (ELEMENTS,)))
    return Peak(2 * SIDE**3 / _microseconds(product, unit), 8 * ELEMENTS / _microseconds(negation, unit))


def _microseconds(node: Node, unit: Unit) -> float:
    """The least time of a model of one op on the unit's device, without copies."""
    label, times = unit.device.label, []
    try:
        with compile_model(Graph([node]), label, {label: {**unit.config, "PERF_COUNT": True}}) as model:
            arrays = model.example_inputs()
            for _ in range(CALLS):
                model(*arrays)
                times.append(sum(row.real_us for row in model.profile().rows if row.layer_type != COPY))
    except PartitaError as error:
        remedy = f"Give them: peaks={{{label!r}: Peak(flops_per_us=..., bytes_per_us=...)}}"
        cause = f"the peaks of {label!r} cannot be measured: {error.cause}"
        raise AcceleratorError(cause, where="roofline", remedy=remedy) from error
    return min(times)
