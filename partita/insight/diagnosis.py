"""Result of `diagnose`: the error of each subgraph, and the node, or the group of nodes, to blame."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.interface.device_list import Device
from partita.by_layer import Layer
from partita.compare import Difference
from partita.graph.formatting import counted, first_of, in_xml, shortened
from partita.graph.graph import Graph
from partita.graph.pictures.tables import Column, terminal_table
from partita.insight.trial import RIGHT

if TYPE_CHECKING:
    from rich.table import Table

MANY = 8
"""A group of more nodes is a sum of small errors rather than one fault."""

ADDED = 100.0
"""Small errors may add up to the allowed error times this factor."""

LAYERS = 60
"""Number of table rows that `print` shows."""


@attrs.frozen(slots=True)
class SubgraphCheck:
    """One subgraph on the trusted run's inputs."""

    name: str
    """Name of its call."""
    device: str
    """The device that runs it."""
    ops: int
    """Number of its ops."""
    kind: str
    """"right", or the kind of error."""
    excess: float
    """Its largest error relative to the allowed one."""
    layers: tuple[Layer, ...]
    """Comparison of each of its outputs with the trusted one."""
    message: str = ""
    """Error message of the device, if it failed."""


@attrs.frozen(slots=True, eq=False)
class Fault:
    """The smallest part of the model that is wrong by itself."""

    subgraph: str
    """The subgraph in which it was found."""
    device: str
    """The device that runs it."""
    nodes: tuple[str, ...]
    """Names of the nodes: one, or a group that is wrong only together."""
    ops: tuple[str, ...]
    """Ops of the nodes."""
    kind: str
    """Kind of error."""
    message: str
    """Error message of the device, if it failed; else the known reason."""
    layers: tuple[Layer, ...]
    """Comparison of its outputs with the trusted ones, on the trusted run's inputs."""
    tries: int
    """Number of groups of ops compiled to find it."""
    among: int
    """Number of ops of the subgraph."""
    graph: Graph
    """The nodes as a graph of their own."""
    inputs: tuple[Any, ...]
    """The trusted run's values of the inputs of `graph`."""
    expected: tuple[Any, ...]
    """The trusted run's values of its outputs."""
    target: Device
    """The device itself."""
    config: Mapping[str, Any]
    """Configuration of the device."""
    tolerance: float | None = None
    """The allowed error; None: that of the element types."""

    def __str__(self) -> str:
        listed = ", ".join(f"{name} ({op})" for name, op in zip(self.nodes[:MANY], self.ops, strict=False))
        if len(self.nodes) > MANY:
            listed += f" and {len(self.nodes) - MANY} more"
        only = "" if len(self.nodes) == 1 else ", which are right in separate parts"
        lines = [f"{listed} on {self.device}: {self.kind}{only}"]
        lines += [f"  {self.message}"] if self.message else []
        lines += [f"  {_numbers(layer)}" for layer in self.layers]
        tries = counted(self.tries, "compilation")
        return "\n".join([*lines, f"  found in {self.subgraph} ({counted(self.among, 'op')}) by {tries}"])


@attrs.frozen(slots=True, eq=False, repr=False)
class Diagnosis:
    """Result of `diagnose`."""

    model: str
    """Name of the model."""
    devices: str
    """The diagnosed devices."""
    against: str
    """The trusted devices."""
    outputs: tuple[Difference, ...]
    """Comparison of the model's outputs with the trusted ones; empty if it could not run."""
    subgraphs: tuple[SubgraphCheck, ...]
    """The subgraphs in order, each on the trusted run's inputs, up to the first wrong one."""
    fault: Fault | None
    """The smallest part that is wrong by itself; None if every subgraph is right."""
    inside: tuple[Layer, ...] = ()
    """Values at the cuts of the subgraph at fault, in order, as its device computes them."""
    notes: tuple[str, ...] = ()
    """Further notes."""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return self.fault is None and all(one.ok for one in self.outputs)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes to blame."""
        return () if self.fault is None else self.fault.nodes

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Errors by layer: the outputs of the subgraphs, then the values inside the one at fault."""
        return (*(layer for check in self.subgraphs for layer in check.layers), *self.inside)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, without graphs and arrays."""
        fault = self.fault
        return {
            "model": self.model,
            "devices": self.devices,
            "against": self.against,
            "ok": self.ok,
            "outputs": [one.as_data() for one in self.outputs],
            "subgraphs": [attrs.asdict(check) for check in self.subgraphs],
            "fault": None if fault is None else _plain(fault),
            "inside": [attrs.asdict(layer) for layer in self.inside],
            "notes": list(self.notes),
        }

    def to_svg(self) -> str:
        """Picture of the relative error of each layer."""
        blamed = () if self.fault is None else [layer.name for layer in self.fault.layers]
        return _error_plot(self.layers, blamed)

    def to_table(self, most: int = LAYERS) -> Table:
        """Errors by layer as a rich table for a terminal."""
        title = f"{self.model}: {counted(len(self.layers), 'layer')} against {self.against}"
        return terminal_table(COLUMNS, self.layers, title, most=most, box=None)

    def print(self) -> None:
        """Print the errors by layer, and what is to blame."""
        import rich
        from rich.text import Text

        rich.print(self.to_table(), Text(str(self)))

    def __str__(self) -> str:
        lines = [f"{self.model} on {self.devices} against {self.against}"]
        lines += [f"  {one}" for one in self.outputs]
        lines += [f"  {check.name} on {check.device}: {check.kind}" for check in self.subgraphs if check.kind != RIGHT]
        right = sum(check.kind == RIGHT for check in self.subgraphs)
        lines += [f"  {counted(right, 'subgraph is', 'subgraphs are')} right on the trusted run's inputs"] if right else []
        if self.fault is not None:
            lines += ["to blame:", *(f"  {line}" for line in str(self.fault).split("\n"))]
        else:
            lines.append("nothing is to blame" if self.ok else f"no subgraph is wrong by itself: {self._together()}")
        return "\n".join([*lines, *first_of(self.notes)])

    def _together(self) -> str:
        """The reason why the model is wrong though each of its subgraphs is right."""
        far = [one for one in self.outputs if not one.ok and not one.worst <= ADDED * one.tolerance]
        if not far:
            return "small errors add up"
        why = "errors grow from one subgraph to the next, or a value is passed on wrongly"
        return f"{far[0].output} is too far off for small errors that add up; {why}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Representations for notebooks."""
        return {"text/plain": str(self), "image/svg+xml": self.to_svg()}

    def __repr__(self) -> str:
        nothing = "right" if self.ok else "no subgraph is wrong by itself"
        return f"<Diagnosis of {self.model!r}: {', '.join(self.nodes) or nothing}>"


