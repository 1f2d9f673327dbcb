"""Reads a graph of onnxruntime's through its C API into a graph of Partita's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_bool, c_char_p, c_int, c_int64, c_size_t
from typing import Any

import attrs
import numpy as np
import onnx

from partita.graph.errors import PartitaError, ReadError
from partita.graph.graph import Graph
from partita.graph.ops.schemas import newest_versions
from partita.graph.readers.onnx.load import load_onnx
from partita.graph.readers.onnx.older_ops import is_older
from partita.graph.readers.onnx.source import plain_domain
from partita.graph.types import ELEMENT_TYPES, Array
from partita.onnxruntime_plugin.api import ATTRIBUTE_KINDS, TENSOR, Api, OrtError

OPAQUE = "partita.opaque"
"""The domain of ops that Partita does not run, in the graphs that are read."""

CONTEXT = ("com.microsoft", "EPContext")
"""Domain and name of the op that holds a compiled subgraph."""

_SAME = 23
"""The element types up to this number have the same one in onnxruntime and in ONNX."""

_LATER = {24: ELEMENT_TYPES["uint2"].number, 25: ELEMENT_TYPES["int2"].number}
"""ONNX's numbers of the element types after those."""

_SMALL = 1024
"""Bytes up to which a constant is copied while its graph is only looked at."""


@attrs.frozen
class ReadGraph:
    """A graph of onnxruntime's that was read."""

    graph: Graph
    """The graph; constants may be views of onnxruntime's memory."""
    nodes: Mapping[str, int]
    """onnxruntime's node for each op by name."""
    refused: Mapping[str, str]
    """Why no device is asked about an op, by its name."""


@attrs.frozen
class Attribute:
    """An attribute of a node."""

    name: str
    """Its name."""
    kind: str
    """Its kind, in capitals as in ONNX; empty for one that the C API does not read."""
    handle: int
    """onnxruntime's object."""


