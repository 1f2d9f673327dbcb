"""A placed model as a chain of stages: self-contained models with named borders, which existing engines run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import attrs

from partita.accelerators.building.units import Unit
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.inlining import unplaced
from partita.accelerators.placement.costs import HOST, Costs
from partita.accelerators.process.atomic import write_text
from partita.accelerators.runtime.package.triton import write_repository
from partita.graph.errors import WriteError, check_path, did_you_mean
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.pictures.tables import Column, Tabular, terminal_table
from partita.graph.summary import size_text
from partita.graph.types import Type
from partita.graph.writers import save
from partita.partition.bodies import build_body, draft_body, find_exits
from partita.partition.op_index import build_op_index
from partita.passes.plan_memory import aligned_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.profile import Profile

INDEX = "stages.json"
"""The name of the file that describes the chain."""

VERSION = 1
"""The version of the JSON form."""


@attrs.frozen(slots=True)
class Border:
    """A value at the border of a stage, or of the whole model."""

    name: str
    """The name of the stage's (or the model's) input or output."""
    value: str
    """The value's name, which is the same at all borders."""
    source: str | None
    """The stage that computes it; None for an input of the model."""
    type: Type | None
    """Its type."""
    bytes: int | None
    """Its bytes; None if they are not static."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        kind = None if self.type is None else str(self.type)
        return {"name": self.name, "value": self.value, "source": self.source, "type": kind, "bytes": self.bytes}

    def __str__(self) -> str:
        return self.name if self.bytes is None else f"{self.name} ({size_text(self.bytes)})"


@attrs.frozen(slots=True, eq=False)
class Stage:
    """Consecutive subgraphs on one device, as a model of their own."""

    name: str
    """Its name: the whole model's, and its number."""
    device: str
    """The device that runs it; "host" if it has no op."""
    model: CompiledModel
    """The same compiled subgraphs as in the whole model. Its report is that of the whole model."""
    inputs: tuple[Border, ...]
    """The values that enter."""
    outputs: tuple[Border, ...]
    """The values that later stages or the caller read."""
    ops: int
    """Number of ops."""
    predicted_us: float | None
    """The predicted time in microseconds, without hand-overs; None if some op has no time."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model as plain data."""
        own = {"name": self.name, "device": self.device, "ops": self.ops, "predicted_us": self.predicted_us}
        return {**own, "inputs": _as_data(self.inputs), "outputs": _as_data(self.outputs)}

    def __str__(self) -> str:
        time = "" if self.predicted_us is None else f", {self.predicted_us:,.1f} µs"
        border = f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"
        return f"{self.name} on {self.device}: {counted(self.ops, 'op')}{time}: {border}"


