"""Writes calls as model-local functions: callee before caller, equal bodies share one."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from partita.graph.build import CALL_DOMAIN
from partita.graph.call_record import BodyRecord, CallRecord, canonical, names_inside
from partita.graph.errors import WriteError
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import CONSTANT, Node, NodeEntry
from partita.graph.protos import roundtrip
from partita.graph.types import Array
from partita.graph.writers.onnx.attributes import write_attribute
from partita.graph.writers.onnx.level import SMALL, LevelWriter

if TYPE_CHECKING:
    from partita.graph.writers.onnx.model import ModelWriter



class Functions:
    """The functions of one model."""

    def __init__(self, writing: ModelWriter, graph: Graph) -> None:
        self.writing = writing
        """The model."""
        self.uses: Counter[int] = Counter()
        """Number of constants, in the graph and all bodies, that hold each array."""
        self.domains: set[str] = set()
        """The domains of all ops, in the graph and all bodies."""
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}
        self._made: dict[tuple[str, bytes], Any] = {}
        self._taken: defaultdict[str, set[str]] = defaultdict(set)
        self._bodies: dict[tuple[int, str, tuple[str, ...]], FunctionWriter] = {}
        self._has_calls = False
        self._survey(graph, set())

    def _survey(self, graph: Graph, seen: set[int]) -> None:
        """Counts the uses of arrays; collects all domains, and all names, so that new initializers shadow nothing."""
        if id(graph) in seen:
            return
        seen.add(id(graph))
        for node in graph.nodes:
            if node.value is not None:
                self.uses[id(node.value)] += 1
            elif node.op is not None:
                self.domains.add(node.domain)
            if node.attrs or node.subgraph is not None:
                self._has_calls |= node.subgraph is not None
                for _, body in node.bodies:
                    self._survey(body, seen)
        if self._has_calls:
            self._names.update(name for node in graph.nodes for name in node.output_names)
            self._names.update(graph.output_names)

    def fresh(self, name: str) -> str:
        """A name that no value of the model has."""
        return unique(name, self._names, self._counts)

    def write_call(self, level: LevelWriter, node: Node) -> None:
        """Writes the call, and its function unless an equal one exists."""
        assert node.subgraph is not None and node.op is not None
        if len(node.inputs) != len(node.subgraph.inputs):
            raise WriteError(
                f"the call has {len(node.inputs)} inputs and its body {len(node.subgraph.inputs)}",
                where=f"call {node.name!r}",
                remedy="Connect the call before saving",
            )
        body = self._body(node)
        function, names = self._shared(node, body)
        proto = level.proto.node.add(op_type=function.name, name=node.name, domain=function.domain or None)
        proto.input.extend(["" if entry is None else level.names.of(entry) for entry in node.inputs])
        proto.input.extend([level.array_name(array, hint) for array, hint in body.arrays])
        for name, value in node.attrs.items():
            write_attribute(proto.attribute.add(), name, value, None, f"call {node.name!r}", _no_body, self.writing.aside)
        shown = level.names.changed.get(node, node.output_names)
        proto.output.extend(body.direct(shown))
        record = CallRecord(node.op, node.domain, tuple(zip(node.output_names, shown, strict=True)), body.record(names))
        if record != _plain_record(function, proto):
            self.writing.note(proto, roundtrip.CALL, record.to_json())
        else:
            _trim(proto)
        self.writing.describe(proto, node)
        self._go_around(level, node, body, shown, list(proto.input), list(proto.output))

    def _body(self, node: Node) -> FunctionWriter:
        assert node.subgraph is not None
        key = (id(node.subgraph), node.domain, tuple(node.attrs))
        if key not in self._bodies:
            self._bodies[key] = FunctionWriter(self.writing, node)
        return self._bodies[key]

    def _shared(self, node: Node, body: FunctionWriter) -> tuple[Any, tuple[str, ...] | None]:
        """The function in the file, and the names inside the body if they differ from those in the function."""
        key = (node.domain, canonical(body.proto))
        known = self._made.get(key)
        if known is None:
            title = node.name if node.domain == CALL_DOMAIN else node.op or node.name
            body.proto.name = self._title(node.domain, title)
            known = self._made[key] = self.writing.model.functions.add()
            known.CopyFrom(body.proto)
            return known, None
        mine, theirs = names_inside(body.proto), names_inside(known)
        return known, None if mine == theirs else (*mine[0], *mine[1])

    def _title(self, domain: str, wanted: str) -> str:
        """A unique name for a function in its domain."""
        return unique(wanted, self._taken[domain])

    def _go_around(
        self, level: LevelWriter, node: Node, body: FunctionWriter, shown: Any, inputs: list[str], outputs: list[str]
    ) -> None:
        """Writes outputs that the function does not compute, or has under another name, as Identity."""
        for (_, kind, which), name in zip(body.outputs, shown, strict=True):
            if not name or (kind == "output" and outputs[which] == name):
                continue
            source = outputs[which] if kind == "output" else inputs[which + (kind == "constant") * len(node.inputs)]
            if not source:
                raise WriteError(f"the output {name!r} is an input that is absent", where=f"call {node.name!r}")
            level.write_identity(source, name)


class FunctionWriter(LevelWriter):
    """Writes the body of a call as a FunctionProto."""

    def __init__(self, writing: ModelWriter, node: Node) -> None:
        import onnx

        assert node.subgraph is not None
        super().__init__(writing, node.subgraph, onnx.FunctionProto())
        self.arrays: list[tuple[Array, str]] = []
        """The arrays that the call passes, each with a suggested name."""
        self.constants: list[tuple[str, str] | None] = []
        """Names of each array's constant in the body; None for a constant of a call inside the body."""
        self.outputs: list[tuple[str, str, int]] = []
        """Per output its name, its kind (output, input or constant), and its index among those."""
        self._write(node)

    def _write(self, node: Node) -> None:
        graph, names = self.graph, self.names
        for variable in graph.inputs:
            names.bind(NodeEntry(variable, 0), names.fresh(variable.output_names[0]))
        names.bind_rest([n for n in graph.nodes if not n.is_variable], set())
        self.proto.domain = node.domain
        self.proto.input.extend([names.of(NodeEntry(variable, 0)) for variable in graph.inputs])
        self.proto.attribute.extend(node.attrs)
        self._write_nodes()
        self._find_outputs()
        self._state_inputs()
        self._state_types()
        if self.proto.value_info:
            self.writing.need(10)
        used = {inner.domain for body in graphs_in(graph) for inner in body.nodes if inner.is_op}
        for domain, version in {**graph.opsets, **dict.fromkeys(sorted(used - graph.opsets.keys()), 1)}.items():
            item = self.proto.opset_import.add()
            item.domain, item.version = domain, version

    def _state_inputs(self) -> None:
        for node in self.graph.inputs:
            if node.affinity is not None or node.metadata:
                self.writing.describe(self._write_value(self.proto.value_info, NodeEntry(node, 0)), node)

    def _write_constant(self, node: Node, late: bool) -> None:
        array = node.value
        assert array is not None
        once = self.writing.functions.uses[id(array)] == 1
        if array.nbytes <= SMALL and once and self.may_be_node(array):
            self.write_constant_node(node)
            return
        name = self.names.of(NodeEntry(node, 0))
        self.shared.setdefault(id(array), name)
        self.proto.input.append(name)
        self.arrays.append((array, name))
        self.constants.append((node.name, node.output_names[0]))
        self.listed.append(node)

    def add_array(self, array: Array, hint: str) -> str:
        """Adds an input with an array for a call inside."""
        name = self.shared[id(array)] = self.names.fresh(hint)
        self.passing.add(name)
        self.proto.input.append(name)
        self.arrays.append((array, hint))
        self.constants.append(None)
        return name

    def _find_outputs(self) -> None:
        """Collects the outputs. Those that are inputs or passed constants bypass the function, as do repeated ones."""
        inputs = {node: i for i, node in enumerate(self.graph.inputs)}
        brought = {noted[0]: i for i, noted in enumerate(self.constants) if noted is not None}
        numbers: dict[str, int] = {}
        for entry, own in zip(self.graph.outputs, self.graph.output_names, strict=True):
            if entry.node in inputs:
                self.outputs.append((own, "input", inputs[entry.node]))
            elif entry.node.op == CONSTANT and entry.node.name in brought:
                self.outputs.append((own, "constant", brought[entry.node.name]))
            else:
                name = self.names.of(entry)
                self.outputs.append((own, "output", numbers.setdefault(name, len(numbers))))
        self.proto.output.extend(numbers)

    def direct(self, shown: Any) -> list[str]:
        """The caller's names of the function's own outputs."""
        first: dict[int, str] = {}
        for (_, kind, which), name in zip(self.outputs, shown, strict=True):
            if kind == "output" and (name or which not in first) and not first.get(which):
                first[which] = name
        return [first[which] for which in range(len(self.proto.output))]

    def record(self, names: tuple[str, ...] | None) -> BodyRecord:
        """The record of the body for the file."""
        graph = self.graph
        metadata = tuple(sorted(graph.metadata.items()))
        order = self.order()
        return BodyRecord(
            graph.name, len(graph.inputs), tuple(self.constants), tuple(self.outputs), names, metadata,
            None if order is None else tuple(order),
        )


def _plain_record(function: Any, proto: Any) -> CallRecord:
    """The record that the reader makes of a function by another writer."""
    outputs = tuple([(name, "output", i) for i, name in enumerate(function.output)])
    body = BodyRecord(function.name, len(function.input), outputs=outputs)
    return CallRecord(function.name, function.domain, tuple([(name, name) for name in proto.output]), body)


def _trim(proto: Any) -> None:
    """Removes absent names at the end."""
    for names in (proto.input, proto.output):
        while names and not names[-1]:
            names.pop()


def _no_body(proto: Any, graph: Any) -> None:
    raise WriteError("a call cannot have a graph as an attribute", where="call")
