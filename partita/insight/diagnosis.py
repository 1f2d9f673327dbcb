"""What `diagnose` returns: each subgraph's own error, and the node, or the group of nodes, that is to blame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.interface.device_list import Device
from partita.by_layer import Layer
from partita.compare import Difference
from partita.graph.graph import Graph
from partita.graph.words import counted, first_of
from partita.insight.error_plot import error_plot
from partita.insight.trial import RIGHT

if TYPE_CHECKING:
    from rich.table import Table

MANY = 8
"""A group of more nodes than that is a sum of small errors rather than one fault."""

ADDED = 100.0
"""So many times what is allowed small errors may become together."""

LAYERS = 60
"""The rows of a table that `print` shows."""


@attrs.frozen(slots=True)
class SubgraphCheck:
    """One subgraph on the trusted run's inputs."""

    name: str
    """The name of its call."""
    device: str
    """The device that runs it."""
    ops: int
    """How many ops it has."""
    kind: str
    """"right", or the way in which it is wrong."""
    excess: float
    """Its largest error over what is allowed."""
    layers: tuple[Layer, ...]
    """How far each of its outputs is from the trusted one."""
    message: str = ""
    """What the device said, where it failed."""


@attrs.frozen(slots=True, eq=False)
class Fault:
    """The smallest part of the model that is wrong by itself."""

    subgraph: str
    """The subgraph that it was found in."""
    device: str
    """The device that runs it."""
    nodes: tuple[str, ...]
    """The nodes' names: one, or a group that is wrong only together."""
    ops: tuple[str, ...]
    """Their ops."""
    kind: str
    """The way in which it is wrong."""
    message: str
    """What the device said, where it failed; else what is known of the reason."""
    layers: tuple[Layer, ...]
    """How far its outputs are from the trusted ones, on the trusted run's inputs."""
    tries: int
    """How many groups of ops were compiled to find it."""
    among: int
    """How many ops the subgraph has."""
    graph: Graph
    """The nodes as a graph of their own."""
    inputs: tuple[Any, ...]
    """The trusted run's values of the inputs of `graph`."""
    expected: tuple[Any, ...]
    """The trusted run's values of its outputs."""
    target: Device
    """The device itself."""
    config: Mapping[str, Any]
    """The device's configuration."""
    tolerance: float | None = None
    """The error that was allowed; None: that of the element types."""

    def __str__(self) -> str:
        listed = ", ".join(f"{name} ({op})" for name, op in zip(self.nodes[:MANY], self.ops, strict=False))
        if len(self.nodes) > MANY:
            listed += f" and {len(self.nodes) - MANY} more"
        only = "" if len(self.nodes) == 1 else ", which are right when they are parted"
        lines = [f"{listed} on {self.device}: {self.kind}{only}"]
        lines += [f"  {self.message}"] if self.message else []
        lines += [f"  {_numbers(layer)}" for layer in self.layers]
        tries = counted(self.tries, "compilation")
        return "\n".join([*lines, f"  found in {self.subgraph} ({counted(self.among, 'op')}) by {tries}"])


@attrs.frozen(slots=True, eq=False, repr=False)
class Diagnosis:
    """The object that `diagnose` gives."""

    model: str
    """The model's name."""
    devices: str
    """The devices that were asked."""
    against: str
    """The devices whose numbers were taken for right."""
    outputs: tuple[Difference, ...]
    """How far the model's outputs are from the trusted ones; empty if it could not run."""
    subgraphs: tuple[SubgraphCheck, ...]
    """The subgraphs in order, each on the trusted run's inputs, up to the first that is wrong."""
    fault: Fault | None
    """The smallest part that is wrong by itself; None if every subgraph is right."""
    inside: tuple[Layer, ...] = ()
    """Values inside the subgraph at fault, in order: as its device computes them where the cut passed."""
    notes: tuple[str, ...] = ()
    """What else is worth knowing."""

    @property
    def ok(self) -> bool:
        """Is nothing wrong?"""
        return self.fault is None and all(one.ok for one in self.outputs)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes to blame."""
        return () if self.fault is None else self.fault.nodes

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The errors by layer: the borders of the subgraphs, then what was seen inside the one at fault."""
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
        """The relative error of each layer as a picture."""
        blamed = () if self.fault is None else [layer.name for layer in self.fault.layers]
        return error_plot(self.layers, blamed)

    def to_table(self, most: int = LAYERS) -> Table:
        """The errors by layer, for a terminal, by rich."""
        from rich.table import Table
        from rich.text import Text

        columns = ("value", "op", "largest error", "relative", "cosine", "NaN", "infinite", "range", "trusted range")
        title = f"{self.model}: {counted(len(self.layers), 'layer')} against {self.against}"
        table = Table(*columns, box=None, title=Text(title))
        for layer in self.layers[:most]:
            table.add_row(*map(Text, _cells(layer)))
        if len(self.layers) > most:
            table.add_row(Text(f"... {len(self.layers) - most} more"))
        return table

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
        why = "what differs grows from one to the next, or is handed on wrongly"
        return f"{far[0].output} is too far off for small errors that add up; {why}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows."""
        return {"text/plain": str(self), "image/svg+xml": self.to_svg()}

    def __repr__(self) -> str:
        nothing = "right" if self.ok else "no subgraph is wrong by itself"
        return f"<Diagnosis of {self.model!r}: {', '.join(self.nodes) or nothing}>"


def _numbers(layer: Layer) -> str:
    return f"{layer.name}: error {layer.absolute:.3g}, relative {layer.relative:.2g}, cosine {layer.cosine:.6f}"


def _cells(layer: Layer) -> Sequence[str]:
    numbers = f"{layer.absolute:.3g}", f"{layer.relative:.2g}", f"{layer.cosine:.6f}"
    counts = ["" if pair == (0, 0) else f"{pair[0]}, {pair[1]}" for pair in (layer.nans, layer.infinities)]
    return layer.name, layer.op, *numbers, *counts, *(f"{low:.3g} to {high:.3g}" for low, high in layer.ranges)


def _plain(fault: Fault) -> dict[str, Any]:
    left_out = ("graph", "inputs", "expected", "target", "config", "layers")
    fields = {field.name: getattr(fault, field.name) for field in attrs.fields(Fault) if field.name not in left_out}
    return {**fields, "layers": [attrs.asdict(layer) for layer in fault.layers]}
