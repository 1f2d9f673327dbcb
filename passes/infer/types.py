"""Inference: the types of all values of a graph, with those of its bodies, from the types of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partita.graph.errors import TypeMismatch, did_you_mean
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.ops.onnx_crashes import require_sound
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import Dim, Type, require_shapes
from partita.passes.infer.dim_symbols import bound, map_types, merged
from partita.passes.infer.inference import Inference
from partita.passes.infer.sequences import common


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
    one replaces it. With `check_fits` (by default as `check_declared`) it is an error even without `strict` if
    sizes of an op's inputs contradict each other. Linear."""
    for inner in graphs_in(g):
        for node in inner.nodes:
            require_sound(node)
    if shapes:
        g = _with_shapes(g, shapes)
    checks = strict if check_declared is None else check_declared
    inference = Inference(strict, checks, checks if check_fits is None else check_fits)
    try:
        with collector_paused():
            typed = inference.run(g)
            if not inference.variants:
                return typed
            variants = {body: [typed for typed, _ in known.values()] for body, known in inference.variants.items()}
            return _with_bodies(typed, variants)
    except RecursionError:
        remedy = "InlineFunctions takes calls out"
        raise TypeMismatch("bodies nest too deep", where=f"graph {g.name!r}", remedy=remedy) from None


def replaced_types(declared: Graph, typed: Graph, seen: set[Graph] | None = None) -> list[str]:
    """Notes on the declared types in the first graph that are replaced in the second, which was inferred from it. The bodies in
    `seen` have theirs already."""
    seen = set() if seen is None else seen
    others = {node.name: node for node in typed.nodes if node.is_op}
    notes = []
    for node in declared.nodes:
        other = others.get(node.name) if node.is_op else None
        if other is None or (other is node and not node.bodies):
            continue
        for name, old, new in zip(node.output_names, node.output_types, other.output_types):
            if not _agree(old, new):
                where = f"node {node.name!r} ({node.op})"
                notes.append(f"{where}: the value {name!r} is declared {old}; the inferred {new} is used")
        inner = [(body, other.attrs.get(key)) for key, body in node.bodies]
        if node.subgraph is not None:
            inner = [(node.subgraph, other.subgraph)]
        for body, typed_body in inner:
            if isinstance(typed_body, Graph) and body not in seen:
                seen.add(body)
                notes += replaced_types(body, typed_body, seen)
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
                f"a shape is given for {name!r}, which is not an input", where=f"graph {g.name!r}", remedy=hint
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


def _with_bodies(g: Graph, variants: Mapping[Graph, Sequence[Graph]]) -> Graph:
    """The graph with typed bodies of calls: one per body, merged from its variants, which differ in types only: types that hold
    for all calls."""
    done: dict[Graph, Graph] = {}

    def settled(body: Graph) -> Graph:
        if body not in done:
            typed = variants.get(body) or [body]
            done[body] = through(typed[0], typed[1:])
        return done[body]

    def through(base: Graph, others: Sequence[Graph]) -> Graph:
        peers = {node: [other.nodes[i] for other in others] for i, node in enumerate(base.nodes)}

        def visit(node: Node, rewriter: Rewriter) -> None:
            rebuilt = rewriter.rebuilt(node)
            pairs = enumerate(node.output_types)
            types = tuple([common((known, *[peer.output_types[i] for peer in peers[node]])) for i, known in pairs])
            if types != node.output_types:
                rebuilt = rebuilt.evolve(output_types=types)
            if node.subgraph is not None:
                body = settled(node.subgraph)
                rebuilt = rebuilt if body is node.subgraph else rebuilt.evolve(subgraph=body)
            elif node.bodies:
                inner = {id(body): [peer.attrs[key] for peer in peers[node]] for key, body in node.bodies}
                rebuilt = map_bodies(rebuilt, lambda body: through(body, inner[id(body)]))
            rewriter.keep(node, rebuilt)

        return rewrite(base, visit)

    return through(g, ())