@attrs.frozen(slots=True, eq=False, repr=False)
class Stages(Tabular, Sequence[Stage]):
    """The chain of a model. Each stage reads inputs of the model and outputs of earlier stages."""

    name: str
    """The model's name."""
    inputs: tuple[Border, ...]
    """The model's inputs."""
    outputs: tuple[Border, ...]
    """The model's outputs, each with the value that it returns."""
    times: str
    """The origin of the predicted times."""
    chain: tuple[Stage, ...]
    """The stages in order."""

    @overload
    def __getitem__(self, index: int) -> Stage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Stage, ...]: ...
    def __getitem__(self, index: int | slice) -> Stage | tuple[Stage, ...]:
        return self.chain[index]

    def __len__(self) -> int:
        return len(self.chain)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.chain)

    def save(self, folder: str | os.PathLike[str], form: str = "partita", *, key: bytes | None = None) -> None:
        """Write each stage into the folder, and `stages.json`, which describes the chain, last.

        `form` is "partita" (what `import_model` reads; a `key` signs it), "onnx" (for engines that run ONNX; settings of devices,
        such as PRECISION, are not in it), or "triton": a model repository with a Python model for each stage, and the
        whole as an ensemble."""
        if form not in FORMS:
            remedy = did_you_mean(str(form), FORMS) or f"There are {', '.join(FORMS)}"
            raise AcceleratorError(f"there is no form {form!r:.80}", where="stages, option form", remedy=remedy)
        if key is not None and form == "onnx":
            remedy = "Leave the key out, or write another form"
            raise AcceleratorError("ONNX files are not signed", where="stages, option key", remedy=remedy)
        target = Path(check_path("save", folder, AcceleratorError))
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"the folder cannot be created: {error.strerror}", where=str(target)) from None
        files = FORMS[form](self, target, key)
        content = {"partita_stages": VERSION, "form": form, **self.to_dict()}
        content["stages"] = [{**row, "file": file} for row, file in zip(content["stages"], files, strict=True)]
        write_text(target / INDEX, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain data."""
        return {
            "model": self.name,
            "times": self.times,
            "inputs": _as_data(self.inputs),
            "outputs": _as_data(self.outputs),
            "stages": [stage.to_dict() for stage in self],
        }

    def to_table(self) -> Table:
        """The stages as a rich table for a terminal."""
        return terminal_table(COLUMNS, self, str(self).partition("\n")[0])

    def __str__(self) -> str:
        head = f"{self.name}: {counted(len(self), 'stage')}, times {self.times}"
        return "\n".join([head, *(f"  {stage}" for stage in self)])

    def __repr__(self) -> str:
        return f"<Stages of {self.name!r}: {', '.join(stage.device for stage in self)}>"


def _listed(borders: Sequence[Border]) -> str:
    return ", ".join(map(str, borders))


COLUMNS: tuple[Column[Stage], ...] = (
    Column("stage", lambda stage: stage.name),
    Column("device", lambda stage: stage.device),
    Column("ops", lambda stage: stage.ops, right=True),
    Column("µs", lambda stage: "" if stage.predicted_us is None else f"{stage.predicted_us:,.1f}", right=True),
    Column("reads", lambda stage: _listed(stage.inputs)),
    Column("makes", lambda stage: _listed(stage.outputs)),
)
"""The columns of a stage's row."""


def _as_data(borders: Sequence[Border]) -> list[dict[str, Any]]:
    return [border.to_dict() for border in borders]


def _packages(stages: Stages, folder: Path, key: bytes | None) -> list[str]:
    """Writes a package for each stage."""
    files = [f"{stage.name}.partita" for stage in stages]
    for stage, file in zip(stages, files):
        stage.model.export(folder / file, key=key)
    return files


def _onnx_models(stages: Stages, folder: Path, key: bytes | None) -> list[str]:
    """Writes an ONNX model without functions for each stage."""
    files = [f"{stage.name}.onnx" for stage in stages]
    for stage, file in zip(stages, files):
        save(unplaced(stage.model.graph, "Export a model that has its bodies"), folder / file)
    return files


FORMS: dict[str, Callable[[Stages, Path, bytes | None], list[str]]] = {
    "partita": _packages, "onnx": _onnx_models, "triton": write_repository,
}
"""The forms in which stages are written."""


def stages_of(model: CompiledModel, times: Profile | Costs, model_of: Callable[..., CompiledModel]) -> Stages:
    """The chain of the model's stages, which `model_of` makes of their graphs and units; `times` predict their times."""
    graph = model.graph
    if not isinstance(times, Costs) and not hasattr(times, "spans"):
        cause = f"{times!r:.80} has no times of a model"
        raise AcceleratorError(cause, where="stages, option times", remedy="Give pt.Costs, or model.profile(...)")
    base = re.sub(r"[^A-Za-z0-9_-]", "_", graph.name) or "model"
    units = list(model.units)
    parts = [list(part) for _, part in groupby(range(len(units)), lambda i: units[i].device.label)] or [[]]
    index = build_op_index(graph)
    makers = {index.nodes[v]: f"{base}_{i}" for i, part in enumerate(parts) for v in part}
    makers |= {entry.node: f"{base}_{len(parts) - 1}" for entry in graph.outputs if entry.node.value is not None}

    def border(name: str, entry: NodeEntry) -> Border:
        return Border(name, entry.name, makers.get(entry.node), entry.type, aligned_bytes(entry.type, 1))

    chain = []
    for number, (part, exits) in enumerate(zip(parts, find_exits(index, parts), strict=True)):
        draft = draft_body(index, part, exits, True)
        body = build_body(index, draft, f"{base}_{number}")
        leaving = [NodeEntry(index.nodes[v], i) for v, i in draft.exits]
        if number == len(parts) - 1:
            constants = list(dict.fromkeys(entry for entry in graph.outputs if entry.node.value is not None))
            body = Graph([*body.outputs, *constants], body.inputs, body.name, body.opsets, nodes=body.nodes)
            leaving += constants
        own = [units[v] for v in part]
        chain.append(
            Stage(
                body.name, own[0].device.label if own else HOST, _model_of(model, body, own, model_of),
                tuple(border(node.name, entry) for node, entry in zip(draft.variables, draft.entries, strict=True)),
                tuple(border(name, entry) for name, entry in zip(body.output_names, leaving, strict=True)),
                sum(len(unit.ops) for unit in own), _predicted(own, times),
            )
        )
    return Stages(
        graph.name,
        tuple(border(node.name, node[0]) for node in graph.inputs),
        tuple(border(name, entry) for name, entry in zip(graph.output_names, graph.outputs, strict=True)),
        times.source if isinstance(times, Costs) else f"measured with {times.inputs}",
        tuple(chain),
    )


def _model_of(
    model: CompiledModel, body: Graph, units: Sequence[Unit], model_of: Callable[..., CompiledModel]
) -> CompiledModel:
    """The stage as a model with the whole model's compiled subgraphs."""
    own = {unit.name: unit for unit in units}

    def measuring() -> Mapping[str, Unit]:
        return {name: unit for name, unit in model.measuring_units().items() if name in own}

    return model_of(body, own, model.report, model.settings, (), model.measured, measuring)


def _predicted(units: Sequence[Unit], times: Profile | Costs) -> float | None:
    """The sum of the subgraphs' times; None if one is not known."""
    if isinstance(times, Costs):
        each = [_by_costs(unit, times.times.get(unit.device.label, {})) for unit in units]
    else:
        spans = {span.name: span.real_us for span in times.spans}
        each = [spans.get(unit.name) for unit in units]
    return None if None in each else float(sum(us for us in each if us is not None))


def _by_costs(unit: Unit, times: Mapping[str, float]) -> float | None:
    """The time of a subgraph: its own if it was placed as one op, else the sum over its ops."""
    if unit.name in times:
        return times[unit.name]
    return sum(times[name] for name in unit.ops) if all(name in times for name in unit.ops) else None
