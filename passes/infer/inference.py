"""A reading of a graph that derives whole types, also of values that are not tensors and inside of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.errors import DeclaredMismatch, PartitaError, TypeMismatch
from partita.graph.graph import Graph
from partita.graph.microsoft import NoBody, body_of, is_known, result_types
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import custom_op
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.symbols import AnySize, Size, Sizes, Symbol, replaced, symbol, symbols_of
from partita.graph.types import Dim, TensorType, Type
from partita.passes.infer import sequences  # noqa: F401  it registers rules
from partita.passes.infer.control_flow import RULES as WITH_BODIES
from partita.passes.infer.control_flow import captured
from partita.passes.infer.dim_symbols import merged, symbols_in
from partita.passes.infer.reading import FAILURES, Context, Reading, rule_of
from partita.passes.infer.result_types import KINDS, Kind, allowed, by_schema
from partita.passes.infer.rules import IndexOutside, Unknown
from partita.passes.infer.values import VALUES, Elements

REMEDY = "Correct the declared types or the given shapes, or pass strict=False to leave unknown what does not follow"

DECLARED = "Correct the declared type, or remove it. InferShape with strict=False replaces it by the inferred one"

SHOWN = 1024
"""Maximum bytes of a constant that a call's body is read with."""

Result = tuple[Type | None, Sizes | None, Elements | None]
"""The type, sizes and elements of a value."""


class RuleFailed(TypeMismatch):
    """The shape rule of a user's op raised an error that is none of ours: a programming error."""


class Contradiction(TypeMismatch):
    """The types of an op's inputs contradict each other, or its attributes."""


