"""Reading a whole ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from partita.graph.build import CALL_DOMAIN
from partita.graph.errors import ReadError, did_you_mean
from partita.graph.file_state import file_state
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import NOTES, Graph
from partita.graph.inline import inline_calls
from partita.graph.logs import logger
from partita.graph.protos import TypeReader, roundtrip
from partita.graph.readers.onnx.functions import read_functions
from partita.graph.readers.onnx.level import Level
from partita.graph.readers.onnx.node_order import REMEDY, Unsorted
from partita.graph.readers.onnx.reading import OpNames, Reading
from partita.graph.readers.onnx.source import ModelSource, open_source, read_opsets, utf8
from partita.graph.types import Dim, TensorType, Type


def load_onnx(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    inline: bool = False,
    base_dir: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Graph:
    """The graph of an ONNX model: a path, an open file, its bytes, or a ModelProto.

    `shapes` overrides shapes of inputs; static sizes in the file cannot be changed. Model-local functions
    remain calls unless `inline`. `base_dir` is the folder of external data (by default
    the folder of the path), or a dictionary of its files' bytes. Recoverable deviations from ONNX (nodes out
    of order, ...) are listed in the graph's attribute "notes"; with `strict` they are errors.
    Functions that nothing calls, training information, quantization annotations and device configurations are not read."""
    path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    before = None if path is None or shapes or inline or base_dir is not None else file_state(path)
    source = open_source(model, base_dir)
    try:
        with collector_paused():
            graph = _read_in_order(source, shapes or {}, strict)
    except UnicodeDecodeError:
        raise ReadError("the model is damaged: a name is not UTF-8", where=source.title) from None
    if before is not None and before == file_state(before.path):
        graph.keep_file(before)
    if inline:
        return inline_calls(graph)
    return graph


def _read_in_order(source: ModelSource, shapes: Mapping[str, Sequence[Dim]], strict: bool) -> Graph:
    """The graph; a file with unsorted nodes is read again, sorted."""
    reading = _reading(source, strict)
    try:
        graph = _read(source, reading, shapes)
    except Unsorted as error:
        if strict:
            raise
        reading = _reading(source, strict)
        reading.sorts = True
        reading.note(f"{error.cause}; they are sorted", error.where or source.title, REMEDY)
        graph = _read(source, reading, shapes)
    if reading.notes:
        for note in reading.notes:
            logger("load").warning("%s", note)
        graph.attrs[NOTES] = tuple(reading.notes)
    return graph


def _reading(source: ModelSource, strict: bool) -> Reading:
    model = source.model
    names = OpNames([model.graph.node, *(function.node for function in model.functions)])
    reading = Reading(source.title, source.folder, {"": 1}, names, TypeReader(), strict)
    if model.ir_version >= 3:
        reading.opsets = read_opsets(model.opset_import, source.title, reading.note)
    return reading


def _read(source: ModelSource, reading: Reading, shapes: Mapping[str, Sequence[Dim]]) -> Graph:
    model, proto = source.model, source.model.graph
    read_functions(reading, model.functions)
    reading.opsets.pop(CALL_DOMAIN, None)
    level = Level(reading)
    constants = {item.name for item in proto.initializer} | {item.values.name for item in proto.sparse_initializer}
    overrides = _given_types(reading, proto, constants, shapes)
    level.read_types(proto)
    inputs = _read_inputs(level, proto, constants, overrides, source.title)
    level.read_initializers(proto, set(), source.title, source.large)
    level.read_nodes(proto.node)
    output_names = [item.name for item in proto.output]
    outputs = level.outputs(output_names, source.title)
    metadata = _metadata(model)
    order = roundtrip.order({roundtrip.ORDER: metadata.pop(roundtrip.ORDER, "null")})
    return level.finish(outputs, inputs, proto.name or "net", output_names, metadata, order)


def _read_inputs(level: Level, proto: Any, constants: set[str], overrides: Mapping[str, Type], where: str) -> list[Any]:
    """The variables. An input that is also an initializer becomes a constant, and its metadata keep its position."""
    inputs = []
    for position, item in enumerate(proto.input):
        if item.name in constants:
            if level.input_positions.setdefault(item.name, position) != position:
                raise ReadError(f"the value {item.name!r} is defined twice", where=where)
            continue
        inputs.append(level.add_variable(item.name, item, where, overrides.get(item.name)))
    return inputs


def _metadata(model: Any) -> dict[str, str]:
    """The metadata of the model and of its graph."""
    noted = {item.key: item.value for item in model.graph.metadata_props}
    noted.update((item.key, item.value) for item in model.metadata_props)
    for key, field in roundtrip.MODEL_FIELDS.items():
        value = getattr(model, field)
        if value and not (field == "producer_name" and value == roundtrip.PRODUCER):
            noted[key] = value
    if model.model_version:
        noted["onnx.model_version"] = str(model.model_version)
    if model.graph.doc_string:
        noted[roundtrip.DOC] = model.graph.doc_string
    return {utf8(key, "metadata"): utf8(value, f"metadata {key!r}") for key, value in noted.items()}


def _given_types(
    reading: Reading, proto: Any, constants: set[str], shapes: Mapping[str, Sequence[Dim]]
) -> dict[str, Type]:
    """The types of inputs with given shapes, checked against the file's; symbols that get a size are replaced everywhere."""
    if not shapes:
        return {}
    declared = {item.name: reading.types.read(item.type, f"{reading.title}, input {item.name!r}") for item in proto.input}
    types: dict[str, Type] = {}
    for name, shape in shapes.items():
        where = f"{reading.title}, input {name!r}"
        if name in constants or name not in declared:
            cause = "it is a constant, not an input" if name in constants else "the model has no such input"
            inputs = [known for known in declared if known not in constants]
            raise ReadError(cause, where=where, remedy=did_you_mean(name, inputs) or f"It has {', '.join(inputs) or 'none'}")
        types[name] = _given(declared[name], shape, where, reading.types.symbols)
    reading.types.forget()
    return types


def _given(declared: Type | None, shape: Sequence[Dim], where: str, symbols: dict[str, int]) -> TensorType:
    if declared is not None and not isinstance(declared, TensorType):
        raise ReadError(f"a value of type {declared} has no shape to give", where=where)
    wanted = TensorType(declared.dtype if declared is not None else "float32", shape)
    if declared is None or declared.shape is None or wanted.shape is None:
        return wanted
    if len(wanted.shape) != len(declared.shape):
        raise ReadError(
            f"the shape given has {len(wanted.shape)} dimensions, and the model says {declared}",
            where=where,
            remedy="Give one size for each dimension",
        )
    for axis, (new, old) in enumerate(zip(wanted.shape, declared.shape, strict=True)):
        if isinstance(old, int) and new != old:
            raise ReadError(f"dimension {axis} is {old} in the model and cannot become {new}", where=where)
        if isinstance(old, str) and isinstance(new, int) and symbols.setdefault(old, new) != new:
            raise ReadError(
                f"dimension {axis} is {old!r} in the model, which is given as {symbols[old]} and as {new}", where=where
            )
    return wanted