def _numbers(layer: Layer) -> str:
    return f"{layer.name}: error {layer.absolute:.3g}, relative {layer.relative:.2g}, cosine {layer.cosine:.6f}"


def _pair(counts: tuple[int, int]) -> str:
    return "" if counts == (0, 0) else f"{counts[0]}, {counts[1]}"


COLUMNS: tuple[Column[Layer], ...] = (
    Column("value", lambda layer: layer.name),
    Column("op", lambda layer: layer.op),
    Column("largest error", lambda layer: f"{layer.absolute:.3g}"),
    Column("relative", lambda layer: f"{layer.relative:.2g}"),
    Column("cosine", lambda layer: f"{layer.cosine:.6f}"),
    Column("NaN", lambda layer: _pair(layer.nans)),
    Column("infinite", lambda layer: _pair(layer.infinities)),
    Column("range", lambda layer: "{:.3g} to {:.3g}".format(*layer.ranges[0])),
    Column("trusted range", lambda layer: "{:.3g} to {:.3g}".format(*layer.ranges[1])),
)
"""The columns of a layer's row."""


def _plain(fault: Fault) -> dict[str, Any]:
    left_out = ("graph", "inputs", "expected", "target", "config", "layers")
    fields = {field.name: getattr(fault, field.name) for field in attrs.fields(Fault) if field.name not in left_out}
    return {**fields, "layers": [attrs.asdict(layer) for layer in fault.layers]}


_ROW, _LABEL, _WIDTH = 18, 260, 420
"""Height of a row, width of the names, and width of the bars, in pixels."""

_LEAST, _LARGEST = -9.0, 1.0
"""Decimal logarithms of the errors at the left and right end."""


def _error_plot(layers: Sequence[Layer], blamed: Collection[str]) -> str:
    """The picture as SVG. Bars of blamed values are red, those of infinite errors reach the end."""
    height = _ROW * (len(layers) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABEL + _WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    ]
    for power in range(int(_LEAST), int(_LARGEST) + 1, 2):
        x = _LABEL + _length(10.0**power)
        parts.append(f'<line x1="{x:.0f}" y1="{_ROW}" x2="{x:.0f}" y2="{height - _ROW}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{_ROW - 5}" text-anchor="middle" fill="#555">1e{power}</text>')
    for i, layer in enumerate(layers):
        parts += _row(layer, _ROW * (i + 1), layer.name in blamed)
    return "\n".join([*parts, "</svg>"])


def _row(layer: Layer, top: int, blamed: bool) -> list[str]:
    color = "#c62828" if blamed else "#5c6bc0"
    name, length = in_xml(shortened(layer.name, 40)), _length(layer.relative)
    number = f"{layer.relative:.1e}" if math.isfinite(layer.relative) else "infinite"
    return [
        f'<text x="{_LABEL - 6}" y="{top + 13}" text-anchor="end">{name}</text>',
        f'<rect x="{_LABEL}" y="{top + 3}" width="{length:.1f}" height="{_ROW - 6}" fill="{color}">'
        f"<title>{in_xml(layer.name)} ({in_xml(layer.op)}): {number}</title></rect>",
        f'<text x="{_LABEL + length + 5:.1f}" y="{top + 13}" fill="#555">{number}</text>',
    ]


def _length(error: float) -> float:
    if error <= 0:
        return 0.0
    power = _LARGEST if math.isinf(error) else min(max(math.log10(error), _LEAST), _LARGEST)
    return _WIDTH * (power - _LEAST) / (_LARGEST - _LEAST)
