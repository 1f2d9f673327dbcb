"""One graph, body or function of a model while it is read: its values by name, its nodes in file order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.node import CONSTANT, NOTHING, Node, NodeEntry, frozen_attrs
from partita.graph.ops.schemas import OTHER_VERSION, OpSpec
from partita.graph.protos import roundtrip
from partita.graph.protos.captures import GRAPH_KIND, all_names, free_of_node
from partita.graph.readers.onnx.attributes import constant_value, read_attributes
from partita.graph.readers.onnx.node_order import restore_order, sorted_nodes, undefined_value
from partita.graph.readers.onnx.older_ops import is_older, older_op
from partita.graph.readers.onnx.reading import PLAIN_KINDS, Reading
from partita.graph.readers.onnx.source import plain_domain, utf8
from partita.graph.readers.onnx.tensors import read_dense, read_tensor
from partita.graph.types import Array, TensorType, Type, dtype_name


class Level:
    """One graph of the model. It reads values of enclosing graphs only as captures."""

    def __init__(self, reading: Reading, params: Mapping[str, Any] | None = None, outer: Level | None = None) -> None:
        self.reading = reading
        """State shared by the whole model."""
        self.params = params
        """The attributes of the enclosing function, if any, with the values from the call."""
        self.outer = outer
        """The enclosing graph, if this is a body."""
        self.values: dict[str, NodeEntry] = {}
        """The values so far, by name in the file."""
        self.arrays: dict[str, Array] = {}
        """Constants that the file holds outside of a call whose body cannot hold them."""
        self.types: dict[str, Type] = {}
        """The types in the file."""
        self.nodes: list[Node] = []
        """The nodes so far."""
        self.local: dict[str, Any] = {}
        """The names of variables and initializers."""
        self.protos: Any = ()
        """The NodeProtos of this graph."""
        self.input_positions: dict[str, int] = {}
        """The positions of constants that are also among the file's inputs."""
        self.renamed = False
        """True if a value has another name than in the file."""
        self._file_names: set[str] | None = None

    # variables and constants

    def add_variable(self, name: str, proto: Any, where: str, declared: Type | None = None) -> Node:
        """A variable, described by a ValueInfoProto if there is one; `declared` overrides the file's type."""
        metadata, own = self.metadata(proto) if proto is not None else (NOTHING, NOTHING)
        title = own.get(roundtrip.NAME, name)
        return self._add_variable(name, title, declared or self.types.get(name), where, metadata, own.get(roundtrip.AFFINITY))

    def _add_variable(
        self, name: str, title: str, declared: Type | None, where: str, metadata: Mapping[str, str] = NOTHING,
        affinity: str | None = None,
    ) -> Node:
        self.renamed |= title != name
        node = Node(title, None, output_names=(title,), output_types=(declared,), metadata=metadata, affinity=affinity)
        self._add_local(node, name, where)
        return node

    def add_constant(
        self, name: str, array: Array, where: str, own: str | None = None, title: str | None = None,
        metadata: Mapping[str, str] = NOTHING,
    ) -> Node:
        """Adds a constant.

        `own` is its value's name if that differs from the one in the file; `title` is the node's name."""
        own = name if own is None else own
        self.renamed |= own != name
        types = (TensorType(dtype_name(array.dtype), array.shape),)
        node = Node(
            own if title is None else title, CONSTANT, output_names=(own,), output_types=types, value=array, metadata=metadata
        )
        self._add_local(node, name, where)
        return node

    def _add_local(self, node: Node, name: str, where: str) -> None:
        if not name:
            raise ReadError("a value has no name", where=where)
        if name in self.values or node.name in self.local:
            raise ReadError(f"the value {name!r} is defined twice", where=where)
        self.values[name] = NodeEntry(node, 0)
        self.local[node.name] = None
        self.nodes.append(node)

    # ops

    def read_nodes(self, protos: Any) -> None:
        """Reads all NodeProtos, in file order or sorted."""
        self.protos = protos = sorted_nodes(protos) if self.reading.sorts else protos
        for proto in protos:
            self.read_node(proto)

    def read_node(self, proto: Any) -> None:
        """Reads one NodeProto."""
        reading = self.reading
        op, domain = proto.op_type, plain_domain(proto.domain)
        if reading.functions and (domain, op, proto.overload) in reading.functions:
            reading.functions[domain, op, proto.overload].call(self, proto)
            return
        version = None if domain else reading.opsets.get("")
        if version is not None and is_older(op, version):
            cause = f"ai.onnx version {version} has no such op; it is read as onnxruntime reads it"
            reading.note(cause, reading.where(proto), OTHER_VERSION)
            for part in older_op(self, proto):
                self.read_node(part)
            return
        spec = reading.spec(op, domain, proto)
        metadata, own = self.metadata(proto) if proto.metadata_props or proto.doc_string else (NOTHING, NOTHING)
        if own and roundtrip.OUTPUT in own and op == "Identity" and len(proto.input) == len(proto.output) == 1:
            if proto.output[0] not in self.values:
                self.define(proto.output[0], self.value(proto.input[0], proto), proto)
            return
        if op == "Squeeze" and not domain:
            proto = self._squeeze(proto)
        inputs = self.inputs(proto, proto.input)
        outputs = tuple(proto.output)
        if spec is not None:
            self._check_counts(proto, spec, len(inputs), len(outputs))
        if op == CONSTANT and not domain:
            self._read_constant(proto, spec, metadata, own)
            return
        attrs, captures = self._attributes(proto, spec, own)
        self._add_op(proto, op, domain, inputs, outputs, attrs, captures, metadata, own)

    def _squeeze(self, proto: Any) -> Any:
        """The NodeProto of a Squeeze, without axes that are present but empty."""
        value = self.value(proto.input[1], proto).node.value if len(proto.input) > 1 and proto.input[1] else None
        listed = [item for item in proto.attribute if item.name == "axes" and not item.ref_attr_name]
        if (value is None or value.size) and not any(not item.ints for item in listed):
            return proto
        cause = "its axes are given and empty; all dimensions of size 1 are removed, as onnxruntime does"
        self.reading.note(cause, self.reading.where(proto), "Leave the axes out")
        bare = type(proto)()
        bare.CopyFrom(proto)
        del bare.input[1:], bare.attribute[:]
        return bare

    def _attributes(
        self, proto: Any, spec: OpSpec | None, own: Mapping[str, str]
    ) -> tuple[Mapping[str, Any], tuple[NodeEntry, ...]]:
        """The attributes and the captures of the bodies among them. Nodes with equal plain attributes share them."""
        reading = self.reading
        given = proto.attribute
        if spec is None or self.params is not None or [a for a in given if a.type not in PLAIN_KINDS]:
            captured, variables = self._captured(proto, own)
            attributes = read_attributes(
                reading, proto, spec, self.params,
                lambda body, key: self._read_body(proto, body, captured, variables, f"{reading.where(proto)}, body {key!r}"),
            )
            return frozen_attrs(attributes), tuple([self.values[name] for name in captured])
        key = (id(spec), *[a.SerializeToString() for a in given])
        known = reading.attributes.get(key)
        if known is None:
            known = reading.attributes[key] = frozen_attrs(read_attributes(reading, proto, spec, None, self.no_body))
        return known, ()

    def _add_op(
        self, proto: Any, op: str, domain: str, inputs: tuple[NodeEntry | None, ...], names: tuple[str, ...],
        attrs: Mapping[str, Any], captures: tuple[NodeEntry, ...], metadata: Mapping[str, str], own: Mapping[str, str],
    ) -> None:
        """Adds the node of a NodeProto and defines its outputs."""
        shown = self.own_names(proto, names, own)
        types = tuple(map(self.types.get, names)) if self.types else (None,) * len(names)
        node = Node(
            self.name(proto, shown), op, inputs, attrs, shown, types, domain, captures,
            metadata=metadata, affinity=own.get(roundtrip.AFFINITY),
        )
        self.nodes.append(node)
        values = self.values
        for i, name in enumerate(names):
            if name in values:
                raise self._twice(name, proto)
            if name:
                values[name] = NodeEntry(node, i)

    def name(self, proto: Any, outputs: tuple[str, ...]) -> str:
        """The node's name in the file, or one after its first output."""
        first = next(filter(None, outputs), "") or proto.op_type.lower()
        return self.reading.names.name(utf8(proto.name, self.reading.title), first, self.local)

    def own_names(self, proto: Any, names: tuple[str, ...], own: Mapping[str, str]) -> tuple[str, ...]:
        """The output names in the graph, which may differ from those in the file."""
        if not own or roundtrip.NAMES not in own:
            return names
        self.renamed = True
        return tuple(roundtrip.name_list(own[roundtrip.NAMES], len(names), self.reading.where(proto)))

    def inputs(self, proto: Any, names: Any) -> tuple[NodeEntry | None, ...]:
        """The values of these names, which are inputs of the NodeProto."""
        values = self.values
        try:
            return tuple([values[name] if name else None for name in names])
        except KeyError as missing:
            raise undefined_value(self, proto, missing.args[0]) from None

    def value(self, name: str, proto: Any) -> NodeEntry:
        """The value of that name."""
        if name not in self.values:
            raise undefined_value(self, proto, name)
        return self.values[name]

    def array(self, name: str, proto: Any) -> Array:
        """The constant of that name, here or in an enclosing graph."""
        level: Level | None = self
        while level is not None:
            entry = level.values.get(name)
            array = entry.node.value if entry is not None else level.arrays.get(name)
            if array is not None:
                return array
            level = level.outer
        raise roundtrip.damaged(roundtrip.CALL, self.reading.where(proto))

    def define(self, name: str, entry: NodeEntry, proto: Any) -> None:
        """Defines the name as this value."""
        if name in self.values:
            raise self._twice(name, proto)
        self.values[name] = entry

    def _twice(self, name: str, proto: Any) -> ReadError:
        where = self.reading.where(proto)
        return ReadError(f"the value {name!r} is defined twice", where=where, remedy="Rename one of the two")

    def metadata(self, proto: Any) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The metadata of a node, value or graph in the file, and separately the notes of Partita's writer."""
        if not (proto.metadata_props or proto.doc_string):
            return NOTHING, NOTHING
        where = self.reading.title
        noted = {utf8(item.key, where): utf8(item.value, where) for item in proto.metadata_props}
        own = {key: noted.pop(key) for key in [k for k in noted if k in roundtrip.ALL]}
        if proto.doc_string:
            noted[roundtrip.DOC] = utf8(proto.doc_string, where)
        return frozen_attrs(noted), own

    def _check_counts(self, proto: Any, spec: OpSpec, inputs: int, outputs: int) -> None:
        if spec.min_inputs <= inputs <= spec.max_inputs and spec.min_outputs <= outputs <= spec.max_outputs:
            return
        for what, count, low, high in (
            ("inputs", inputs, spec.min_inputs, spec.max_inputs),
            ("outputs", outputs, spec.min_outputs, spec.max_outputs),
        ):
            if not low <= count <= high:
                wanted = str(low) if low == high else f"{low} or more" if high > 10_000 else f"{low} to {high}"
                raise ReadError(f"{spec.title} has {wanted} {what}, not {count}", where=self.reading.where(proto))

    def _read_constant(self, proto: Any, spec: OpSpec | None, metadata: Mapping[str, str], own: Mapping[str, str]) -> None:
        names = tuple(proto.output)
        shown = self.own_names(proto, names, own)
        array = constant_value(self.reading, proto, spec, self.params, self.no_body)
        value_type = TensorType(dtype_name(array.dtype), array.shape)
        node = Node(
            self.name(proto, shown), CONSTANT, (), NOTHING, shown, (value_type,), value=array, metadata=metadata,
            affinity=own.get(roundtrip.AFFINITY),
        )
        self.nodes.append(node)
        self.define(names[0], NodeEntry(node, 0), proto)

    def no_body(self, proto: Any, name: str) -> Any:
        """Raises an error: the reader of bodies for nodes that cannot have one."""
        raise ReadError(f"the attribute {name!r} is a graph", where=self.reading.title)

    def _names_in_file(self) -> set[str]:
        """All names of values in the file, those of enclosing graphs and those added by `free_name` included."""
        if self.outer is not None:
            return self.outer._names_in_file()
        if self._file_names is None:
            self._file_names = {*self.values, *all_names(self.protos)}
        return self._file_names

    def free_name(self, name: str) -> str:
        """This name, with a number if the file has it already. It is reserved from then on."""
        taken = self._names_in_file()
        count, free = 0, name
        while free in taken:
            count += 1
            free = f"{name}_{count}"
        taken.add(free)
        return free

    # bodies

    def _captured(self, proto: Any, own: Mapping[str, str]) -> tuple[list[str], dict[str, list[str]]]:
        """The outer values that the node's bodies read, and the bodies' own names of them if they differ."""
        if own and roundtrip.CAPTURES in own:
            noted = roundtrip.captures(own[roundtrip.CAPTURES], self.reading.where(proto))
            for name in noted.outer:
                self.value(name, proto)
            return list(noted.outer), dict(noted.inner)
        if not any(attribute.type == GRAPH_KIND for attribute in proto.attribute):
            return [], {}
        return [name for name in free_of_node(proto) if name in self.values], {}

    def _read_body(
        self, node: Any, body: Any, captured: list[str], variables: dict[str, list[str]], where: str
    ) -> Graph:
        level = Level(self.reading, self.params, self)
        if node.op_type == "Loop" and not plain_domain(node.domain):
            body = _with_scalar_iteration(self, node, body)
        return level.read_graph(body, [(name, self.values[name]) for name in captured], where, variables)

    def read_graph(
        self, proto: Any, captured: list[tuple[str, NodeEntry]], where: str, variables: Mapping[str, list[str]] = NOTHING
    ) -> Graph:
        """The body in a GraphProto; its last inputs are the captured values."""
        self.read_types(proto)
        formals = {item.name for item in proto.input}
        inputs = [self.add_variable(item.name, item, where) for item in proto.input]
        own = variables.get(where.rsplit("'", 2)[-2]) or [entry.name for _, entry in captured]
        if len(own) != len(captured):
            raise ReadError(f"the note {roundtrip.CAPTURES!r} does not fit", where=where)
        for (name, entry), title in zip(captured, own, strict=True):
            inputs.append(self._add_variable(name, title, self.types.get(name, entry.type), where))
        self.read_initializers(proto, formals, where)
        self.read_nodes(proto.node)
        outputs = self.outputs([item.name for item in proto.output], where)
        metadata, noted = self.metadata(proto)
        names = [roundtrip.own_name(item) or item.name for item in proto.output]
        return self.finish(outputs, inputs, proto.name or "body", names, metadata, roundtrip.order(noted))

    def read_types(self, proto: Any) -> None:
        """Reads the types that a GraphProto declares for its values."""
        for items in (proto.value_info, proto.output, proto.input):
            self.read_value_info(items)

    def read_value_info(self, items: Any) -> None:
        """Reads the types in ValueInfoProtos."""
        for item in items:
            if item.HasField("type") and not (item.metadata_props and roundtrip.is_inferred(item)):
                value_type = self.reading.types.read(item.type, f"{self.reading.title}, value {item.name!r}")
                if value_type is not None:
                    self.types[item.name] = value_type

    def read_initializers(self, proto: Any, skipped: set[str], where: str, large: Mapping[Any, Array] = NOTHING) -> None:
        """Reads the initializers of a GraphProto; `large` has the data of those that were read separately, by index."""
        folder = self.reading.folder
        for i, item in enumerate(proto.initializer):
            if item.name not in skipped:
                title = f"{where}, initializer {item.name!r}"
                self._read_initializer(item, read_tensor(item, folder, title, large.get(i)), title)
        for item in proto.sparse_initializer:
            title = f"{where}, sparse initializer {item.values.name!r}"
            self.add_constant(item.values.name, read_dense(item, folder, title), title)

    def _read_initializer(self, item: Any, array: Array, where: str) -> None:
        metadata, noted = self.metadata(item)
        if roundtrip.HOISTED in noted:
            self.arrays[item.name] = array
            return
        position = self.input_positions.get(item.name)
        if position is not None:
            metadata = frozen_attrs({roundtrip.INPUT: str(position), **metadata})
        node = self.add_constant(item.name, array, where, noted.get(roundtrip.NAME), metadata=metadata)
        node.affinity = noted.get(roundtrip.AFFINITY)
        stated, held = self.types.get(item.name), node.output_types[0]
        if isinstance(stated, TensorType) and isinstance(held, TensorType) and not _may_be(stated, held):
            cause = f"it is declared as {stated} but holds {held}; the latter is used"
            self.reading.note(cause, where, "Correct the declared type, or leave it out")

    def outputs(self, names: list[str], where: str) -> list[NodeEntry]:
        """The values that the graph returns."""
        for name in names:
            if name not in self.values:
                raise ReadError(f"the output {name!r} is never defined", where=where)
        return [self.values[name] for name in names]

    def finish(
        self, outputs: list[NodeEntry], inputs: list[Node], name: str, output_names: list[str], metadata: Mapping[str, str],
        order: Sequence[int] | None,
    ) -> Graph:
        """The graph of all parts; `order` has the positions of its inputs and constants among the nodes."""
        for node in self.nodes:
            for value in node.output_names:
                if not isinstance(value, str):
                    utf8(value, self.reading.title)
        utf8(name, self.reading.title)
        if self.renamed:
            roundtrip.check_unique(self.nodes, self.reading.title)
        if order is not None:
            restore_order(self.nodes, order)
        return Graph(
            outputs, inputs, name, self.reading.opsets, output_names=output_names, nodes=self.nodes, metadata=metadata
        )


