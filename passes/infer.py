"""Types of all values by ONNX's inference, with data propagation; calls and declared ops take part in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graph.errors import PartitaError, TypeMismatch, did_you_mean
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.ops.custom import custom_op
from graph.pauses import collector_paused
from graph.protos import TypeReader, write_type
from graph.rewrite import Rewriter, rewrite
from graph.types import Dim, Type
from passes.bodies import has_bodies
from passes.constants import as_constant, made_constant, unused
from passes.opaque import OPAQUE, OPAQUE_DOMAIN, hide
from passes.symbols import bound, generated, map_types, merged

SHOWN = 1024
"""Constants of at most this many bytes are shown to the inference, which may compute shapes from them."""


def infer(g: Graph, shapes: Mapping[str, Sequence[Dim]] | None = None, strict: bool = True) -> Graph:
    """The graph with the types that follow from those of its inputs, in bodies and calls too.

    `shapes` gives shapes of inputs; a size given for a symbol holds wherever the symbol stands. What contradicts is an error
    that names the node; without `strict` the types that do not follow stay unknown."""
    if shapes:
        g = _with_shapes(g, shapes)
    return _Inference(strict).run(g)


def _with_shapes(g: Graph, shapes: Mapping[str, Sequence[Dim]]) -> Graph:
    by_name = {node.name: node for node in g.inputs}
    symbols: dict[str, Dim] = {}
    given: dict[Node, Type] = {}
    for name, shape in shapes.items():
        node = by_name.get(name)
        if node is None:
            hint = did_you_mean(name, by_name) or f"Its inputs are {', '.join(by_name) or 'none'}"
            raise TypeMismatch(
                f"a shape is given for {name!r}, which is no input", where=f"graph {g.name!r}", remedy=hint
            )
        given[node] = bound(node, shape, symbols)
    symbols = {name: size for name, size in symbols.items() if size is not None and size != name}
    if symbols:
        g = map_types(g, symbols)
        given = {g.inputs[i]: given[node] for i, node in enumerate(by_name.values()) if node in given}

    def visit(node: Node, rewriter: Rewriter) -> None:
        made = rewriter.rebuilt(node)
        changed = node in given and given[node] != node[0].type
        rewriter.keep(node, made.evolve(output_types=(given[node],)) if changed else made)

    return rewrite(g, visit)


class _Inference:
    """One run, with the nodes that are hidden from ONNX and what was found for them."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.hidden: list[Node] = []
        self.typed: dict[Node, Graph] = {}
        self.known: dict[Any, Graph] = {}
        self.reader = TypeReader()

    def run(self, g: Graph, constants: Mapping[int, np.ndarray[Any, Any]] | None = None) -> Graph:
        """The graph typed; `constants` are inputs whose values are known here."""
        from graph.writers.onnx import to_model

        shown = hide(g, _is_ours, self.hidden)
        if constants:
            shown = _with_constants(shown, constants)
        with collector_paused():
            model = to_model(shown, elide_constants_above=SHOWN, drop_control=True)
            proto = self._inferred(model)
            del model
            return self._typed(g, proto.graph, None)

    def _inferred(self, model: Any) -> Any:
        from onnx.shape_inference import InferenceError, infer_shapes

        _declare_opaque()
        with _running(self):
            try:
                return infer_shapes(model, data_prop=True, strict_mode=self.strict)
            except InferenceError as error:
                if not _is_onnx_to_blame(str(error)):
                    raise _mismatch(str(error)) from error
                return infer_shapes(model, data_prop=True)

    def _typed(self, g: Graph, proto: Any, outer: Mapping[Node, Type | None] | None) -> Graph:
        """The graph with the types from ONNX's copy of it; `outer` are those of a body's inputs.

        Values have their own names there, save in bodies and where an output has a name of its own."""
        read = self.reader.read
        stated = (proto.input, proto.output, proto.value_info)
        types = {value.name: read(value.type, value.name) for part in stated for value in part}
        own = outer is None and all(e.name == n for e, n in zip(g.outputs, g.output_names, strict=True))
        protos = {} if own and not has_bodies(g) else {node.name: node for node in proto.node}
        given = outer or {}

        def visit(node: Node, rewriter: Rewriter) -> None:
            if node.is_op:
                names = node.output_names if own else protos[node.name].output
                new = self._all_joined(node, [types.get(name) for name in names])
            else:
                new = self._all_joined(node, [given.get(node)])
            same = new is node.output_types
            made = rewriter.rebuilt(node) if same else rewriter.rebuilt(node, output_types=new)
            rewriter.keep(node, self._with_bodies(node, made, protos[node.name]) if node.bodies else made)

        return rewrite(g, visit)

    def _all_joined(self, node: Node, found: list[Type | None]) -> tuple[Type | None, ...]:
        """The node's output types with what was found; the same tuple if that says nothing new."""
        old = node.output_types
        if all(a is b or b is None or a == b for a, b in zip(old, found, strict=True)):
            return old
        return tuple(map(self._joined, node, found))

    def _joined(self, entry: NodeEntry, found: Type | None) -> Type | None:
        """What is declared of a value and what was found, together."""
        try:
            return merged(entry.type, found)
        except TypeMismatch as error:
            if not self.strict:
                return entry.type
            raise TypeMismatch(
                f"the value {entry.name!r} is declared {entry.type}, and {found} follows",
                where=f"node {entry.node.name!r} ({entry.node.op})",
                remedy=_REMEDY,
            ) from error

    def _with_bodies(self, node: Node, made: Node, proto: Any) -> Node:
        if node.subgraph is not None:
            body = self.typed.get(node, node.subgraph)
            return made if body is made.subgraph else made.evolve(subgraph=body)
        protos = {attribute.name: attribute.g for attribute in proto.attribute if attribute.HasField("g")}
        attributes = dict(made.attrs)
        for name, body in made.bodies:
            inner = protos[name]
            formal = [self.reader.read(v.type, v.name) for v in inner.input]
            known = [*formal, *(entry.type for entry in made.captures)]
            attributes[name] = self._typed(body, inner, dict(zip(body.inputs, known, strict=True)))
        if all(attributes[name] is body for name, body in made.bodies):
            return made
        return made.evolve(attrs=attributes)

    def outputs(self, node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """The output types of a hidden node."""
        where = f"node {node.name!r} ({node.op})"
        try:
            if node.subgraph is not None:
                return self._call(node, inputs)
            mine = custom_op(node.op, node.domain)
            assert mine is not None
            return mine.infer(inputs, node.attrs, len(node.output_names))
        except TypeMismatch as error:
            if not self.strict:
                return ()
            raise TypeMismatch(error.cause, where=error.where or where, remedy=error.remedy) from error
        except PartitaError:
            raise
        except Exception as error:
            raise TypeMismatch(
                f"the op's shape rule failed: {type(error).__name__}: {error}", where=where
            ) from error

    def _call(self, node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """Infer the body for these types of its inputs; calls of one body with the same types share what comes out."""
        body = node.subgraph
        assert body is not None
        arrays = {
            i: a for i, e in enumerate(node.inputs) if (a := as_constant(e)) is not None and _is_shape(a)
        }
        key = (id(body), tuple(inputs), tuple((i, a.tobytes()) for i, a in arrays.items()))
        if key not in self.known:
            types = {old: _bound_input(node, old, new) for old, new in zip(body.inputs, inputs, strict=True)}
            typed = self.run(_with_input_types(body, types), arrays)
            self.known[key] = map_types(typed, dict.fromkeys(generated(typed, inputs)))
        self.typed[node] = self.known[key]
        return [entry.type for entry in self.known[key].outputs]


def _is_ours(node: Node) -> bool:
    return node.subgraph is not None or custom_op(node.op, node.domain) is not None


def _is_shape(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype == np.int64 and array.nbytes <= SHOWN


def _bound_input(call: Node, variable: Node, known: Type | None) -> Type | None:
    try:
        return merged(variable[0].type, known)
    except TypeMismatch as error:
        raise TypeMismatch(
            f"the body's input {variable.name!r} is declared {variable[0].type} and gets {known}",
            where=f"node {call.name!r} ({call.op})",
        ) from error


def _with_input_types(g: Graph, types: Mapping[Node, Type | None]) -> Graph:
    def visit(node: Node, rewriter: Rewriter) -> None:
        changed = node in types and types[node] != node[0].type
        rewriter.keep(node, node.evolve(output_types=(types[node],)) if changed else None)

    return rewrite(g, visit)


def _with_constants(g: Graph, arrays: Mapping[int, np.ndarray[Any, Any]]) -> Graph:
    """The graph reading these arrays where it read inputs, which stay."""
    names = {name for node in g.nodes for name in (node.name, *node.output_names)}
    made = {g.inputs[i]: made_constant(a, unused("known", names), g.inputs[i]) for i, a in arrays.items()}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        if node in made:
            rewriter.replace(node[0], made[node][0])

    return rewrite(g, visit)


def _is_onnx_to_blame(text: str) -> bool:
    """Is every error in there about a Constant in a function body of ONNX's own? MeanVarianceNormalization has one."""
    return all("(op_type:Constant)" in line for line in text.splitlines() if line.strip())


def _mismatch(text: str) -> TypeMismatch:
    """ONNX's message, with the first node that it names as the place."""
    found = re.search(r"\(op_type:\s*([^,)]*)(?:, node name: (.*?))?\): *(.*)", text, re.DOTALL)
    if found is None:
        return TypeMismatch(f"types contradict each other: {text.strip()}", remedy=_REMEDY)
    op, name, cause = found.groups()
    cause = re.sub(r"^(\[\w+\] *)+", "", cause.strip()).split("\n")[0]
    return TypeMismatch(
        f"types contradict each other: {cause}", where=f"node {name or ''!r} ({op})", remedy=_REMEDY
    )


_REMEDY = "Correct the declared types or the given shapes, or pass strict=False to leave unknown what does not follow"


class _Runs(threading.local):
    stack: list[_Inference]

    def __init__(self) -> None:
        self.stack = []


_runs = _Runs()


class _running:
    """Inside the block ONNX asks this inference about opaque nodes."""

    def __init__(self, inference: _Inference) -> None:
        self.inference = inference

    def __enter__(self) -> None:
        _runs.stack.append(self.inference)

    def __exit__(self, *_: object) -> None:
        _runs.stack.pop()


@lru_cache(maxsize=1)
def _declare_opaque() -> None:
    """Tell ONNX of the opaque op, once."""
    from onnx.defs import OpSchema, register_schema

    formal, many = OpSchema.FormalParameter, OpSchema.FormalParameterOption.Variadic
    schema = OpSchema(
        OPAQUE,
        OPAQUE_DOMAIN,
        1,
        inputs=[formal("x", "T", param_option=many, is_homogeneous=False, min_arity=0)],
        outputs=[formal("y", "T", param_option=many, is_homogeneous=False, min_arity=0)],
        type_constraints=[("T", ["tensor(float)"], "any type: nobody checks it")],
        attributes=[
            OpSchema.Attribute("key", OpSchema.AttrType.INT, "the number of the hidden node", required=True)
        ],
    )
    schema.set_type_and_shape_inference_function(_infer_opaque)
    register_schema(schema)


def _infer_opaque(context: Any) -> None:
    """ONNX asks for the output types of an opaque node; outside of a run, as in its version converter, nothing is known."""
    import onnx

    if not _runs.stack:
        return
    inference = _runs.stack[-1]
    node = inference.hidden[context.get_attribute("key").i]
    given: list[Type | None] = []
    for i in range(len(node.inputs)):
        proto = context.get_input_type(i) if i < context.get_num_inputs() and context.has_input(i) else None
        given.append(None if proto is None else inference.reader.read(proto, node.name))
    for i, made in enumerate(inference.outputs(node, given)):
        if made is not None and context.has_output(i):
            proto = onnx.TypeProto()
            write_type(proto, made)
            context.set_output_type(i, proto)
