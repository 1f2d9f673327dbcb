"""Writes a graph as a ModelProto."""

from __future__ import annotations

from typing import Any

from partita.graph.errors import WriteError
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.ops.onnx_crashes import is_fragile, unsound
from partita.graph.ops.schemas import ONNX_DOMAINS
from partita.graph.protos import first_ir, roundtrip, write_type
from partita.graph.types import ELEMENT_TYPES, Type, dtype_name
from partita.graph.writers.onnx.functions import Functions
from partita.graph.writers.onnx.level import LevelWriter
from partita.graph.writers.onnx.tensors import ExternalFile

OLDEST_IR = 4
"""The oldest IR version that is written; older ones require each constant to be an input."""


def to_model(graph: Graph, *, elide_constants_above: int | None = None, drop_control: bool = False) -> Any:
    """The graph as an ONNX ModelProto of the lowest possible IR version.

    Calls become model-local functions. With `elide_constants_above` constants of more bytes than that become inputs: the
    model is then small and sufficient for shape inference. Control dependencies are an error unless dropped.
    ONNX requires the types of the graph's outputs: missing ones are inferred."""
    with collector_paused():
        model = ModelWriter(graph, elide_constants_above, drop_control).model
    if elide_constants_above is None:
        complete_outputs(graph, model)
    return model


class ModelWriter:
    """One model while it is written."""

    def __init__(
        self, graph: Graph, elide_above: int | None = None, drop_control: bool = False, aside: ExternalFile | None = None
    ) -> None:
        import onnx

        self.elide_above = elide_above
        """Constants of more bytes become inputs; with None no constant does."""
        self.drop_control = drop_control
        """True if control dependencies are dropped."""
        self.aside = aside
        """The file for large arrays; None keeps them in the model."""
        self.opsets = dict(graph.opsets)
        """The opsets that the file imports."""
        self.ir = OLDEST_IR
        """The IR version required so far."""
        self._types: dict[int, tuple[Any, Type]] = {}
        self.model = onnx.ModelProto()
        """The model."""
        where = f"graph {graph.name!r}"
        try:
            self.functions = Functions(self, graph)
            self._import(self.functions.domains - self.opsets.keys(), where)
            LevelWriter(self, graph, self.model.graph).write_main()
        except RecursionError:
            raise WriteError("calls nest too deep", where=where, remedy="InlineFunctions takes the calls out") from None
        self._finish(graph)

    def _import(self, domains: set[str], where: str) -> None:
        """Imports domains without a version in the graph: version 1, and an error for ONNX's own."""
        for domain in sorted(domains):
            if domain in ONNX_DOMAINS:
                cause = f"the graph has no version of opset {domain or 'ai.onnx'!r}"
                raise WriteError(cause, where=where, remedy="Give it with opsets= when the graph is made")
            self.opsets[domain] = 1

    def need(self, ir: int) -> None:
        """Raises the model's IR version to at least this one."""
        self.ir = max(self.ir, ir)

    def type(self, proto: Any, value_type: Type | None) -> None:
        """Fills a TypeProto."""
        if value_type is None:
            return
        known = self._types.get(id(value_type))
        if known is None:
            self.need(first_ir(value_type))
            write_type(proto, value_type)
            self._types[id(value_type)] = proto, value_type
        else:
            proto.CopyFrom(known[0])

    def need_dtype(self, dtype: Any) -> None:
        """Raises the IR version as required by this element type."""
        self.need(ELEMENT_TYPES[dtype_name(dtype)].first_ir)

    def note(self, proto: Any, key: str, value: str) -> None:
        """Adds metadata to a node, tensor or value."""
        self.need(10)
        item = proto.metadata_props.add()
        item.key, item.value = key, value

    def describe(self, proto: Any, node: Node) -> None:
        """Writes the node's metadata and affinity."""
        for key, value in node.metadata.items():
            if key == roundtrip.DOC:
                proto.doc_string = value
            elif key != roundtrip.INPUT:
                self.note(proto, key, value)
        if node.affinity is not None:
            self.note(proto, roundtrip.AFFINITY, node.affinity)

    def check_control(self, node: Node) -> None:
        """Raises for control dependencies, which ONNX lacks, unless they are dropped."""
        if node.after and not self.drop_control:
            raise WriteError(
                f"ONNX cannot say that it comes after {', '.join(repr(n.name) for n in node.after)}",
                where=f"node {node.name!r} ({node.op})",
                remedy="Save with drop_control=True to leave control dependencies out",
            )

    def _finish(self, graph: Graph) -> None:
        import onnx.helper

        model = self.model
        metadata = dict(graph.metadata)
        model.producer_name = roundtrip.PRODUCER
        for key, field in roundtrip.MODEL_FIELDS.items():
            if key in metadata:
                setattr(model, field, metadata.pop(key))
        model.graph.doc_string = metadata.pop(roundtrip.DOC, "")
        version = metadata.pop("onnx.model_version", "")
        if version.isdigit():
            model.model_version = int(version)
        for key, value in metadata.items():
            item = model.metadata_props.add()
            item.key, item.value = key, value
        for domain, number in self.opsets.items():
            opset = model.opset_import.add()
            opset.domain, opset.version = domain, number
        if model.functions:
            self.need(8)
        self.need(onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))
        model.ir_version = self.ir


SHOWN = 1024
"""Maximum bytes of a constant that is passed to ONNX's inference."""


def complete_outputs(graph: Graph, model: Any) -> None:
    """Infers missing types of outputs by ONNX.

    A type that ONNX cannot infer (of an engine's own op, or of one that crashes ONNX) remains open. The reader ignores
    inferred types, so that the graph is read back as it was."""
    missing = [item for item in model.graph.output if not item.HasField("type")]
    if not missing or any(_would_crash(node) for inner in graphs_in(graph) for node in inner.nodes):
        return
    from onnx.shape_inference import InferenceError, infer_shapes


    try:
        inferred = infer_shapes(to_model(graph, elide_constants_above=SHOWN, drop_control=True))
    except InferenceError:
        return
    types = {item.name: item.type for item in inferred.graph.output if item.HasField("type")}
    for item in missing:
        if item.name in types:
            item.type.CopyFrom(types[item.name])
            item.metadata_props.add(key=roundtrip.INFERRED)
            model.ir_version = max(model.ir_version, 10)


def _would_crash(node: Node) -> bool:
    return unsound(node) is not None or (is_fragile(node) and (not node.reads or any(entry.type is None for entry in node.reads)))
