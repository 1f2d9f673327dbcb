"""The model of a command line."""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import partita as pt
from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.interface.device_list import DEFAULT, asked_devices
from partita.accelerators.interface.inlining import unplaced
from partita.accelerators.interface.settings import read_config
from partita.accelerators.runtime.package.container import Package, checked_key
from partita.cli.arguments import Usage, placing_of
from partita.cli.inputs import read_inputs, shape_options
from partita.cli.screen import Screen
from partita.graph.errors import PartitaError, ReadError, WriteError
from partita.graph.graph import NOTES
from partita.graph.readers.foreign import holds_torch
from partita.graph.types import Dim
from partita.measuring.batched import batched

if TYPE_CHECKING:
    from partita.accelerators.runtime.package.container import Package

PACKAGE = ".partita"
"""File extension of `partita compile`."""

SYMBOL = "-symbol.json"
"""Suffix of an MXNet symbol; its parameters are in PREFIX-0000.params, where the number is the epoch."""

ZIP = b"PK\x03\x04"
"""First bytes of a compiled model."""


def is_package(model: str) -> bool:
    """True if the file is a compiled model.

    Under another extension it is recognized by its first bytes: no other model that is read here is a zip archive. (A torch file
    is one too, but is not read.)"""
    if model.endswith(PACKAGE):
        return True
    if holds_torch(model) or not os.path.isfile(model):  # A pipe cannot be read twice.
        return False
    try:
        with open(model, "rb") as file:
            return file.read(len(ZIP)) == ZIP
    except OSError:
        return False


def takes_package(arguments: argparse.Namespace) -> bool:
    """True if MODEL is a compiled model. With --key others are an error, because they have no signature."""
    if is_package(arguments.model):
        return True
    if arguments.key:
        raise Usage("--key goes with a compiled model, whose signature it verifies", where=arguments.model)
    return False


@contextmanager
def reading_package(arguments: argparse.Namespace) -> Iterator[Package]:
    """A compiled model for inspection, its checksum (and signature, with --key) verified and nothing loaded. Missing contents
    raise a ReadError."""
    path = arguments.model
    try:
        yield Package(path, checked_key(key_of(arguments), path))
    except PartitaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"it is not what this version of Partita writes ({type(error).__name__}: {error})"
        raise ReadError(cause, where=path, remedy="Compile the model again") from error


def key_of(arguments: argparse.Namespace) -> bytes | None:
    """Bytes of the file that --key names; None without the option."""
    return Path(arguments.key).read_bytes() if arguments.key else None


def load_graph(arguments: argparse.Namespace, screen: Screen) -> pt.Graph:
    """MODEL as a graph, with the sizes of --shape, optimised if requested."""
    if is_package(arguments.model):
        raise ReadError(
            "this is a compiled model, and the command needs the model itself",
            where=arguments.model,
            remedy="Give the ONNX file that it was compiled from; `run`, `bench`, `inspect` and `explain` take compiled ones",
        )
    if arguments.params and not arguments.model.endswith(".json"):
        raise Usage("--params goes with an MXNet symbol, a file PREFIX-symbol.json", where=arguments.model)
    graph = read_graph(arguments.model, screen, dict(arguments.shape), arguments.params, arguments.strict)
    if arguments.inline:
        graph = unplaced(graph)
    if getattr(arguments, "batch", None):
        graph = batched(graph, arguments.batch)
    return pt.optimize(graph) if arguments.optimize else graph


def read_graph(
    model: str, screen: Screen, shapes: Mapping[str, tuple[Dim, ...]], params: str | None = None, strict: bool = False
) -> pt.Graph:
    """The graph of the model with that name."""
    screen.say(f"reading {model}")
    if model.endswith(SYMBOL) and params is None:
        beside = sorted(glob.glob(f"{glob.escape(model.removesuffix(SYMBOL))}-????.params"))
        for path in beside[-1:]:
            screen.warn(f"without parameters the weights are inputs: --params {path}")
    graph = pt.load(model, shapes=shapes or None, params=params, strict=strict)
    for note in graph.attrs.get(NOTES, ()):
        screen.warn(note)
    return graph


