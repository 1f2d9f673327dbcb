"""Types of all values by ONNX's inference, with data propagation; calls and declared ops are included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph.build import variable
from partita.graph.errors import PartitaError, TypeMismatch, did_you_mean
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.microsoft import NoBody, body_of, is_known, result_types
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.custom import custom_op
from partita.graph.ops.onnx_crashes import is_fragile, require_sound
from partita.graph.protos import TypeReader
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.single_node import graph_of_node
from partita.graph.types import Dim, TensorType, Type, require_shapes
from partita.passes.bodies import has_bodies, holds_body
from partita.passes.constants import as_constant, made_constant
from partita.passes.infer.common_types import with_bodies
from partita.passes.infer.contract import require_fits
from partita.passes.infer.dim_symbols import bound, generated, map_types, merged
from partita.passes.infer.hidden_nodes import OPAQUE_DOMAIN, answering, hide
from partita.passes.infer.inference_errors import DECLARED, DeclaredMismatch, contradiction, refuted
from partita.passes.infer.onnx_inference import SHOWN, onnx_types
from partita.passes.infer.propagation_limit import bulky_nodes, long_shape, makes_unknown_dimensions
from partita.passes.infer.rule_types import is_misread, rule_types

ROUNDS = 4
"""Maximum number of repetitions of inference without contradicted declared types; after that all declared
types are dropped.
"""


def infer(
    g: Graph,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    strict: bool = True,
    check_declared: bool | None = None,
    check_fits: bool | None = None,
) -> Graph:
    """The graph with the types that follow from those of its inputs, including in bodies and calls.

    `shapes` are shapes of inputs; a size for a symbol replaces all its occurrences. A contradiction is an
    error that names the node; without `strict` the types that cannot be inferred remain unknown. With `check_declared` (by
    default as `strict`) it is an error if a declared type differs from the inferred one; otherwise the inferred
    one replaces it. With `check_fits` (by default as `check_declared`) it is an error if
    sizes of an op's inputs contradict each other.
    """
    for inner in graphs_in(g):
        for node in inner.nodes:
            require_sound(node)
    if shapes:
        g = _with_shapes(g, shapes)
    checks = strict if check_declared is None else check_declared
    inference = _Inference(strict, checks, g.opsets)
    typed = inference.run(g)
    if checks if check_fits is None else check_fits:
        require_fits(typed)
    if not inference.variants:
        return typed
    return with_bodies(typed, {body: list(typed_copies.values()) for body, typed_copies in inference.variants.items()})


def replaced_types(declared: Graph, typed: Graph) -> list[str]:
    """Notes on the declared types in the first graph that are replaced in the second, which was inferred from it."""
    others = {node.name: node for node in typed.nodes if node.is_op}
    notes = []
    for node in declared.nodes:
        other = others.get(node.name) if node.is_op else None
        if other is None or (other is node and not node.bodies):
            continue
        for name, old, new in zip(node.output_names, node.output_types, other.output_types):
            if not _agree(old, new):
                where = f"node {node.name!r} ({node.op})"
                notes.append(f"{where}: the value {name!r} is declared {old}; {new} follows, and is taken")
        inner = [(body, other.attrs.get(key)) for key, body in node.bodies]
        if node.subgraph is not None:
            inner = [(node.subgraph, other.subgraph)]
        for body, typed_body in inner:
            notes += replaced_types(body, typed_body) if isinstance(typed_body, Graph) else []
    return notes


def _agree(declared: Type | None, inferred: Type | None) -> bool:
    if declared is inferred:
        return True
    try:
        merged(declared, inferred)
    except TypeMismatch:
        return False
    return True


def with_missing_types(g: Graph) -> Graph:
    """The graph with types inferred as far as possible; the graph itself if all are known."""
    outputs = (pair for node in g.nodes for pair in zip(node.output_types, node.output_names))
    known = all(value_type is not None for value_type, name in outputs if name)
    return g if known else infer(g, strict=False)


def _by_body(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The output types of an op of onnxruntime's, from its body in ONNX's ops."""
    values = [None if entry is None else as_constant(entry) for entry in node.inputs]
    known = result_types(node, inputs, values)
    if known is not None:
        return known
    body = body_of(node, inputs, values)
    typed = _Inference(False, False, body.opsets).run(body)
    typed = map_types(typed, dict.fromkeys(generated(typed, inputs)))
    return [entry.type for entry in typed.outputs]


