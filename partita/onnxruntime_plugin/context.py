"""Compiled subgraphs in a model: EPContext nodes, whose bytes are what `CompiledModel.export` writes."""

from __future__ import annotations

import json
import tempfile
from ctypes import byref, c_char_p, c_int64, c_void_p
from pathlib import Path

from partita.accelerators.api import import_model
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.settings import read_config
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.runtime.package.container import FORMAT, PackageError
from partita.graph.errors import PartitaError
from partita.graph.types import ELEMENT_TYPES, TensorType
from partita.onnxruntime_plugin.api import (
    ATTRIBUTE_INT,
    ATTRIBUTE_STRING,
    NOT_APPLICABLE,
    OPTIMAL,
    PREFERS_RECOMPILATION,
    UNSUPPORTED,
    Api,
)
from partita.onnxruntime_plugin.options import ProviderOptions
from partita.onnxruntime_plugin.read_graph import CONTEXT, GraphReader

SOURCE = b"Partita"
"""The attribute `source` of Partita's EPContext nodes."""

_FILE = "subgraph.partita"


def node_of(api: Api, model: CompiledModel, reader: GraphReader, fused: int, key: bytes | None) -> int:
    """A new EPContext node that holds a compiled subgraph; onnxruntime releases it."""
    name = reader.name(fused).encode()
    inputs, outputs = (
        [name.encode() for name in reader.value_names(what, fused) if name] for what in ("Node_GetInputs", "Node_GetOutputs")
    )
    values: dict[bytes, bytes | int] = {
        b"ep_cache_context": _exported(model, key), b"source": SOURCE, b"partition_name": name, b"embed_mode": 1,
        b"main_context": 1,
    }
    attributes = (c_void_p * len(values))()
    created = c_void_p()
    try:
        for i, (title, value) in enumerate(values.items()):
            attribute = c_void_p()
            if isinstance(value, bytes):
                api.CreateOpAttr(title, value, len(value), ATTRIBUTE_STRING, byref(attribute))
            else:
                api.CreateOpAttr(title, byref(c_int64(value)), 1, ATTRIBUTE_INT, byref(attribute))
            attributes[i] = attribute.value
        domain, op = (text.encode() for text in CONTEXT)
        read, written = (c_char_p * len(inputs))(*inputs), (c_char_p * len(outputs))(*outputs)
        api.CreateNode(op, domain, name, read, len(read), written, len(written), attributes, len(values), byref(created))
    finally:
        for kept in attributes:
            if kept:
                api.ReleaseOpAttr(kept)
    return int(created.value or 0)


def _exported(model: CompiledModel, key: bytes | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder, _FILE)
        model.export(path, key=key)
        return path.read_bytes()


def model_in(reader: GraphReader, node: int, options: ProviderOptions) -> CompiledModel:
    """The compiled subgraph in an EPContext node. Its bytes are in the node: a node that names a file is an error."""
    where = f"EPContext node {reader.name(node)!r}"
    attributes = {attribute.name: attribute for attribute in reader.attributes(node)}
    embedded = attributes.get("embed_mode")
    if embedded is None or embedded.kind != "INT" or int.from_bytes(reader.raw(embedded), "little") != 1:
        remedy = "A model may name no file to be run: write it with ep.context_embed_mode=1"
        raise PackageError("it names a file instead of holding a compiled subgraph", where=where, remedy=remedy)
    held = attributes.get("ep_cache_context")
    if held is None or held.kind != "STRING":
        raise PackageError("it holds no compiled subgraph", where=where, remedy="Write the model again")
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder, _FILE)
        path.write_bytes(reader.raw(held))
        try:
            return import_model(path, key=options.key, config=options.config, recompile=options.recompile)
        except PartitaError as error:
            ours = "Write the model again here, or give the provider's option recompile=1"
            remedy = error.remedy if error.remedy and "recompile" not in error.remedy else ours
            raise PackageError(error.cause, where=where, remedy=remedy) from error


def check_types(reader: GraphReader, node: int, model: CompiledModel) -> None:
    """Raise an error unless the node's inputs and outputs have the element types that were compiled: a signature is of the
    compiled subgraph, not of the model around it."""
    for what, entries in (("Node_GetInputs", [one[0] for one in model.graph.inputs]), ("Node_GetOutputs", model.graph.outputs)):
        given = [reader.element_type(value) for value in reader.api.pointers(what, node) if value]
        wanted = [ELEMENT_TYPES[entry.type.dtype].number if isinstance(entry.type, TensorType) else 0 for entry in entries]
        if given != wanted:
            cause = f"its {what.removeprefix('Node_Get').lower()} have other types than those that were compiled"
            raise PackageError(cause, where=f"EPContext node {reader.name(node)!r}", remedy="Write the model again")


# -- does it fit here? -------------------------------------------------------------------------------------


def information(options: ProviderOptions) -> str:
    """The text that tells what a compiled model depends on: the format, and the identity of each device as it is configured."""
    devices = asked_devices(options.devices)
    values = read_config(options.config, devices).by_device
    identities = {device.label: dict(device.accelerator.identity(values[device.label])) for device in devices}
    return json.dumps({"format": FORMAT, "devices": identities}, sort_keys=True)


def compatibility(text: str, options: ProviderOptions) -> int:
    """onnxruntime's answer to whether models that were written with this information fit here, or are compiled again."""
    try:
        read = json.loads(text)
        known, identities = read["format"] == FORMAT, dict(read["devices"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return NOT_APPLICABLE
    if not known:
        return UNSUPPORTED
    fits, values = OPTIMAL, read_config(options.config, asked_devices(options.devices)).by_device
    for label, identity in identities.items():
        try:
            device, = asked_devices(label)
            accelerator = device.accelerator
            misfit = accelerator.misfit(identity, values.get(label) or accelerator.full_config({}))
        except (PartitaError, ValueError, KeyError, TypeError, AttributeError):  # a model may say anything
            return UNSUPPORTED
        if misfit is not None:
            fits = PREFERS_RECOMPILATION if options.recompile else UNSUPPORTED
    return fits