def writable(path: str | None, model: str) -> Path | None:
    """The path, if a file can be written there; checked before the work begins."""
    if path is None:
        return None
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise WriteError("it is a directory", where=path, remedy="Name a file")
    if not folder.is_dir():
        raise WriteError(f"there is no folder {str(folder)!r}", where=path, remedy="Make it first")
    if not os.access(folder, os.W_OK):
        raise WriteError(f"the folder {str(folder)!r} cannot be written to", where=path)
    if os.path.exists(model) and target.exists() and target.samefile(model):
        raise WriteError("this would overwrite the model itself", where=path, remedy="Choose another name")
    return target


def load_model(
    arguments: argparse.Namespace, screen: Screen, config: Mapping[str, Any]
) -> tuple[pt.Graph | None, pt.CompiledModel]:
    """MODEL compiled, and its graph; None for the graph of an already compiled file."""
    if not takes_package(arguments):
        if getattr(arguments, "plan", None) is None:
            _require_here(arguments.devices, config)
        graph = load_graph(arguments, screen)
        specs = [(node.name, node[0].type) for node in graph.inputs]
        given = read_inputs(arguments.input, specs, arguments.normalize)  # fails early if the file cannot be read
        if len(given) == len(specs):
            InputChecker(graph).arrays((), given)
        return graph, compiled(graph, arguments, screen, config)
    late = ("shape", "params", "optimize", "inline", "strict", "pin", "forbid", "batch", "plan")
    for name in late:
        if getattr(arguments, name, None):
            remedy = "Give inputs of the sizes that you want: --input NAME=FILE.npy" if name in ("shape", "batch") else None
            raise Usage(f"the model is compiled: --{name} comes too late", remedy=remedy)
    screen.say(f"importing {arguments.model}")
    recompile = arguments.devices or False
    model = pt.import_model(arguments.model, key=key_of(arguments), config=config or None, recompile=recompile)
    if recompile and not any(unit.recompiled for unit in model.units):
        screen.warn(
            f"all of it fits here and stays on {', '.join(model.properties.devices)}: --devices is for what does not fit"
        )
    return None, model


def _require_here(wanted: str | None, config: Mapping[str, Any]) -> None:
    """AcceleratorUnavailable if the only requested device cannot run here; of several, the others take over."""
    devices = asked_devices(wanted or DEFAULT)
    if len(devices) != 1:
        return
    (device,) = devices
    reason = device.accelerator.why_not_here(read_config(config, devices).by_device[device.label])
    if reason is not None:
        raise pt.AcceleratorUnavailable(
            f"{device.label} cannot run here: {reason}",
            where=f"device {device.label!r}",
            remedy="`partita compile` compiles for a machine elsewhere; to run here, name a device that is here, as cpu",
        )


def compiled(
    graph: pt.Graph, arguments: argparse.Namespace, screen: Screen, config: Mapping[str, Any]
) -> pt.CompiledModel:
    """The model on the requested devices, though others may answer first (START); by a locked plan, if the verb takes one."""
    plan = getattr(arguments, "plan", None)
    screen.say(f"compiling for {arguments.devices or plan or DEFAULT}")
    return pt.compile(graph, arguments.devices, config, plan=plan, strict=arguments.strict, **placing_of(arguments)).wait()


def model_inputs(model: pt.CompiledModel, arguments: argparse.Namespace, screen: Screen) -> dict[str, Any]:
    """The given inputs, or random ones if there are none."""
    specs = model.properties.inputs
    given = read_inputs(arguments.input, specs, arguments.normalize)
    if len(given) == len(specs):
        return given
    if given:
        missing = ", ".join(name for name, _ in specs if name not in given)
        raise pt.InputError(
            f"there is no --input for {missing}",
            where=f"model {model.graph.name!r}",
            remedy="Give all inputs or none",
        )
    arrays = model.example_inputs(arguments.seed)
    options = shape_options(specs)
    if options:
        remedy = "--input gives others" if is_package(arguments.model) else f"fix them, like {' '.join(options)}"
        screen.warn(f"sizes that are not fixed are taken for 1: {remedy}")
    return dict(zip((name for name, _ in specs), arrays))
