"""An op as the body of simpler ops: that of our table, or the one that ONNX defines it by."""

from __future__ import annotations

from functools import cache
from typing import Any

from partita.accelerators.interface.provenance import FUSED
from partita.accelerators.tvm.prepare.classes import LOSSES, with_classes_alone
from partita.accelerators.tvm.prepare.masked_rows import with_rows_cleared_last
from partita.accelerators.tvm.prepare.single import alone
from partita.graph.body_builder import NoBody, body_call
from partita.graph.build import CALL_DOMAIN
from partita.graph.errors import PartitaError, UnknownOp
from partita.graph.graph import Graph
from partita.graph.microsoft import is_known, why_unknown
from partita.graph.node import Node
from partita.graph.numerics.evaluate import defaults
from partita.graph.ops import is_random
from partita.graph.protos import write_type
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.decompose import decomposed, has_decomposition

EXPANDED = "Expanded"
"""The op of a call that stands for an op's body until it is inlined."""


def has_function(node: Node, graph: Graph) -> bool:
    """Does ONNX define the op by a body, or do we?"""
    if has_decomposition(node):
        return True
    if node.is_call or node.domain not in ("", "ai.onnx.ml") or node.bodies or is_random(node):
        return False
    schema = _schema(str(node.op), node.domain, graph.opsets.get(node.domain, 1))
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def expanded(node: Node, graph: Graph) -> Node | None:
    """A call of the op's body that replaces the node; None if there is no body for this opset and these inputs."""
    if not all(node.output_names):  # The body makes those too that nobody reads.
        node = node.evolve(output_names=tuple([name or f"{node.name}_{i}" for i, name in enumerate(node.output_names)]))
    try:
        body = decomposed(node, graph.opsets)
    except (NoBody, UnknownOp):  # The graph may be of a version of ONNX that lacks what the parts are made of.
        return None
    read = None
    if body is None:
        body, read = _onnx_body(node, graph)
    if body is None:
        return None
    return body_call(node, _marked(body, node), EXPANDED, read)


def why_whole(node: Node, graph: Graph) -> str | None:
    """Why an op of onnxruntime's is not taken apart here; None for one that is, and for all others."""
    if not is_known(node):
        return why_unknown(node)
    try:
        decomposed(node, graph.opsets)
    except NoBody as error:
        return error.cause
    return None


def _onnx_body(node: Node, graph: Graph) -> tuple[Graph | None, list[str]]:
    """The body that ONNX defines, and what its inputs stand for: x0 is the node's first."""
    from partita.graph.readers.onnx import load_onnx

    function = _function(node, graph)
    if function is None:
        return None, []
    try:
        loaded = load_onnx(_model(node, graph, function))
    except PartitaError:
        return None, []
    call = next(inner for inner in loaded.nodes if inner.is_op)
    if call.subgraph is None or any(entry is None for entry in call.inputs):
        return None, []
    read = [entry.name for entry in call.inputs if entry is not None]
    if node.op in LOSSES and not node.domain:
        return with_classes_alone(call.subgraph, call.subgraph.inputs[read.index("x1")], node), read
    if node.op == "Attention" and not node.domain:
        return with_rows_cleared_last(call.subgraph, node), read
    return call.subgraph, read


def is_expanded(node: Node) -> bool:
    """Is it a call that `expanded` made?"""
    return node.op == EXPANDED and node.domain == CALL_DOMAIN


def _marked(body: Graph, whole: Node) -> Graph:
    """Note on each node the op that it is a part of; a part of a part belongs to that op too."""
    names = "\n".join(dict.fromkeys([whole.name, *whole.metadata.get(FUSED, "").splitlines()]))

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node, rewriter.rebuilt(node, metadata={FUSED: names}) if node.is_op else node)

    return rewrite(body, visit)


@cache
def _schema(op: str, domain: str, version: int) -> Any:
    import onnx.defs

    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def _function(node: Node, graph: Graph) -> Any:
    """ONNX's function for the node, as a FunctionProto."""
    import onnx

    version = graph.opsets.get(node.domain, 1)
    schema = _schema(str(node.op), node.domain, version)
    function = onnx.FunctionProto()
    if schema.has_function:
        known = [v for v in schema.function_opset_versions if v <= version]
        text = schema.get_function_with_opset_version(max(known)) if known else b""
    else:
        known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type(entry).SerializeToString() for entry in node.inputs]
        proto = _node(node, graph).SerializeToString()
        text = schema.get_context_dependent_function_with_opset_version(max(known), proto, types) if known else b""
    if not text:
        return None
    function.ParseFromString(text)
    return function if _same_meaning(function, graph) else None