class Inference(Reading):
    """The types of a graph's values. With `strict` a contradiction is an error, with `check_fits` one of an op whose sizes
    engines do not compare, and with `check_declared` a declared type that differs from the inferred one; otherwise types that do
    not follow remain unknown, and inferred ones replace declared ones.

    A size that is not an integer and no symbol gets a name of its own: sizes of one name are equal."""

    def __init__(self, strict: bool, check_declared: bool, check_fits: bool) -> None:
        super().__init__(Graph([]), (), exact=True)
        self.fills_shapes = True
        self.strict = strict
        self.check_fits = check_fits
        self.check_declared = check_declared
        self._branches = 0
        """Number of branches around the current node, which are not run for each call."""
        self.variants: dict[Graph, dict[Any, tuple[Graph, Sequence[Result]]]] = {}
        """Each body of a call with types, and its results, by what it is given."""
        self._types: dict[Node, tuple[Type | None, ...]] = {}
        self._bodies: dict[Node, dict[str, Graph]] = {}
        self._names: dict[AnySize, str] = {}
        self._named: dict[str, AnySize] = {}
        self._taken: set[str] | None = None
        self._made: dict[tuple[str, Sizes], TensorType] = {}
        self._calls = 0
        """Number of calls around the current node: no sizes are named in their bodies, which may be shared."""

    def run(self, graph: Graph) -> Graph:
        """The graph with types, except in bodies of calls."""
        self._whole = graph
        for node in graph.inputs:
            self._bind_type(node, node[0].type)
        self._read_all(graph)
        return self._rebuilt(graph)

    def type_of(self, entry: NodeEntry) -> Type | None:
        """The value's type, as far as it is known by now."""
        types = self._types.get(entry.node)
        return entry.type if types is None else types[entry.index]

    def _solve(self, difference: AnySize) -> bool:
        return False  # A type holds the sizes of its own op: equal ones are not renamed.

    # -- one node --------------------------------------------------------------------------------------------

    def _read(self, node: Node, graph: Graph) -> None:
        if self.depth or self._calls:
            for entry in node.outputs:
                self.note(entry, None)  # of an earlier round
        context = Context(self, node, graph.opsets.get(node.domain, 1))
        shapes: Sequence[Sizes | None] = ()
        kinds: Sequence[Kind] = ()
        try:
            kinds = self._kinds(node, context)
            rule = rule_of(node)
            shapes = () if rule is None else context.bounded(rule(context))
        except Unknown as error:
            shapes = error.shapes
        except (Contradiction, DeclaredMismatch, RuleFailed):
            raise
        except FAILURES as error:
            if self._is_checked(node) and self._is_static(node):
                cause = f"its inputs and attributes do not go together ({type(error).__name__}: {error})"
                raise self._contradiction(cause, node) from error
        except TypeMismatch as error:
            if self._is_checked(node) and not isinstance(error, IndexOutside):
                raise self._contradiction(error.cause, node, error) from error
        for entry, sizes in zip(node.outputs, shapes, strict=False):
            self._known[entry] = sizes
        count = len(node.output_names)
        kinds = [*kinds, *[None] * (count - len(kinds))] if len(kinds) < count else kinds
        if shapes and node.op in VALUES and not node.domain:
            self._types[node] = tuple([TensorType(kind, None) if isinstance(kind, str) else kind for kind in kinds])
            self._propagate(node, context, shapes)
        names = enumerate(node.output_names)
        self._types[node] = tuple([self._recorded(node, i, kinds[i]) if name else None for i, name in names])

    def _kinds(self, node: Node, context: Context) -> Sequence[Kind]:
        """The types of the results; of tensors whose sizes have a rule the element types alone."""
        if node.subgraph is not None:
            return self._call(node, node.subgraph)
        mine = custom_op(node.op, node.domain)
        if mine is not None:
            return self._by_user(node, mine)
        if is_known(node):
            return self._by_meaning(node, context)
        rule = WITH_BODIES.get(str(node.op)) if not node.domain else None
        if rule is not None:
            return rule(context, lambda name, given: self._body(node, name, given))
        kinds = KINDS.get(f"{node.domain}.{node.op}" if node.domain else str(node.op))
        return by_schema(node, context.version, context.type) if kinds is None else allowed(context, kinds(context))

    def _is_checked(self, node: Node) -> bool:
        """True if a contradiction of the node is an error. In a branch it is none: some are never run."""
        is_asked = self.strict or (self.check_fits and not node.domain and node.op in ops("unchecked"))
        return is_asked and not self._branches

    def _is_static(self, node: Node) -> bool:
        """True if the sizes of all inputs are integers: a rule that fails then has met an op that is not valid."""
        known = [self.sizes(entry) for entry in node.reads]
        return all(sizes is not None and all(isinstance(size, int) for size in sizes) for sizes in known)

    def _contradiction(self, cause: str, node: Node, error: TypeMismatch | None = None) -> Contradiction:
        head = "types contradict each other: "
        where = (error.where if error is not None else None) or f"node {node.name!r} ({node.op})"
        return Contradiction(cause if cause.startswith(head) else head + cause, where=where, remedy=REMEDY)

    def _by_user(self, node: Node, op: Any) -> Sequence[Kind]:
        given = [None if entry is None else self.type_of(entry) for entry in node.inputs]
        where = f"node {node.name!r} ({node.op})"
        try:
            return op.infer(given, node.attrs, len(node.output_names))  # type: ignore[no-any-return]
        except TypeMismatch as error:
            if self.strict:
                raise Contradiction(error.cause, where=error.where or where, remedy=error.remedy) from error
            return ()
        except PartitaError:
            raise
        except Exception as error:
            raise RuleFailed(f"the op's shape rule failed: {type(error).__name__}: {error}", where=where) from error

    def _by_meaning(self, node: Node, context: Context) -> Sequence[Kind]:
        """The types of the results of an op of onnxruntime's, from its body in ONNX's ops."""
        types = [None if entry is None else self.type_of(entry) for entry in node.inputs]
        arrays = [self.array(entry) for entry in node.inputs]
        try:
            known = result_types(node, types, arrays)
            if known is not None:
                return known
            body = body_of(node, types, arrays)
        except NoBody as error:
            raise Unknown(str(error)) from error
        present = [entry for entry in node.inputs if entry is not None]
        for inner, outer in zip(body.inputs, present, strict=True):
            self._bind(inner[0], outer)
            self._types[inner] = (self.type_of(outer),)
        self._calls += 1
        try:
            self._read_all(body)
        except Contradiction as error:
            raise Contradiction(error.cause, where=context.where, remedy=error.remedy) from error
        finally:
            self._calls -= 1
        return self._handed_out(node, [self._result(entry) for entry in body.outputs])

    # -- bodies ----------------------------------------------------------------------------------------------

    def _call(self, node: Node, body: Graph) -> Sequence[Kind]:
        """Reads the body for these inputs, once for all calls with the same ones."""
        given = [self._result(entry) for entry in node.inputs]
        arrays = [_shown(self.array(entry)) for entry in node.inputs]
        key = tuple([
            (kind, sizes, None if elements is None else (elements.shape, tuple(elements.reshape(-1).tolist())),
             None if array is None else (array.dtype.str, array.shape, array.tobytes()))
            for (kind, sizes, elements), array in zip(given, arrays, strict=True)
        ])
        known = self.variants.setdefault(body, {})
        if key not in known:
            for inner, outer, array in zip(body.inputs, node.inputs, arrays, strict=True):
                self._bind_call(node, inner, outer, array)
            self._calls += 1
            self._read_all(body)
            known[key] = self._rebuilt(body), [self._result(entry) for entry in body.outputs]
            self._calls -= 1
        return self._handed_out(node, known[key][1])

    def _bind_call(self, call: Node, inner: Node, outer: NodeEntry | None, array: np.ndarray[Any, Any] | None) -> None:
        kind, sizes, elements = self._result(outer)
        try:
            kind, sizes = self._with_declared(inner[0], kind, sizes)
        except TypeMismatch as error:
            if self.check_declared:
                raise DeclaredMismatch(
                    f"the body's input {inner.name!r} is declared {inner[0].type} and gets {kind}",
                    where=f"node {call.name!r} ({call.op})",
                    remedy=DECLARED,
                ) from error
        self.note(inner[0], sizes, elements)
        self._types[inner] = (kind,)
        if array is not None:
            self._arrays[inner[0]] = array

    def _body(self, node: Node, name: str, given: Sequence[Type | None]) -> Sequence[Type | None]:
        """Reads a body of an If, Loop or Scan for first inputs of these types; the types of its results."""
        body = node.attrs[name]
        bound = captured(node, body)
        for variable, kind in zip(body.inputs[: len(body.inputs) - len(bound)], given, strict=True):
            self._bind_type(variable, kind if kind is not None else variable[0].type, variable[0].type, node)
        for variable, entry in zip(bound, node.captures, strict=True):
            self._bind_call(node, variable, entry, self.array(entry))
        is_branch = node.op == "If"
        self.depth, self._branches = self.depth + 1, self._branches + is_branch
        self._read_all(body)
        self.depth, self._branches = self.depth - 1, self._branches - is_branch
        self._bodies.setdefault(node, {})[name] = self._rebuilt(body)
        return [self.type_of(entry) for entry in body.outputs]

    def _result(self, entry: NodeEntry | None) -> Result:
        if entry is None:
            return None, None, None
        return self.type_of(entry), self.sizes(entry), self.elements(entry)

    def _handed_out(self, node: Node, results: Sequence[Result]) -> Sequence[Kind]:
        """The kinds of a call's results, whose sizes are noted: those that the body's values decide get symbols of this call."""
        given = {s for entry in node.reads for s in symbols_of(*(self.sizes(entry) or ()))}
        for entry, (_, sizes, elements) in zip(node.outputs, results, strict=False):
            fresh = {
                s: symbol(f"{node.name}: {s.name}", is_computed=True)
                for s in symbols_of(*(sizes or ())) - given
                if s.is_computed
            }
            own = None if sizes is None else tuple([replaced(size, fresh) for size in sizes])
            self.note(entry, own, None if fresh else elements)
        return [kind.dtype if isinstance(kind, TensorType) else kind for kind, _, _ in results]

    # -- types -----------------------------------------------------------------------------------------------

    def _bind_type(self, variable: Node, kind: Type | None, declared: Type | None = None, user: Node | None = None) -> None:
        entry = variable[0]
        sizes = self._sizes_of(kind, entry)
        if declared is not None:
            try:
                kind, sizes = self._with_declared(entry, kind, sizes)
            except TypeMismatch as error:
                if self.check_declared and user is not None:
                    raise DeclaredMismatch(
                        f"the body's input {variable.name!r} is declared {declared} and gets {kind}",
                        where=f"node {user.name!r} ({user.op})",
                        remedy=DECLARED,
                    ) from error
        self.note(entry, sizes)
        self._types[variable] = (kind,)

    def _recorded(self, node: Node, i: int, kind: Kind) -> Type | None:
        """The type of a result, merged with the declared one."""
        entry, declared = NodeEntry(node, i), node.output_types[i]
        sizes = self._known.get(entry)
        if isinstance(kind, str):
            if declared is None and sizes is not None:
                return self._tensor(kind, sizes)
            inferred: Type | None = TensorType(kind, None)
        elif kind is None and sizes is not None and isinstance(declared, TensorType):
            inferred = TensorType(declared.dtype, None)
        else:
            inferred = kind
            sizes = self._sizes_of(kind, entry) if kind is not None else sizes
        try:
            joined, sizes = self._with_declared(entry, inferred, sizes)
        except TypeMismatch as error:
            joined = self._tensor(inferred.dtype, sizes) if isinstance(inferred, TensorType) and sizes is not None else inferred
            if self.check_declared:
                raise DeclaredMismatch(
                    f"the value {entry.name!r} is declared {declared}, but {joined} is inferred",
                    where=f"node {node.name!r} ({node.op})",
                    remedy=DECLARED,
                ) from error
        self._known[entry] = sizes
        return joined

    def _with_declared(self, entry: NodeEntry, kind: Type | None, sizes: Sizes | None) -> tuple[Type | None, Sizes | None]:
        """A value's type and sizes merged with its declared type; TypeMismatch if they contradict each other.

        Integers go before symbols, and declared symbols before inferred ones."""
        declared = entry.type
        if not isinstance(kind, TensorType) or not isinstance(declared, TensorType):
            joined = merged(declared, kind)
            return (joined if sizes is None or not isinstance(joined, TensorType) else self._tensor(joined.dtype, sizes)), (
                self._sizes_of(joined, entry) if sizes is None else sizes
            )
        if declared.dtype != kind.dtype:
            raise TypeMismatch(f"{declared} and {kind} contradict each other")
        if sizes is None:
            return declared, self._sizes_of(declared, entry)
        if declared.shape is None:
            return self._tensor(kind.dtype, sizes), sizes
        if len(declared.shape) != len(sizes):
            raise TypeMismatch(f"{declared} and {kind} contradict each other")
        dims, new = list[Dim](), list[AnySize]()
        for dim, size in zip(declared.shape, sizes, strict=True):
            if isinstance(size, int):
                if isinstance(dim, int) and dim != size:
                    raise TypeMismatch(f"{declared} and {kind} contradict each other")
                dims.append(size)
            elif isinstance(dim, str):
                dims.append(dim)
                if dim not in self._named:
                    self._names.setdefault(size, dim)
                    self._named[dim] = size
            else:
                dims.append(self._dim(size) if dim is None else dim)
            new.append(dim if isinstance(dim, int) else size)
        shape = tuple(dims)
        return (declared if shape == declared.shape else TensorType(kind.dtype, shape)), tuple(new)

    def _tensor(self, dtype: str, sizes: Sizes) -> TensorType:
        """A tensor type of these sizes; equal ones are one object."""
        key = dtype, sizes
        known = self._made.get(key)
        if known is None:
            known = TensorType(dtype, [size if isinstance(size, int) else self._dim(size) for size in sizes])
            if not self._calls:
                self._made[key] = known
        return known

    def _dim(self, size: Size) -> Dim:
        """The name of a size that is not an integer."""
        name = self._names.get(size)
        if name is None:
            ((monomial, count), *others) = size.terms.items()
            one = monomial[0] if not others and count == 1 and len(monomial) == 1 else None
            if isinstance(one, Symbol) and not one.is_computed:
                name = one.name
            elif self._calls:
                return None
            else:
                name = self._new_name()
            self._names[size] = name
            self._named.setdefault(name, size)
        return name

    def _new_name(self) -> str:
        if self._taken is None:
            types = [kind for g in graphs_in(self._whole) for node in g.nodes for kind in node.output_types]
            self._taken = {name for kind in types for name in symbols_in(kind)}
            self._counter = 0
        while True:
            name = f"unk__{self._counter}"
            self._counter += 1
            if name not in self._taken:
                return name

    def _sizes_of(self, kind: Type | None, entry: NodeEntry) -> Sizes | None:
        """The sizes in a type; each unknown one has a symbol of its own."""
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        return tuple([size if isinstance(size, int) else self._size_of(size, entry, d) for d, size in enumerate(kind.shape)])

    def _size_of(self, name: str | None, entry: NodeEntry, d: int) -> AnySize:
        if name is None:
            return symbol(f"{entry.name}[{d}]", is_computed=True)
        size = self._named.get(name)
        if size is None:
            size = self._named[name] = symbol(name)
            self._names[size] = name
        return size

    def _rebuilt(self, graph: Graph) -> Graph:
        """The graph with the types of its values."""

        def visit(node: Node, rewriter: Rewriter) -> None:
            types = self._types.get(node)
            changes: dict[str, Any] = {}
            if types is not None and types != node.output_types:
                changes["output_types"] = types
            bodies = self._bodies.get(node)
            if bodies is not None and any(node.attrs[name] is not body for name, body in bodies.items()):
                changes["attrs"] = {**node.attrs, **bodies}
            rewriter.keep(node, rewriter.rebuilt(node, **changes))

        return rewrite(graph, visit)


def _shown(array: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    return array if array is not None and array.dtype.kind in "iub" and array.nbytes <= SHOWN else None
