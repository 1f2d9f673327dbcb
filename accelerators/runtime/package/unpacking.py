"""Imports a compiled model from a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.building.units import Unit, compile_unit, measured_units, nothing_kept
from partita.accelerators.errors import AcceleratorError, BadConfig, UnknownDevice, UnknownKey
from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.interface.device_list import Device, parse_devices
from partita.accelerators.interface.isolation import in_its_place
from partita.accelerators.interface.settings import read_config, settings_of_file
from partita.accelerators.runtime.package.container import Package, PackageError, checked_key
from partita.accelerators.runtime.package.imported_report import ImportedReport, read_report
from partita.accelerators.runtime.package.plan import WEIGHTS, graph_of, read_array
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.readers.onnx.load import load_onnx

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel

Row = Mapping[str, Any]
"""A subgraph's row in the manifest."""

TARGET = "ARCH"
"""The key for another machine than this one: what is recompiled is for this one, whatever the file was for."""


def import_package(
    path: str | os.PathLike[str], key: bytes | None, config: Mapping[str, Any] | None, recompile: bool | str | Sequence[str],
    kind: type[CompiledModel],
) -> CompiledModel:
    """Implements `import_model`. `kind` is the class of the model, which is above."""
    package = Package(path, checked_key(key, os.fsdecode(path)))
    try:
        model = _Importing(package, config, recompile).run(kind)
        logger("package").info("%s: imported from %s", model.graph.name, package.where)
        return model
    except (PackageError, BadConfig, UnknownDevice, UnknownKey):
        raise
    except PartitaError as error:
        inner = f", {error.where}" if error.where else ""
        raise PackageError(error.cause, where=package.where + inner, remedy=error.remedy) from error
    except OSError as error:
        raise PackageError(f"it cannot be imported: {error}", where=package.where) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise PackageError(
            f"its manifest is not what this version of Partita writes ({type(error).__name__}: {error})",
            where=package.where,
            remedy="Export the model again",
        ) from error


