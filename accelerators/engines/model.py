"""The ONNX model of a subgraph for an engine. An op that has only gained element types is passed on under an older opset."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.engines.probing import add_probes, probes_in
from partita.graph.cached_property import lazy
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.ops.schemas import OpSpec, ParamSpec, spec_of
from partita.graph.rewrite import Rewriter
from partita.graph.types import BY_NUMBER, PACKED, Array
from partita.graph.writers.onnx.model import ModelWriter, complete_outputs
from partita.passes.bodies import everywhere

LOCATION = "weights"
"""The location of a model's large constants."""

_EXTERNAL = 1


class Aside:
    """Collects the large constants of a model without copying them."""

    def __init__(self) -> None:
        self.location = LOCATION
        """The location by which the model refers to these constants."""
        self.arrays: dict[int, Array] = {}
        """The arrays by their offset in the model."""
        self._offsets: dict[int, int] = {}
        self._end = 0

    def add(self, array: Array) -> tuple[int, int]:
        """Adds an array and returns its offset and length."""
        if id(array) not in self._offsets:
            self._offsets[id(array)] = self._end
            self.arrays[self._end] = array
            self._end += -(-array.nbytes // 64) * 64
        return self._offsets[id(array)], array.nbytes


@attrs.frozen(slots=False)
class EngineModel:
    """A model without functions. Inputs are named x0, x1, …, outputs y0, y1, …, nodes n0, n1, …: safe names for any engine."""

    proto: Any
    """The ModelProto; its large initializers are external. None if only an engine's compiled form is available."""
    weights: dict[str, Array]
    """The arrays of external initializers by name, in the file format's layout."""
    inputs: tuple[str, ...]
    """The input names in order."""
    outputs: tuple[str, ...]
    """The output names in order."""
    nodes: tuple[Node, ...]
    """The op nodes; number i is named n<i> in the model."""
    probes: tuple[str, ...] = ()
    """The names of extra outputs, which return the sizes of values that may be empty."""

    def node_of(self, name: str) -> Node | None:
        """The node that an engine means by a name: that of the node or of its output, possibly with a suffix."""
        match = re.match(r"[nvy]\d+(?![^\W_])", name)
        return None if match is None else self._by_name.get(match[0])

    @lazy
    def _by_name(self) -> dict[str, Node]:
        every = self.proto.graph.node if self.proto is not None else ()
        protos = [proto for proto in every if proto.name[:1] == "n"]
        pairs = [(proto, self.nodes[int(proto.name[1:])]) for proto in protos]
        return {name: node for proto, node in pairs for name in (proto.name, *proto.output)}

    def in_own_words(self, text: str) -> str:
        """An engine's message, with the graph's node names in place of the model's."""

        def own(match: re.Match[str]) -> str:
            number = int(match[1])
            return repr(self.nodes[number].name) if number < len(self.nodes) else match[0]

        return re.sub(r"\bn(\d+)\b", own, text)

    def complete(self) -> bytes:
        """The model as the bytes of one file, including its weights; ValueError if they exceed 2 GiB."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        for tensor in model.graph.initializer:
            if tensor.data_location == _EXTERNAL:
                _embed(tensor, self.weights[tensor.name])
        return model.SerializeToString()

    def write(self, folder: Path) -> Path:
        """Writes the model to a file in the folder, and its weights to another beside it."""
        tensors = [tensor for tensor in self.proto.graph.initializer if tensor.name in self.weights]
        with open(folder / LOCATION, "wb") as file:
            for start, tensor in {_offset(tensor): tensor for tensor in tensors}.items():
                file.seek(start)
                np.ascontiguousarray(self.weights[tensor.name]).tofile(file)
        path = folder / "model.onnx"
        path.write_bytes(self.proto.SerializeToString())
        return path


def engine_model(graph: Graph, newest: Mapping[str, int], probed: Collection[str] = ()) -> EngineModel:
    """The subgraph as a model: calls inlined, opsets lowered to those that the engine supports, constants not copied. Extra
    outputs return the sizes of those inputs of `probed` ops that may be empty."""
    inlined = lowered(inline_calls(graph), newest)
    plain = _plainly_named(inlined)
    aside = Aside()
    model = ModelWriter(plain, drop_control=True, aside=aside).model
    complete_outputs(plain, model)
    _forget_symbols(model.graph)
    probes = add_probes(model, probes_in(inlined, probed))
    _embed_elsewhere(model, aside)
    weights = {t.name: aside.arrays[_offset(t)] for t in model.graph.initializer if t.data_location == _EXTERNAL}
    ops = tuple(node for node in inlined.nodes if node.is_op)
    return EngineModel(model, weights, tuple(n.output_names[0] for n in plain.inputs), plain.output_names, ops, probes)


def model_from_bytes(data: bytes, graph: Graph) -> EngineModel:
    """Reads the bytes that `EngineModel.complete` returned for this subgraph; ValueError if they are something else.

    External tensors are refused: reading a model opens no other file."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
    from onnx.external_data_helper import _get_all_tensors

    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ValueError("it is not an ONNX model") from None
    inputs = tuple(f"x{i}" for i in range(len(graph.inputs)))
    outputs = tuple(f"y{i}" for i in range(len(graph.outputs)))
    stated = tuple(item.name for item in proto.graph.input), tuple(item.name for item in proto.graph.output)
    probes = stated[1][len(outputs) :]
    if stated != (inputs, outputs + probes) or probes != tuple(f"z{i}" for i in range(len(probes))):
        raise ValueError("its inputs and outputs are not those of the subgraph")
    if any(item.type.tensor_type.elem_type != onnx.TensorProto.INT64 for item in proto.graph.output[len(outputs) :]):
        raise ValueError("its extra outputs are not sizes")
    if any(tensor.data_location == _EXTERNAL or tensor.external_data for tensor in _get_all_tensors(proto)):
        raise ValueError("it refers to data in other files")
    ops = tuple(node for node in inline_calls(graph).nodes if node.is_op)
    return EngineModel(proto, {}, inputs, outputs, ops, probes)


def _plainly_named(graph: Graph) -> Graph:
    """The graph with safe names. Names inside bodies are kept."""
    number = {node: i for i, node in enumerate(graph.inputs)}
    counts = {"c": 0, "n": 0, "v": 0}
    rewriter = Rewriter(graph)

    def fresh(letter: str) -> str:
        counts[letter] += 1
        return f"{letter}{counts[letter] - 1}"

    for node in graph.nodes:
        if node.is_op:
            values = tuple(name and fresh("v") for name in node.output_names)
            renamed = rewriter.rebuilt(node, name=fresh("n"), output_names=values, metadata={}, affinity=None)
        else:
            name = f"x{number[node]}" if node.is_variable else fresh("c")
            renamed = node.evolve(name=name, output_names=(name,), metadata={}, affinity=None)
        rewriter.keep(node, renamed)
    return rewriter.finish(output_names=[f"y{i}" for i in range(len(graph.outputs))], metadata={}, name="body")


def _forget_symbols(graph: Any) -> None:
    """Removes the symbols of intermediate values, which a file may have declared: onnxruntime lets values of one symbol share
    memory, and fails if their sizes differ. The engine infers the sizes itself."""
    for item in graph.value_info:
        for dim in item.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_symbols(attribute.g)


def _embed_elsewhere(model: Any, aside: Aside) -> None:
    """Embeds large tensors of attributes and bodies in the model: engines look for external ones among the initializers only.
    Embeds those of sub-byte types too, because their byte array has another shape than the tensor."""
    from onnx.external_data_helper import _get_all_tensors

    wide = [tensor for tensor in model.graph.initializer if BY_NUMBER.get(tensor.data_type) not in PACKED]
    outside = [tensor for tensor in wide if tensor.data_location == _EXTERNAL]
    for tensor in outside:
        tensor.data_location = 0
    for tensor in _get_all_tensors(model):
        if tensor.data_location == _EXTERNAL:
            _embed(tensor, aside.arrays[_offset(tensor)])
    for tensor in outside:
        tensor.data_location = _EXTERNAL


def _embed(tensor: Any, array: Array) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = array.tobytes()


def _offset(tensor: Any) -> int:
    return next(int(item.value) for item in tensor.external_data if item.key == "offset")


def too_new(node: Node, opsets: Mapping[str, int], newest: Mapping[str, int], engine: str) -> str | None:
    """The reason why the engine, which supports each domain up to `newest`, does not support this op; None if it does.

    Does not look into bodies."""
    limit = newest.get(node.domain)
    version = opsets.get(node.domain, 1)
    if limit is None or version <= limit or node.op is None:
        return None
    spec = spec_of(node.op, node.domain, version)
    if spec is not None and (spec.since <= limit or _only_more_types(spec, spec_of(node.op, node.domain, limit))):
        return None
    return f"{engine} knows {node.domain or 'ONNX'} up to opset {limit}; {node.op} at opset {version} is newer"


def _only_more_types(new: OpSpec, old: OpSpec | None) -> bool:
    """True if the newer version of the op changed only its element types."""
    return old is not None and not old.deprecated and _signature(new) == _signature(old)


def _signature(spec: OpSpec) -> object:
    def options(params: tuple[ParamSpec, ...]) -> list[object]:
        return [(param.name.lower(), param.option, param.homogeneous) for param in params]

    return options(spec.inputs), options(spec.outputs), dict(spec.attributes)


def lowered(graph: Graph, newest: Mapping[str, int]) -> Graph:
    """The graph with opset numbers that the engine supports, given that it supports all ops."""
    opsets = {domain: min(version, newest.get(domain, version)) for domain, version in graph.opsets.items()}
    if opsets == dict(graph.opsets):
        return graph
    return everywhere(graph, lambda inner: inner.evolve(opsets=opsets))