def _same_meaning(function: Any, graph: Graph) -> bool:
    """Do the function's ops mean the same at the graph's opset?"""
    version = graph.opsets.get("", 1)
    for opset in function.opset_import:
        for inner in function.node:
            if inner.domain != opset.domain:
                continue
            if opset.domain not in graph.opsets and opset.domain:
                return False
            then, now = _schema(inner.op_type, inner.domain, opset.version), _schema(inner.op_type, inner.domain, version)
            if then is None or now is None:
                return False
            if then.since_version != now.since_version and then.since_version < _STABLE.get(inner.op_type, _SINCE):
                return False
    return True


_SINCE = 7
"""Since this version the ops of function bodies have only been given more element types, but for the following."""

_STABLE = {
    "Clip": 11, "Pad": 11, "Softmax": 13, "LogSoftmax": 13, "Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "ReduceMean": 18,
    "ReduceMax": 18, "ReduceMin": 18, "ReduceSumSquare": 18, "ReduceL1": 18, "ReduceL2": 18, "ReduceLogSum": 18,
    "ReduceLogSumExp": 18, "ReduceProd": 18, "Split": 18, "Slice": 10, "Resize": 19, "BatchNormalization": 15, "Scan": 9,
    "Upsample": 99, "Dropout": 12,
}
"""The version since which an op means the same."""


def _model(node: Node, graph: Graph, function: Any) -> Any:
    """A model that calls the function once."""
    import onnx
    import onnx.helper as h

    domain = "partita.expanded"
    version = graph.opsets.get("", 1)
    own = [*(o for o in function.opset_import if o.domain), h.make_opsetid("", version)]
    del function.opset_import[:]
    function.opset_import.extend(own)
    function.domain, function.name = domain, str(node.op)
    proto = _node(node, graph)
    proto.domain = domain
    _drop_unused(function, proto)
    inputs = [h.make_value_info(f"x{i}", _type(e)) for i, e in enumerate(node.inputs) if e is not None]
    outputs = [h.make_value_info(f"y{i}", onnx.TypeProto()) for i in range(len(node.output_names))]
    model_graph = h.make_graph([proto], "expanded", inputs, outputs)
    opsets = [h.make_opsetid("", version), h.make_opsetid(domain, 1)]
    return h.make_model(model_graph, functions=[function], opset_imports=opsets)


def _drop_unused(function: Any, proto: Any) -> None:
    """Inputs that are absent and not read, and outputs that are not asked for, leave the function and its call."""
    read = {name for inner in function.node for name in inner.input}
    given = [*proto.input, *[""] * (len(function.input) - len(proto.input))]
    kept = [(formal, actual) for formal, actual in zip(function.input, given, strict=True) if actual or formal in read]
    outputs = list(function.output)[: len(proto.output)]
    del function.input[:], function.output[:], proto.input[:]
    function.input.extend(formal for formal, _ in kept)
    function.output.extend(outputs)
    proto.input.extend(actual for _, actual in kept)


def _node(node: Node, graph: Graph) -> Any:
    """The node alone as ONNX writes it, with the schema's defaults, its inputs called x0, x1, …"""
    import onnx.helper as h

    from partita.graph.writers.onnx.model import to_model

    proto = to_model(alone(node, graph, constants=False)).graph.node[-1]
    given = {attribute.name for attribute in proto.attribute}
    for key, value in defaults(str(node.op), node.domain, graph.opsets.get(node.domain, 1)).items():
        if key not in given and isinstance(value, (int, float, str, list)):
            proto.attribute.append(h.make_attribute(key, value))
    del proto.input[:], proto.output[:]
    proto.input.extend("" if e is None else f"x{i}" for i, e in enumerate(node.inputs))
    proto.output.extend(f"y{i}" for i in range(len(node.output_names)))
    return proto


def _type(entry: Any) -> Any:
    import onnx

    proto = onnx.TypeProto()
    if entry is not None:
        write_type(proto, entry.type)
    return proto