class GraphReader:
    """Reads graphs. With `keeps` the constants are copied, each once; without, large ones are views, which are valid until
    onnxruntime's call returns."""

    def __init__(self, api: Api, keeps: bool) -> None:
        self.api = api
        self._keeps = keeps
        self._data: dict[str, Array] = {}
        self._copied: dict[tuple[int, int], str] = {}
        """The copies by address and size."""

    def read(
        self, graph: int, title: str = "", inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None
    ) -> ReadGraph:
        """The graph; with inputs and outputs, which are onnxruntime's values, in that order."""
        api = self.api
        if inputs is None or outputs is None:
            inputs, outputs = _present(api.pointers("Graph_GetInputs", graph)), _present(api.pointers("Graph_GetOutputs", graph))
        nodes = _present(api.pointers("Graph_GetNodes", graph))
        return self._model(title or api.text("Graph_GetName", graph) or "graph", nodes, inputs, outputs, self.opsets(graph))

    def read_node(self, node: int, opsets: Mapping[str, int]) -> ReadGraph:
        """A graph of this node alone."""
        outputs = _present(self.api.pointers("Node_GetOutputs", node))
        return self._model(self.name(node) or "node", [node], [], outputs, opsets)

    def opsets(self, graph: int) -> dict[str, int]:
        """The version of each domain that the model imports, at most the newest that Partita reads."""
        count = self.api.number("Graph_GetNumOperatorSets", graph)
        domains, versions = (c_char_p * count)(), (c_int64 * count)()
        self.api.Graph_GetOperatorSets(graph, domains, versions, count)
        return {plain_domain((domain or b"").decode()): version for domain, version in zip(domains, versions, strict=True)}

    def name(self, node: int) -> str:
        """The name of onnxruntime's node."""
        return self.api.text("Node_GetName", node)

    def op(self, node: int) -> tuple[str, str]:
        """Domain and type of onnxruntime's node."""
        return plain_domain(self.api.text("Node_GetDomain", node)), self.api.text("Node_GetOperatorType", node)

    def value_names(self, what: str, subject: int) -> list[str]:
        """Names of a node's or a graph's values, such as "Node_GetInputs"; empty where one is left out."""
        return [self.api.text("GetValueInfoName", value) if value else "" for value in self.api.pointers(what, subject)]

    # -- models --------------------------------------------------------------------------------------------

    def _model(
        self, title: str, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], opsets: Mapping[str, int]
    ) -> ReadGraph:
        """The graph of these nodes. A node that cannot be read becomes opaque."""
        newest = newest_versions()
        used = {domain: version for domain, version in opsets.items() if version <= newest.get(domain, version)}
        reasons = {node: reason for node in nodes if (reason := self._why_not(node, opsets, used)) is not None}
        try:
            return self._loaded(title, nodes, inputs, outputs, used, reasons)
        except ReadError:
            for node in nodes:
                if node not in reasons:
                    try:
                        self._loaded(title, [node], [], _present(self.api.pointers("Node_GetOutputs", node)), used, {})
                    except ReadError as error:
                        reasons[node] = error.cause
            return self._loaded(title, nodes, inputs, outputs, used, reasons)

    def _loaded(
        self, title: str, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], opsets: Mapping[str, int],
        reasons: Mapping[int, str],
    ) -> ReadGraph:
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        domains: set[str] = {""}
        level = _Level(self, model.graph, domains)
        model.graph.name = title
        for value in inputs:
            level.define(value)
        by_output: dict[str, int] = {}
        for node in nodes:
            proto = level.add_node(node, node in reasons)
            by_output.update((name, node) for name in proto.output if name)
        level.add_outputs(outputs)
        versions = {OPAQUE: 1, **opsets}
        model.opset_import.extend(onnx.helper.make_opsetid(domain, versions.get(domain, 1)) for domain in sorted(domains))
        graph = load_onnx(model, base_dir=self._data)
        handles = {}
        for op in graph.nodes:
            if op.is_op:
                handle = next((by_output[name] for name in op.output_names if name in by_output), None)
                if handle is not None:
                    handles[op.name] = handle
        refused = {name: reasons[handle] for name, handle in handles.items() if handle in reasons}
        return ReadGraph(graph, handles, refused)

    def _why_not(self, node: int, opsets: Mapping[str, int], used: Mapping[str, int]) -> str | None:
        """Why Partita cannot take this node, whatever its devices run; None if it may."""
        api = self.api
        provider = api.text("Node_GetEpName", node)
        if provider:
            return f"it is assigned to {provider}"
        domain, op = self.op(node)
        if (domain, op) == CONTEXT:
            return "it holds what a provider compiled"
        if domain in opsets and domain not in used:
            return f"it is of version {opsets[domain]} of {domain or 'ai.onnx'!r}, which Partita does not know"
        if not domain and "" in used and is_older(op, used[""]):
            return f"ai.onnx version {used['']} has no such op"
        for attribute in self.attributes(node):
            if not attribute.kind:
                return f"the C API does not read its attribute {attribute.name!r}"
        captured = _present(api.pointers("Node_GetImplicitInputs", node))
        explicit = _present(api.pointers("Node_GetInputs", node))
        for value in (*explicit, *captured, *_present(api.pointers("Node_GetOutputs", node))):
            reason = self._why_no_tensor(value)
            if reason is not None:
                return reason
        handed = {api.text("GetValueInfoName", value) for value in explicit} | self._constants_of_bodies(node)
        for value in captured:
            name = api.text("GetValueInfoName", value)
            if name not in handed and not self.is_constant(value):
                return f"its bodies read {name!r}, and onnxruntime hands no such value to a provider"
        return None

    def _constants_of_bodies(self, node: int) -> set[str]:
        """The names of constants that the node's bodies read; the outer graph does not tell while a body is looked at."""
        return {
            self.api.text("GetValueInfoName", value)
            for body in self.bodies(node).values()
            for inner in _present(self.api.pointers("Graph_GetNodes", body))
            for what in ("Node_GetInputs", "Node_GetImplicitInputs")
            for value in _present(self.api.pointers(what, inner))
            if self.is_constant(value)
        }

    def _why_no_tensor(self, value: int) -> str | None:
        """Why a value is none that a provider can take or give; None if it is."""
        kind, dtype = self._kind(value)
        name = self.api.text("GetValueInfoName", value)
        if kind != TENSOR:
            return f"{name!r} is not a tensor" if kind else f"the type of {name!r} is not known"
        if dtype == ELEMENT_TYPES["string"].number:
            return f"{name!r} holds strings, which providers in Python cannot read"
        return None if dtype else f"the element type of {name!r} is not known to Partita"

    # -- values --------------------------------------------------------------------------------------------

    def is_constant(self, value: int) -> bool:
        """True for a constant, of this graph or of one around it."""
        return bool(self.api.number("ValueInfo_IsConstantInitializer", value, c_bool))

    def element_type(self, value: int) -> int:
        """ONNX's number of a tensor's element type; 0 for what is none, or unknown."""
        kind, dtype = self._kind(value)
        return dtype if kind == TENSOR else 0

    def _kind(self, value: int) -> tuple[int, int]:
        """The kind of a value's type, and ONNX's number of a tensor's element type; 0 for what is unknown."""
        try:
            of_type = self.api.pointer("GetValueInfoTypeInfo", value)
        except OrtError:
            return 0, 0
        if not of_type:
            return 0, 0
        kind = self.api.number("GetOnnxTypeFromTypeInfo", of_type, c_int)
        if kind != TENSOR:
            return kind, 0
        tensor = self.api.pointer("CastTypeInfoToTensorInfo", of_type)
        return kind, element_type(self.api.number("GetTensorElementType", tensor, c_int)) if tensor else 0

    def write_type(self, proto: Any, value: int) -> None:
        """Fills the TypeProto of a value that is a tensor; others stay without a type."""
        kind, dtype = self._kind(value)
        if kind != TENSOR or not dtype:
            return
        api = self.api
        tensor = api.pointer("CastTypeInfoToTensorInfo", api.pointer("GetValueInfoTypeInfo", value))  # type: ignore[arg-type]
        proto.tensor_type.elem_type = dtype
        if not api.TensorTypeAndShape_HasShape(tensor):
            return
        rank = api.number("GetDimensionsCount", tensor)  # type: ignore[arg-type]
        sizes, symbols = (c_int64 * rank)(), (c_char_p * rank)()
        api.GetDimensions(tensor, sizes, rank)
        api.GetSymbolicDimensions(tensor, symbols, rank)
        proto.tensor_type.shape.SetInParent()
        for size, symbol in zip(sizes, symbols, strict=True):
            dim = proto.tensor_type.shape.dim.add()
            if size >= 0:
                dim.dim_value = size
            elif symbol:
                dim.dim_param = symbol.decode(errors="replace")

    def write_tensor(self, proto: Any, value: int, stays: bool = True) -> None:
        """Fills a TensorProto; its data are at hand, and no part of it. A value that does not stay is copied."""
        api = self.api
        tensor = api.pointer("GetTensorTypeAndShape", value)
        assert tensor
        try:
            rank = api.number("GetDimensionsCount", tensor)
            sizes = (c_int64 * rank)()
            api.GetDimensions(tensor, sizes, rank)
            proto.dims.extend(sizes)
            proto.data_type = element_type(api.number("GetTensorElementType", tensor, c_int))
        finally:
            api.ReleaseTensorTypeAndShapeInfo(tensor)
        proto.data_location = onnx.TensorProto.EXTERNAL
        proto.external_data.add(key="location", value=self._at_hand(value, stays))

    def _at_hand(self, value: int, stays: bool) -> str:
        """The key of a tensor's bytes among those at hand."""
        size = self.api.number("GetTensorSizeInBytes", value)
        address = self.api.pointer("GetTensorData", value) or 0
        if stays and (address, size) in self._copied:
            return self._copied[address, size]
        key = str(len(self._data))
        memory: Any = (ctypes.c_uint8 * size).from_address(address) if size else b""
        seen = np.frombuffer(memory, np.uint8)
        seen.flags.writeable = False
        self._data[key] = seen.copy() if self._keeps or not stays or size <= _SMALL else seen
        if self._keeps and stays and size:
            self._copied[address, size] = key
        return key

    # -- attributes ----------------------------------------------------------------------------------------

    def attributes(self, node: int) -> list[Attribute]:
        """The attributes of a node."""
        found = []
        for handle in _present(self.api.pointers("Node_GetAttributes", node)):
            number = self.api.number("OpAttr_GetType", handle, c_int)
            kind = ATTRIBUTE_KINDS[number] if 0 <= number < len(ATTRIBUTE_KINDS) else ""
            found.append(Attribute(self.api.text("OpAttr_GetName", handle), kind, handle))
        return found

    def raw(self, attribute: Attribute) -> bytes:
        """The bytes of an attribute's value: numbers one after the other, strings each with a zero behind it."""
        kind, size = ATTRIBUTE_KINDS.index(attribute.kind), c_size_t(8)
        if attribute.kind not in ("INT", "FLOAT"):
            try:
                self.api.ReadOpAttr(attribute.handle, kind, None, 0, byref(size))
            except OrtError:
                pass  # it tells the size
        if not size.value:
            return b""
        data = ctypes.create_string_buffer(size.value)
        self.api.ReadOpAttr(attribute.handle, kind, data, size.value, byref(size))
        return data.raw[: size.value]

    def write_attribute(self, proto: Any, attribute: Attribute, bodies: Mapping[str, int], domains: set[str]) -> None:
        """Fills an AttributeProto; the domains of the ops in a body are added."""
        proto.name = attribute.name
        proto.type = onnx.AttributeProto.AttributeType.Value(attribute.kind)
        if attribute.kind == "GRAPH":
            _Level(self, proto.g, domains, is_body=True).fill(bodies[attribute.name])
        elif attribute.kind == "TENSOR":
            value = self.api.pointer("OpAttr_GetTensorAttributeAsOrtValue", attribute.handle)
            assert value
            try:
                self.write_tensor(proto.t, value, stays=False)
            finally:
                self.api.ReleaseValue(value)
        else:
            _write_plain(proto, attribute.kind, self.raw(attribute))

    def bodies(self, node: int) -> dict[str, int]:
        """The graphs of an If, a Loop or a Scan, by the names of the attributes."""
        count = self.api.number("Node_GetNumSubgraphs", node)
        graphs, names = (ctypes.c_void_p * count)(), (c_char_p * count)()
        self.api.Node_GetSubgraphs(node, graphs, count, names)
        return {(name or b"").decode(): graph for name, graph in zip(names, graphs, strict=True) if graph}


class _Level:
    """A GraphProto while it is filled: the main graph, or a body, whose outer values stay undefined."""

    def __init__(self, reader: GraphReader, proto: Any, domains: set[str], is_body: bool = False) -> None:
        self.reader = reader
        self.proto = proto
        self.domains = domains
        """The domains of the ops so far, in the whole model."""
        self.is_body = is_body
        self.defined: set[str] = set()

    def fill(self, graph: int) -> None:
        """Fills it with all of a body."""
        api = self.reader.api
        self.proto.name = api.text("Graph_GetName", graph) or "body"
        for value in _present(api.pointers("Graph_GetInputs", graph)):
            self.define(value)
        for node in _present(api.pointers("Graph_GetNodes", graph)):
            self.add_node(node, opaque=False)
        self.add_outputs(_present(api.pointers("Graph_GetOutputs", graph)))

    def define(self, value: int) -> None:
        """Adds a constant or an input, unless it is there."""
        reader = self.reader
        name = reader.api.text("GetValueInfoName", value)
        if name in self.defined:
            return
        held = reader.api.pointer("ValueInfo_GetInitializerValue", value) if reader.is_constant(value) else None
        if held and reader._why_no_tensor(value) is None:
            tensor = self.proto.initializer.add(name=name)
            reader.write_tensor(tensor, held)
        else:
            reader.write_type(self.proto.input.add(name=name).type, value)
        self.defined.add(name)

    def add_node(self, node: int, opaque: bool) -> Any:
        """Adds the NodeProto of a node, with its constants, and with its outer values unless this is a body."""
        reader, api = self.reader, self.reader.api
        inputs: Sequence[int | None] = api.pointers("Node_GetInputs", node)
        read = [*inputs, *api.pointers("Node_GetImplicitInputs", node)]
        for value in _present(read):
            name = api.text("GetValueInfoName", value)
            if name not in self.defined and (not self.is_body or reader.is_constant(value)):
                self.define(value)
        proto = self.proto.node.add(name=reader.name(node))
        domain, proto.op_type = reader.op(node)
        proto.domain = OPAQUE if opaque else domain
        self.domains.add(proto.domain)
        for handed in read if opaque else inputs:
            proto.input.append(api.text("GetValueInfoName", handed) if handed else "")
        if not opaque:
            bodies = reader.bodies(node)
            for attribute in reader.attributes(node):
                reader.write_attribute(proto.attribute.add(), attribute, bodies, self.domains)
        for made in api.pointers("Node_GetOutputs", node):
            name = api.text("GetValueInfoName", made) if made else ""
            proto.output.append(name)
            if made:
                self.defined.add(name)
                reader.write_type(self.proto.value_info.add(name=name).type, made)
        return proto

    def add_outputs(self, values: Iterable[int]) -> None:
        """Adds the outputs."""
        for value in values:
            if self.reader.is_constant(value):
                self.define(value)
            item = self.proto.output.add(name=self.reader.api.text("GetValueInfoName", value))
            self.reader.write_type(item.type, value)


def element_type(number: int) -> int:
    """ONNX's number of onnxruntime's element type; 0 if Partita does not know it."""
    return number if number <= _SAME else _LATER.get(number, 0)


def _present(handles: Sequence[int | None]) -> list[int]:
    return [handle for handle in handles if handle]


def _write_plain(proto: Any, kind: str, data: bytes) -> None:
    """Fills an AttributeProto with numbers or strings."""
    if kind == "INT":
        proto.i = int(np.frombuffer(data, np.int64)[0])
    elif kind == "FLOAT":
        proto.f = float(np.frombuffer(data[:4], np.float32)[0])
    elif kind == "INTS":
        proto.ints.extend(np.frombuffer(data, np.int64).tolist())
    elif kind == "FLOATS":
        proto.floats.extend(np.frombuffer(data, np.float32).tolist())
    elif kind == "STRING":
        proto.s = data
    elif kind == "STRINGS":
        proto.strings.extend(data.split(b"\0")[:-1])
    else:
        raise PartitaError(f"no attribute of kind {kind} is read")
