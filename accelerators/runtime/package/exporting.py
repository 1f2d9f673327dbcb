"""Exports a compiled model to one file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.building.specialized import SpecializedSubgraph
from partita.accelerators.building.units import Unit
from partita.accelerators.errors import NotSupported
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.stub_body import skeleton
from partita.accelerators.runtime.package.container import checked_key, writing
from partita.accelerators.runtime.package.imported_report import MEMBER
from partita.accelerators.runtime.package.plan import WEIGHTS, ArrayWriter, plan_of
from partita.graph.errors import WriteError
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.types import Array
from partita.graph.writers.onnx.model import ModelWriter

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel


def export_model(model: CompiledModel, path: str | os.PathLike[str], *, bodies: bool = True, key: bytes | None = None) -> None:
    """Write the model as one file that `import_model` reads, here or elsewhere, without compiling again.

    Each subgraph is written in its device's own form and, unless `bodies` is false, as ONNX too, so that it can be
    compiled again if that form does not fit. The ONNX body is always written if it is the device's own form or
    if sizes are dynamic; kernels for any size are written too. With a `key` the file is signed (HMAC-SHA256)."""
    key = checked_key(key, "export")
    with writing(path) as package:
        with package.member(WEIGHTS) as member:
            exporting = _Exporting(model, ArrayWriter(member), bodies)
            exporting.run()
        for name, data in exporting.members.items():
            package.add(name, data)
        package.finish(exporting.manifest(), key)
    logger("package").info("%s: exported to %s, %s", model.graph.name, os.fspath(path), counted(len(exporting.rows), "subgraph"))


class _Exporting:
    def __init__(self, model: CompiledModel, arrays: ArrayWriter, bodies: bool) -> None:
        self.model = model
        self.arrays = arrays
        self.bodies = bodies
        self.members: dict[str, bytes] = {}
        self.rows: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}
        """The row of each compiled subgraph, by its identity."""

    def run(self) -> None:
        """Creates all members but the arrays, which are written directly to the file."""
        calls = {}
        for node, unit in zip([n for n in self.model.graph.nodes if n.is_op], self.model.units, strict=True):
            if id(unit.compiled) not in self.numbers:
                self.numbers[id(unit.compiled)] = len(self.rows)
                self.rows.append(self.unit(unit, len(self.rows)))
            calls[node] = self.numbers[id(unit.compiled)]
        self.members["plan.onnx"] = self.onnx(plan_of(self.model.graph, calls))
        self.members[MEMBER] = json.dumps(self.model.report.to_dict(), default=str).encode()

    def manifest(self) -> dict[str, Any]:
        """The manifest with everything that the importer needs."""
        properties = self.model.properties
        return {
            "model": properties.name,
            "devices": list(properties.devices),
            "inputs": [[name, str(value_type)] for name, value_type in properties.inputs],
            "outputs": [[name, str(value_type)] for name, value_type in properties.outputs],
            "settings": attrs.asdict(attrs.evolve(self.model.settings, dot_folder=None)),
            "units": self.rows,
        }

    def unit(self, unit: Unit, number: int) -> dict[str, Any]:
        """A compiled subgraph's row in the manifest."""
        accelerator, compiled = unit.device.accelerator, unit.compiled
        dynamic = isinstance(compiled, SpecializedSubgraph)
        own_form = not (dynamic or accelerator.travels_as_body)
        whole = self.bodies or not own_form
        body = unit.body if whole else skeleton(unit.body)
        return {
            "name": unit.name,
            "device": unit.device.label,
            "ops": list(unit.ops),
            "identity": dict(accelerator.identity(unit.config) if unit.identity is None else unit.identity),
            "config": _travelling(accelerator, unit.config, f"subgraph {unit.name!r} on {unit.device.label!r}"),
            "body": self.member(f"bodies/{number}.onnx", self.onnx(body)),
            "whole": whole,
            "code": self.member(f"code/{number}", self.code(unit, compiled)) if own_form else None,
            "weights": [self.arrays.row(array) for array in self.weights(unit, compiled)] if own_form else [],
            "any_size": self.any_size(unit, compiled, number) if isinstance(compiled, SpecializedSubgraph) else None,
        }

    def any_size(self, unit: Unit, compiled: SpecializedSubgraph, number: int) -> dict[str, Any] | None:
        """The kernels for any size, which are applied to the body on import and need not be compiled again."""
        if compiled.any_size is None or unit.device.accelerator.travels_as_body:
            return None
        kernels = compiled.any_size.compiled
        try:
            code = bytes(kernels.export())
        except NotSupported:
            return None  # the body is exported, and compiled on import
        weights = [self.arrays.row(array) for array in self.weights(unit, kernels)]
        return {"code": self.member(f"code/{number}", code), "weights": weights}

    def code(self, unit: Unit, compiled: CompiledSubgraph) -> bytes:
        try:
            code = bytes(compiled.export())
        except Exception as error:
            raise unit.failure(error) from error
        kind = type(unit.device.accelerator)
        if kind.import_ is Accelerator.import_:
            remedy = "Define import_(data, graph, config), or set travels_as_body = True: an import then compiles the body"
            raise NotSupported(f"{kind.__name__} defines no import_ to read the export", where=unit.title, remedy=remedy)
        return code

    def weights(self, unit: Unit, compiled: CompiledSubgraph) -> Sequence[Array]:
        try:
            return compiled.export_weights()
        except Exception as error:
            raise unit.failure(error) from error

    def member(self, name: str, data: bytes) -> str:
        self.members[name] = data
        return name

    def onnx(self, graph: Graph) -> bytes:
        model = ModelWriter(graph, drop_control=True, aside=self.arrays).model
        return bytes(model.SerializeToString())


def _travelling(accelerator: Accelerator, config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The part of the configuration that is exported: the values of keys that name no files, as JSON."""
    written = {}
    for name, key in accelerator.keys().items():
        if name not in config or key.names_files:
            continue
        try:
            written[name] = _plain(config[name])
        except TypeError:
            if config[name] is key.default:
                continue
            raise WriteError(
                f"the value of {name} cannot be written into a file: {config[name]!r:.80}",
                where=where,
                remedy="Give a number, a text, or lists and dictionaries of these; or a key that names files, which stays behind",
            ) from None
    return written


def _plain(value: Any) -> Any:
    """The value as JSON; TypeError if it has no such form."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError
