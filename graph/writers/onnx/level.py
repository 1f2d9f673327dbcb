"""One graph, body or function while it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.cached_property import lazy
from partita.graph.errors import WriteError
from partita.graph.graph import Graph
from partita.graph.node import CONSTANT, Node, NodeEntry
from partita.graph.ops.schemas import OpSpec, spec_of
from partita.graph.protos import roundtrip
from partita.graph.protos.captures import free_of_node
from partita.graph.types import Array, TensorType, dtype_name
from partita.graph.writers.onnx.attributes import write_attribute
from partita.graph.writers.onnx.names import FileNames, bind_outputs
from partita.graph.writers.onnx.tensors import write_tensor

if TYPE_CHECKING:
    from partita.graph.writers.onnx.model import ModelWriter


SMALL = 1024
"""Maximum bytes of a constant that is written as an op if an initializer would be in the wrong place."""


DEEPEST = 31
"""Maximum nesting depth of bodies: protobuf reads messages that are 100 deep."""


class LevelWriter:
    """Writes one graph into a GraphProto (or the nodes of a function into a FunctionProto)."""

    def __init__(self, writing: ModelWriter, graph: Graph, proto: Any, outer: LevelWriter | None = None) -> None:
        self.writing = writing
        """State shared by the whole model."""
        self.graph = graph
        """The graph to be written."""
        self.proto = proto
        """The GraphProto that is filled."""
        self.outer = outer
        """The enclosing graph, if this is the body of a node."""
        self.depth: int = 0 if outer is None else outer.depth + 1
        """Number of enclosing graphs."""
        self.names: FileNames = FileNames(None if outer is None else outer.names)
        """The names of its values in the file."""
        self.typed: set[str] = set()
        """The names with types outside of value_info."""
        self.shared: dict[int, str] = {}
        """Names of the initializers (and, in a function, inputs) by identity of the array: bodies of calls may read them."""
        self.listed: list[Node] = []
        """The constants that a reader meets before all ops."""
        self.passing: set[str] = set()
        """Names of arrays that are only passed on to calls inside, and are not values of the graph."""
        self._specs: dict[tuple[str, str], OpSpec | None] = {}

    # whole graphs

    def write_main(self) -> None:
        """Writes the outermost graph."""
        graph, names = self.graph, self.names
        self.proto.name = graph.name or "net"
        bound = set()
        for node in graph.inputs:
            names.bind(NodeEntry(node, 0), names.fresh(node.output_names[0]))
            bound.add(NodeEntry(node, 0))
        outputs = bind_outputs(names, graph, bound, fixed=True)
        names.bind_rest(graph.nodes, bound)
        self._write_inputs(graph.inputs)
        self._write_nodes()
        self._write_outputs(outputs)
        order = self.order()
        if order is not None:
            item = self.writing.model.metadata_props.add()
            item.key, item.value = roundtrip.ORDER, roundtrip.to_json(order)

    def write_body(self, captures: tuple[NodeEntry, ...]) -> None:
        """Writes the body of a node, in which captured values have their outer names."""
        assert self.outer is not None
        graph, names, outer = self.graph, self.names, self.outer
        if self.depth > DEEPEST:
            cause = f"bodies nest more than {DEEPEST} deep: nobody could read the file"
            raise WriteError(cause, where=f"body {graph.name!r}")
        self.proto.name = graph.name or "body"
        count = len(graph.inputs) - len(captures)
        bound = set()
        for node, entry in zip(graph.inputs[count:], captures, strict=True):
            name = outer.names.of(entry)
            names.bind(NodeEntry(node, 0), name)
            bound.add(NodeEntry(node, 0))
            if node.output_types[0] != entry.type:
                self._write_value(self.proto.value_info, NodeEntry(node, 0), name, name)
        for node in graph.inputs[:count]:
            names.bind(NodeEntry(node, 0), names.fresh(node.output_names[0]))
            bound.add(NodeEntry(node, 0))
        outputs = bind_outputs(names, graph, bound, fixed=False)
        names.bind_rest(graph.nodes, bound)
        self.typed.update(outer.names.of(entry) for entry in captures)
        self._write_inputs(graph.inputs[:count])
        self._write_nodes()
        self._write_outputs(outputs)
        for key, value in graph.metadata.items():
            if key == roundtrip.DOC:
                self.proto.doc_string = value
            else:
                self.writing.note(self.proto, key, value)
        order = self.order()
        if order is not None:
            self.writing.note(self.proto, roundtrip.ORDER, roundtrip.to_json(order))

    def order(self) -> list[int] | None:
        """The positions of inputs and initializers among the nodes; None if they come first, which readers
        assume."""
        first = (*self.graph.inputs, *self.listed)
        if first == self.graph.nodes[: len(first)]:
            return None
        position = {node: i for i, node in enumerate(self.graph.nodes)}
        return [position[node] for node in first]

    def _write_inputs(self, inputs: tuple[Node, ...]) -> None:
        waiting = {}
        if self.outer is None:
            constants = [node for node in self.graph.nodes if node.is_constant and node.metadata]
            noted = ((node, node.metadata.get(roundtrip.INPUT)) for node in constants)
            waiting = {int(position): node for node, position in noted if position is not None and position.isdigit()}
        for node in inputs:
            while len(self.proto.input) in waiting:
                self._write_value(self.proto.input, NodeEntry(waiting.pop(len(self.proto.input)), 0))
            self.writing.describe(self._write_value(self.proto.input, NodeEntry(node, 0)), node)
        for position in sorted(waiting):
            self._write_value(self.proto.input, NodeEntry(waiting[position], 0))

    def _write_value(self, items: Any, entry: NodeEntry, name: str | None = None, own: str | None = None) -> Any:
        item = items.add()
        item.name = self.names.of(entry) if name is None else name
        own = entry.name if own is None else own
        self.typed.add(item.name)
        if item.name != own:
            self.writing.note(item, roundtrip.NAME, own)
        if entry.type is not None:
            self.writing.type(item.type, entry.type)
        return item

    def _write_outputs(self, outputs: list[tuple[str, NodeEntry | None]]) -> None:
        for (name, source), entry, own in zip(outputs, self.graph.outputs, self.graph.output_names, strict=True):
            if source is not None:
                self.write_identity(self.names.of(source), name)
            self._write_value(self.proto.output, entry, name, own)
        self._state_types()

    def write_identity(self, source: str, name: str) -> None:
        """Writes an Identity that only renames a value; the reader drops it."""
        proto = self.proto.node.add(op_type="Identity", input=[source], output=[name])
        self.writing.note(proto, roundtrip.OUTPUT, "")

    def _state_types(self) -> None:
        """Writes the types of intermediate values."""
        names, typed, items = self.names, self.typed, self.proto.value_info
        changed = names.changed
        for node in self.graph.nodes:
            if node.op == CONSTANT and node.value is not None:
                continue
            shown = changed.get(node, node.output_names) if changed else node.output_names
            for name, value_type in zip(shown, node.output_types, strict=True):
                if value_type is not None and name and name not in typed:
                    item = items.add()
                    item.name = name
                    self.writing.type(item.type, value_type)

    # nodes

    def _write_nodes(self) -> None:
        started = False
        for node in self.graph.nodes:
            if node.value is not None and node.op == CONSTANT:
                self._write_constant(node, started)
            elif node.op is not None:
                started = True
                self.write_op(node)

    def write_op(self, node: Node) -> None:
        """Writes an op or a call."""
        writing = self.writing
        if node.after:
            writing.check_control(node)
        if node.subgraph is not None:
            writing.functions.write_call(self, node)
            return
        of = self.names.of
        changed = self.names.changed.get(node)
        is_copy = _keeps_all(node)
        proto = self.proto.node.add(
            op_type="Identity" if is_copy else node.op, name=node.name, domain=node.domain or None,
            input=["" if entry is None else of(entry) for entry in node.inputs[: 1 if is_copy else None]],
            output=changed or node.output_names,
        )
        if changed:
            writing.note(proto, roundtrip.NAMES, roundtrip.to_json(node.output_names))
        if node.attrs and not is_copy:
            self.write_attributes(proto, node)
        if node.metadata or node.affinity is not None:
            writing.describe(proto, node)

    def write_attributes(self, proto: Any, node: Node) -> None:
        """Writes the attributes of an op, including its bodies."""
        spec = self._spec(node)
        kinds = {} if spec is None else spec.attributes
        where = f"node {node.name!r} ({node.op})"

        def body(target: Any, graph: Graph) -> None:
            LevelWriter(self.writing, graph, target, self).write_body(node.captures)

        for name, value in node.attrs.items():
            known = kinds.get(name)
            write_attribute(
                proto.attribute.add(), name, value, known.kind if known else None, where, body, self.writing.aside
            )
            if isinstance(value, np.ndarray):
                self.writing.need_dtype(value.dtype)
        if node.captures or any(isinstance(value, Graph) for value in node.attrs.values()):
            self._note_captures(proto, node)

    def _note_captures(self, proto: Any, node: Node) -> None:
        """Notes the captured values and their names in the bodies, unless they follow from the bodies."""
        outer = [self.names.of(entry) for entry in node.captures]
        own = [entry.name for entry in node.captures]
        count = len(own)
        inner = {key: [n.output_names[0] for n in body.inputs[len(body.inputs) - count :]] for key, body in node.bodies}
        natural = [name for name in free_of_node(proto) if name in self.names.own and name not in self.passing]
        if outer != natural or any(names != own for names in inner.values()):
            self.writing.note(proto, roundtrip.CAPTURES, roundtrip.Captures(tuple(outer), inner).to_json())

    def _spec(self, node: Node) -> OpSpec | None:
        key = (node.op or "", node.domain)
        if key not in self._specs:
            self._specs[key] = spec_of(*key, self.graph.opsets.get(node.domain, 1))
        return self._specs[key]

    # constants

    def _write_constant(self, node: Node, late: bool) -> None:
        """Writes a constant: as an initializer, an op or, if it is elided, an input."""
        assert node.value is not None
        self.writing.need_dtype(node.value.dtype)
        if self._elided(node.value):
            self._write_elided(node)
        elif self._stays(node, late):
            self.write_constant_node(node)
        else:
            self._write_initializer(node)

    def _stays(self, node: Node, late: bool) -> bool:
        """True if the constant is an op in the file: its node has a name of its own, or it is small and comes after an op."""
        assert node.value is not None
        named = node.name != node.output_names[0]
        small = node.value.nbytes <= SMALL
        return (named or (late and small)) and roundtrip.INPUT not in node.metadata and self.may_be_node(node.value)

    def _elided(self, array: Array) -> bool:
        return self.writing.elide_above is not None and array.nbytes > self.writing.elide_above

    def _write_elided(self, node: Node) -> None:
        if self.names.of(NodeEntry(node, 0)) in self.typed:
            return  # already among the inputs, as in the file it was read from
        items = self.proto.input if self.outer is None else self.proto.value_info
        self._write_value(items, NodeEntry(node, 0))

    def _write_initializer(self, node: Node) -> None:
        assert node.value is not None
        name = self.names.of(NodeEntry(node, 0))
        proto = self.proto.initializer.add()
        write_tensor(proto, node.value, name, self.writing.aside)
        self.shared.setdefault(id(node.value), name)
        self.listed.append(node)
        if name != node.output_names[0]:
            self.writing.note(proto, roundtrip.NAME, node.output_names[0])
        self.writing.describe(proto, node)

    def may_be_node(self, array: Array) -> bool:
        """True if the op Constant, at the graph's opset, supports such an array."""
        return dtype_name(array.dtype) in self._constant_dtypes

    @lazy
    def _constant_dtypes(self) -> frozenset[str]:
        version = self.graph.opsets.get("")
        spec = None if version is None else spec_of(CONSTANT, "", version)
        return frozenset() if spec is None else spec.outputs[0].types

    def write_constant_node(self, node: Node) -> None:
        """Writes a constant as an op."""
        changed = self.names.changed.get(node)
        proto = self.proto.node.add(op_type=CONSTANT, name=node.name, output=changed or node.output_names)
        attribute = proto.attribute.add(name="value", type=4)
        assert node.value is not None
        write_tensor(attribute.t, node.value, aside=self.writing.aside)
        if changed:
            self.writing.note(proto, roundtrip.NAMES, roundtrip.to_json(node.output_names))
        self.writing.describe(proto, node)

    # the constant is an input of calls

    def array_name(self, array: Array, hint: str) -> str:
        """The name of an array that the body of a call cannot hold."""
        if id(array) in self.shared:
            return self.shared[id(array)]
        return self.add_array(array, hint) if self.outer is None else self.outer.array_name(array, hint)

    def add_array(self, array: Array, hint: str) -> str:
        """Adds a new initializer with the array."""
        name = self.writing.functions.fresh(hint)
        self.shared[id(array)] = name
        if self._elided(array):
            item = self.proto.input.add()
            item.name = name
            self.writing.type(item.type, TensorType(dtype_name(array.dtype), array.shape))
            return name
        proto = self.proto.initializer.add()
        write_tensor(proto, array, name, self.writing.aside)
        self.writing.need_dtype(array.dtype)
        self.writing.note(proto, roundtrip.HOISTED, "")
        return name


def _keeps_all(node: Node) -> bool:
    """True for a Squeeze with empty axes: the identity here and in ONNX, but onnxruntime removes all dimensions of 1."""
    if node.op != "Squeeze" or node.domain:
        return False
    axes = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else node.attrs.get("axes")
    return axes is not None and np.size(axes) == 0