def _may_be(stated: TensorType, held: TensorType) -> bool:
    """True if a value of type `held` may be declared as `stated`."""
    if stated.dtype != held.dtype or stated.shape is None or held.shape is None:
        return stated.dtype == held.dtype
    sizes = zip(stated.shape, held.shape, strict=False)
    return len(stated.shape) == len(held.shape) and all(not isinstance(size, int) or size == own for size, own in sizes)


def _with_scalar_iteration(level: Level, node: Any, body: Any) -> Any:
    """The GraphProto of a Loop's body with a scalar iteration number, which is reshaped to the declared vector of one element;
    onnxruntime accepts such bodies."""
    if not body.input or len(body.input[0].type.tensor_type.shape.dim) != 1:
        return body
    from onnx.helper import make_node
    from onnx.numpy_helper import from_array

    changed = type(body)()
    changed.CopyFrom(body)
    turn = changed.input[0]
    cause = f"the body declares {turn.name!r} as a vector, but a Loop passes a scalar; it is reshaped"
    level.reading.note(cause, level.reading.where(node), "Declare a scalar, with no dimension")
    name, shape = level.free_name(turn.name), level.free_name(f"{turn.name}_shape")
    nodes = [
        make_node("Constant", [], [shape], value=from_array(np.ones(1, np.int64))),
        make_node("Reshape", [name, shape], [turn.name]),
        *changed.node,
    ]
    turn.name = name
    del turn.type.tensor_type.shape.dim[:], changed.node[:]
    changed.node.extend(nodes)
    return changed