class _Importing:
    def __init__(self, package: Package, config: Mapping[str, Any] | None, recompile: bool | str | Sequence[str]) -> None:
        self.package = package
        self.rows: list[Row] = list(package.manifest["units"])
        self.config = config
        self.recompile = recompile
        self.arrays = np.frombuffer(package.member(WEIGHTS), np.uint8)
        self.report = read_report(package)
        self.model: str = self.report["model"]
        self.notes: list[str] = []
        self.misfits: list[str] = []
        self.fixed = ""
        """The advice to fix sizes, if a subgraph does not fit because they vary."""
        self.taken: set[str] = set()
        """The subgraphs that use the package's kernels for any size."""

    def run(self, kind: type[CompiledModel]) -> CompiledModel:
        """Imports all subgraphs, and the graph around them."""
        devices = self.devices()
        values = self.configured([device for device in devices if device is not None])
        imported = [self.unit(row, device, values) for row, device in zip(self.rows, devices, strict=True)]
        if self.misfits:
            same = "recompile=True (the same device) or " if self.recompile is False and None not in devices else ""
            remedy = f"{self.fixed}Import with {same}recompile='cpu' (another device), or export the model here"
            raise PackageError("\n    ".join(self.misfits), where=self.package.where, remedy=remedy)
        bodies = {number: unit.body for number, unit in enumerate(imported) if unit is not None}
        graph, numbers = graph_of(self.onnx("plan.onnx"), bodies)
        by_number = {number: unit for number, unit in enumerate(imported) if unit is not None}
        units = {name: attrs.evolve(by_number[number], name=name) for name, number in numbers.items()}
        report = ImportedReport(self.report, tuple(self.notes))
        measured = any(unit.config["PERF_COUNT"] for unit in units.values())
        settings = settings_of_file(self.package.manifest["settings"], f"{self.package.where}, settings")
        return kind(graph, units, report, settings, (), measured, lambda: self.measuring(units, numbers))

    def measuring(self, units: Mapping[str, Unit], numbers: Mapping[str, int]) -> dict[str, Unit]:
        """The same subgraphs for measuring; those that the device cannot measure directly are imported again."""

        def again(unit: Unit, config: Mapping[str, Any]) -> Unit:
            return self.imported(self.rows[numbers[unit.name]], unit.device, unit.body, config, recompiled=unit.recompiled)

        return measured_units(units, again)

    def devices(self) -> list[Device | None]:
        """The device of each subgraph; None if this machine does not have it."""
        device_of: dict[str, Device | None] = {}
        for row in self.rows:
            label = row["device"]
            if label not in device_of:
                try:
                    device_of[label] = parse_devices([label])[0]
                except AcceleratorError as error:
                    device_of[label] = None
                    if self.others() is None:
                        remedy = f" ({error.remedy})" if error.remedy else ""
                        self.misfits.append(f"device {label!r} cannot be used here: {error.cause}{remedy}")
        return [device_of[row["device"]] for row in self.rows]

    def others(self) -> tuple[Device, ...] | None:
        """The devices to compile for again; None if the caller named none."""
        return None if isinstance(self.recompile, bool) else parse_devices(self.recompile)

    def configured(self, devices: Sequence[Device]) -> dict[str, dict[str, Any]]:
        """A value for each key of each device label: the caller's, or else the one that the model was compiled with."""
        every = {device.label: device for device in [*devices, *(self.others() or ())]}
        given = read_config(self.config, list(every.values()))
        config = {label: dict(values) for label, values in given.by_device.items()}
        for row in self.rows:
            if row["device"] in config:
                stated = self.stated(row, every[row["device"]])
                said = given.said[row["device"]] | ({TARGET} if self.recompile else set())
                config[row["device"]].update({name: value for name, value in stated.items() if name not in said})
        return config

    def stated(self, row: Row, device: Device) -> dict[str, Any]:
        """The checked configuration of a subgraph in the file. A file may not name files: see docs/deploy.md."""
        keys, where = device.accelerator.keys(), f"{self.package.where}, subgraph {row['name']!r}"
        for name in row["config"]:
            if name in keys and keys[name].names_files:
                why = "which may name files, folders or code, or start a process"
                cause = f"it gives device {device.label!r} a value for {name}, {why}"
                own = f"config={{{device.label!r}: {{{name!r}: ...}}}}"
                remedy = f"Do not trust the file. If you want it so, say it yourself: {own}"
                raise PackageError(cause, where=where, remedy=remedy)
        try:
            return {name: keys[name].read(name, value, where) for name, value in row["config"].items() if name in keys}
        except BadConfig as error:
            raise PackageError(error.cause, where=where, remedy="Export the model again") from error

    def unit(self, row: Row, device: Device | None, values: Mapping[str, Mapping[str, Any]]) -> Unit | None:
        """The unit of one subgraph; None, with a note, if its form does not fit here."""
        body = self.onnx(row["body"])
        has_code = row["code"] is not None or row.get("any_size") is not None
        if has_code and device is not None and device.accelerator.travels_as_body:
            cause = f"subgraph {row['name']!r} has code, and what {device.label!r} compiles travels without"
            raise PackageError(cause, where=self.package.where, remedy="Do not trust the file")
        body = body.evolve(name=row["name"]) if not body.name else body
        if device is None:
            others = self.others()
            return None if others is None else self.anew(row, body, others, values, f"there is no device {row['device']!r}")
        config = values[device.label]
        try:
            device.accelerator.check_device_id(config["DEVICE_ID"])
            # Without code of its own it is compiled here, size by size: for the machine that the file names.
            is_bound = has_code or bool(config.get(TARGET))
            differs = device.accelerator.misfit(row["identity"], config) if is_bound else None
            if differs is None:
                return self.imported(row, device, body, config)
        except PartitaError as error:
            if isinstance(error.__cause__, OSError):
                where = f"{self.package.where}, {error.where}"
                raise PackageError(f"it cannot be imported: {error.__cause__}", where=where) from error
            differs = f"{error.where}: {error.cause}" if error.where else error.cause
            if row["code"] is None and not device.accelerator.travels_as_body:
                differs = f"its sizes vary, so that it is prepared here, and {error.cause}"
                self.fixed = "Export it with fixed sizes, as by pt.load(path, shapes={...}). "
        if self.recompile is False:
            self.misfits.append(f"subgraph {row['name']!r} does not fit device {device.label!r} here: {differs}")
            return None
        return self.anew(row, body, self.others() or (device,), values, differs)

    def imported(self, row: Row, device: Device, body: Graph, config: Mapping[str, Any], recompiled: bool = False) -> Unit:
        """Imports the subgraph in its device's own form."""
        if row["code"] is None or recompiled:
            stand_ins = self.stand_ins(device, config)
            kept = nothing_kept if recompiled else partial(self.for_any_size, row, device, config=config)
            unit = compile_unit(row["name"], device, body, config, stand_ins, model=self.model, kept=kept)
            return attrs.evolve(unit, identity=row["identity"]) if row["name"] in self.taken else unit
        return Unit(row["name"], device, body, self.read(row, device, body, config), 0.0, config, identity=row["identity"])

    def read(self, stored: Row, device: Device, body: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Imports a compiled body from its code and weights."""
        weights = tuple([read_array(self.arrays, item, self.package.where) for item in stored["weights"]])
        member = self.package.member(stored["code"])
        code: Any = member if device.accelerator.reads_views else bytes(member)
        more = (weights,) if weights else ()
        compiled: CompiledSubgraph = in_its_place(device.accelerator, config).import_(code, body, config, *more)
        return compiled

    def for_any_size(self, row: Row, device: Device, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph | None:
        """The kernels for any size, for a prepared graph; None if the package has none."""
        stored = row.get("any_size")
        if stored is None:
            return None
        try:
            kernels = self.read(stored, device, graph, config)
        except AcceleratorError as error:
            self.notes.append(f"recompiled: {row['name']} on {device.label} for any size, since {error.cause}")
            return None
        self.taken.add(row["name"])
        return kernels

    def stand_ins(self, device: Device, config: Mapping[str, Any]) -> list[tuple[Device, Mapping[str, Any]]]:
        """The stand-ins for a device that compiles each size: the model's available devices that take any size."""
        others: list[tuple[Device, Mapping[str, Any]]] = []
        for label in () if device.accelerator.dynamic_shapes else self.report["placement"]["devices"]:
            with contextlib.suppress(AcceleratorError):
                other = parse_devices([label])[0]
                if other.accelerator.dynamic_shapes:
                    others.append((other, other.accelerator.full_config({"PERF_COUNT": config["PERF_COUNT"]})))
        return others

    def anew(
        self, row: Row, body: Graph, devices: Sequence[Device], values: Mapping[str, Mapping[str, Any]], why: str
    ) -> Unit | None:
        """Compiles the subgraph from its body, on the first of these devices that takes all of it."""
        if not row["whole"]:
            self.misfits.append(f"subgraph {row['name']!r} cannot be recompiled ({why}): it was exported without its body")
            return None
        refused = []
        for device in devices:
            config = values[device.label]
            try:
                device.accelerator.check_device_id(config["DEVICE_ID"])
            except BadConfig as error:
                refused.append(f"{device.label}: {error.cause}")
                continue
            absent = device.accelerator.why_not_here(config) if self.recompile is True or len(devices) > 1 else None
            if absent is not None:
                refused.append(f"{device.label}: {absent}")
                continue
            answers = in_its_place(device.accelerator, config).configured(config).query(body)
            reasons = [why_not for why_not in answers.values() if why_not is not True]
            if not reasons:
                self.notes.append(f"recompiled: {row['name']} on {device.label}, since {why}")
                unit = compile_unit(row["name"], device, body, config, self.stand_ins(device, config), model=self.model)
                return attrs.evolve(unit, recompiled=True)
            refused.append(f"{device.label}: {reasons[0]}")
        self.misfits.append(f"subgraph {row['name']!r} cannot be recompiled ({why}): {'; '.join(refused)}")
        return None

    def onnx(self, name: str) -> Graph:
        """A graph whose arrays are views of the file."""
        return load_onnx(bytes(self.package.member(name)), base_dir={WEIGHTS: self.arrays})