def _with_shapes(g: Graph, shapes: Mapping[str, Sequence[Dim]]) -> Graph:
    require_shapes(shapes)
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
        rebuilt = rewriter.rebuilt(node)
        changed = node in given and given[node] != node[0].type
        rewriter.keep(node, rebuilt.evolve(output_types=(given[node],)) if changed else rebuilt)

    return rewrite(g, visit)


class _Inference:
    """One run of inference, with the nodes that are hidden from ONNX and the results for them."""

    def __init__(self, strict: bool, check_declared: bool, opsets: Mapping[str, int]) -> None:
        self.strict = strict
        self.check_declared = check_declared
        self.opsets = opsets
        self.hidden: list[Node] = []
        self.bulky: set[str] = set()
        self.variants: dict[Graph, dict[Any, Graph]] = {}
        self.reader = TypeReader()

    def run(self, g: Graph, constants: Mapping[int, np.ndarray[Any, Any]] | None = None) -> Graph:
        """The graph with types, except in bodies of calls; `constants` are inputs with known values."""
        shown = _without_bound_types(hide(g, self._is_ours, self.hidden))
        if constants:
            shown = _with_constants(shown, constants)
        with collector_paused(), answering(self._outputs):
            shown = self._without_bulk(shown)
            for _ in range(ROUNDS):
                proto, names = self._inferred(shown)
                if names is None:
                    return self._typed(g, proto.graph, None)
                shown = without_declared(shown, names)
            proto = self._inferred(without_declared(shown, frozenset()))[0]
            return self._typed(without_declared(g, frozenset()), proto.graph, None)

    def _without_bulk(self, shown: Graph) -> Graph:
        """The graph with those nodes hidden whose long vectors ONNX would propagate.

        If the declared types do not determine these nodes, types are inferred first, without propagation.
        """
        if not bulky_nodes(shown):
            return shown
        staged = hide(shown, makes_unknown_dimensions, self.hidden)
        self.bulky |= {node.name for node in self.hidden if makes_unknown_dimensions(node)}
        names = bulky_nodes(self._typed(shown, onnx_types(staged, propagates=False)[0].graph, None))
        self.bulky |= names
        return hide(shown, lambda node: node.name in names, self.hidden) if names else shown

    def _inferred(self, shown: Graph) -> tuple[Any, frozenset[str] | None]:
        """ONNX's copy of the graph with types, and the names of nodes whose declared types contradict the inferred
        ones, or None.
        """
        proto, complaints = onnx_types(shown)
        names = refuted(complaints)
        if names is not None:
            if self.check_declared:
                raise self._refutation(shown, names, complaints)
            return proto, names
        error_found = contradiction(complaints, proto.graph) if complaints and self.strict else None
        if error_found is not None:
            raise error_found
        return proto, None

    def _refutation(self, shown: Graph, names: frozenset[str], complaints: str) -> TypeMismatch:
        """The error for the first of these nodes whose declared types differ from the inferred ones."""
        try:
            self._typed(shown, onnx_types(without_declared(shown, names))[0].graph, None)
        except DeclaredMismatch as error:
            return error
        return DeclaredMismatch(complaints, remedy=DECLARED)

    def _typed(self, g: Graph, proto: Any, outer: Mapping[Node, Type | None] | None) -> Graph:
        """The graph with the types from ONNX's copy; `outer` has those of a body's inputs.

        Values have their own names there, except in bodies and if an output has another name."""
        read = self.reader.read
        stated = (proto.input, proto.output, proto.value_info)
        types = {value.name: read(value.type, value.name) for part in stated for value in part}
        own = outer is None and all(e.name == n for e, n in zip(g.outputs, g.output_names, strict=True))
        protos = {} if own and not has_bodies(g) else {node.name: node for node in proto.node}
        given = outer or {}

        def visit(node: Node, rewriter: Rewriter) -> None:
            if node.is_op:
                names = node.output_names if own else protos[node.name].output
                new = self._all_joined(node, tuple(map(types.get, names)))
            else:
                new = self._all_joined(node, (given.get(node),))
            same = new is node.output_types
            rebuilt = rewriter.rebuilt(node) if same else rewriter.rebuilt(node, output_types=new)
            rewriter.keep(
                node, self._with_bodies(node, rebuilt, protos[node.name]) if holds_body(node) else rebuilt
            )

        return rewrite(g, visit)

    def _all_joined(self, node: Node, inferred: tuple[Type | None, ...]) -> tuple[Type | None, ...]:
        """The node's output types merged with the inferred ones; the same tuple if nothing is new."""
        old = node.output_types
        if not any(inferred):
            return old
        if not any(old):
            return inferred
        if all(a is b or b is None or a == b for a, b in zip(old, inferred, strict=True)):
            return old
        return tuple([self._joined(node, i, known) for i, known in enumerate(inferred)])

    def _joined(self, node: Node, i: int, inferred: Type | None) -> Type | None:
        """The declared type of output `i` merged with the inferred one."""
        declared = node.output_types[i]
        try:
            return merged(declared, inferred)
        except TypeMismatch as error:
            if not self.check_declared:
                return inferred
            op = self.hidden[node.attrs["key"]].op if node.domain == OPAQUE_DOMAIN else node.op
            raise DeclaredMismatch(
                f"the value {node.output_names[i]!r} is declared {declared}, and {inferred} follows",
                where=f"node {node.name!r} ({op})",
                remedy=DECLARED,
            ) from error

    def _with_bodies(self, node: Node, rebuilt: Node, proto: Any) -> Node:
        protos = {attribute.name: attribute.g for attribute in proto.attribute if attribute.HasField("g")}
        attributes = dict(rebuilt.attrs)
        for name, body in rebuilt.bodies:
            inner = protos[name]
            formal = [self.reader.read(v.type, v.name) for v in inner.input]
            known = [*formal, *(entry.type for entry in rebuilt.captures)]
            attributes[name] = self._typed(body, inner, dict(zip(body.inputs, known, strict=True)))
        if all(attributes[name] is body for name, body in rebuilt.bodies):
            return rebuilt
        return rebuilt.evolve(attrs=attributes)

    def _is_ours(self, node: Node) -> bool:
        """True if the node is hidden from ONNX's inference."""
        return (
            node.subgraph is not None
            or is_fragile(node)
            or is_misread(node)
            or custom_op(node.op, node.domain) is not None
            or is_known(node)
        )

    def _outputs(self, key: int, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """The output types of a hidden node."""
        node = self.hidden[key]
        where = f"node {node.name!r} ({node.op})"
        try:
            if node.subgraph is not None:
                return self._call(node, node.subgraph, inputs)
            if is_fragile(node) or node.name in self.bulky:
                return self._alone(node, inputs)
            if is_misread(node):
                return rule_types(node, inputs, self.opsets)
            mine = custom_op(node.op, node.domain)
            return _by_body(node, inputs) if mine is None else mine.infer(inputs, node.attrs, len(node.output_names))
        except DeclaredMismatch:
            raise
        except NoBody:
            return ()
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

    def _alone(self, node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """Infers an op alone, without propagation, if the types of its inputs are known.

        The length of a long vector that is a shape is hidden from ONNX.
        """
        if any(entry is not None and known is None for entry, known in zip(node.inputs, inputs, strict=False)):
            return ()
        if is_fragile(node) and not node.reads:
            return ()
        types = {entry: known for entry, known in zip(node.inputs, inputs, strict=False) if entry is not None}
        long = long_shape(node, inputs)
        if long is not None:
            types[long] = TensorType("int64", (None,))

        def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
            is_kept = entry.node.value is not None and entry != long
            return entry if is_kept else variable(f"x{number}", type=types.get(entry, entry.type))[0]

        alone = graph_of_node(node.evolve(output_types=(None,) * len(node.output_names)), self.opsets, stand_in)
        proto, complaints = onnx_types(alone, propagates=False)
        error_found = contradiction(complaints, proto.graph) if complaints and self.strict else None
        if error_found is not None:
            raise error_found
        typed = self._typed(alone, proto.graph, None)
        typed = map_types(typed, dict.fromkeys(generated(typed, inputs)))
        return next(inner.output_types for inner in typed.nodes if inner.is_op)

    def _call(self, node: Node, body: Graph, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """Infers the body for these input types, once for all calls with the same types."""
        shown = {
            i: a for i, e in enumerate(node.inputs) if (a := as_constant(e)) is not None and _is_shape(a)
        }
        key = tuple(inputs), tuple((i, a.tobytes()) for i, a in shown.items())
        known = self.variants.setdefault(body, {})
        if key not in known:
            types = {old: self._bound_input(node, old, new) for old, new in zip(body.inputs, inputs, strict=True)}
            typed = self.run(_with_input_types(body, types), shown)
            known[key] = map_types(typed, dict.fromkeys(generated(typed, inputs)))
        return [entry.type for entry in known[key].outputs]

    def _bound_input(self, call: Node, variable: Node, given: Type | None) -> Type | None:
        """The declared type of the body's input merged with that of the call's input."""
        try:
            return merged(variable[0].type, given)
        except TypeMismatch as error:
            if not self.check_declared:
                return given
            raise DeclaredMismatch(
                f"the body's input {variable.name!r} is declared {variable[0].type} and gets {given}",
                where=f"node {call.name!r} ({call.op})",
                remedy=DECLARED,
            ) from error


def _is_shape(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype == np.int64 and array.nbytes <= SHOWN


def _with_input_types(g: Graph, types: Mapping[Node, Type | None]) -> Graph:
    def visit(node: Node, rewriter: Rewriter) -> None:
        changed = node in types and types[node] != node[0].type
        rewriter.keep(node, node.evolve(output_types=(types[node],)) if changed else None)

    return rewrite(g, visit)


def without_declared(g: Graph, names: frozenset[str]) -> Graph:
    """The graph without declared types for the outputs of the ops of these names and of all in their bodies; without names, of
    all ops."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        chosen = not names or node.name in names
        changes = {"output_types": (None,) * len(node.output_names)} if chosen and node.is_op else {}
        rebuilt = rewriter.rebuilt(node, **changes)
        if node.bodies:
            rebuilt = map_bodies(rebuilt, lambda body: without_declared(body, frozenset() if chosen else names))
        rewriter.keep(node, rebuilt)

    return rewrite(g, visit)


def _without_bound_types(g: Graph) -> Graph:
    """The graph without declared types for captured values in bodies: they have those of the outer values."""
    if not any(node.captures for node in g.nodes):
        return g

    def visit(node: Node, rewriter: Rewriter) -> None:
        count = len(node.captures)
        rewriter.keep(node, map_bodies(rewriter.rebuilt(node), lambda body: _loosened(body, count)))

    return rewrite(g, visit)


def _loosened(body: Graph, count: int) -> Graph:
    bound = body.inputs[len(body.inputs) - count :]
    return _without_bound_types(_with_input_types(body, dict.fromkeys(bound)))


def _with_constants(g: Graph, arrays: Mapping[int, np.ndarray[Any, Any]]) -> Graph:
    """The graph with these arrays in place of inputs, which remain inputs."""
    names = {name for node in g.nodes for name in (node.name, *node.output_names)}
    constants = {g.inputs[i]: made_constant(a, unique("known", names), g.inputs[i]) for i, a in arrays.items()}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        if node in constants:
            rewriter.replace(node[0], constants[node][0])

    return rewrite(g, visit)
