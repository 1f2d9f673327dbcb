"""Model-local functions: each call becomes a node with a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.graph.call_record import BodyRecord, CallRecord, record_from_json, with_names
from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.schemas import ONNX_DOMAINS, spec_of
from partita.graph.protos import roundtrip
from partita.graph.protos.captures import GRAPH_KIND
from partita.graph.readers.onnx.attributes import read_attributes
from partita.graph.readers.onnx.level import Level
from partita.graph.readers.onnx.reading import Reading
from partita.graph.readers.onnx.source import plain_domain, read_opsets, utf8
from partita.graph.types import Array

DEEPEST = 100
"""Maximum depth of function calls."""


def read_functions(reading: Reading, protos: Any) -> None:
    """Registers the model's functions; opsets that only they import are imported for the whole model."""
    for proto in protos:
        function = Function(reading, proto)
        key = (plain_domain(proto.domain), proto.name, proto.overload)
        if not proto.name or reading.functions.setdefault(key, function) is not function:
            raise ReadError("the function is defined twice" if proto.name else "a function has no name", where=function.title)
    for function in reading.functions.values():
        for domain, version in {plain_domain(function.proto.domain): 1, **function.opsets}.items():
            reading.opsets.setdefault(domain, version)


class Function:
    """One function, and the bodies made from it so far."""

    def __init__(self, reading: Reading, proto: Any) -> None:
        self.reading = reading
        """The model."""
        self.proto = proto
        """The FunctionProto."""
        self.title = f"{reading.title}, function {proto.name!r}"
        """The function's name in messages."""
        for name in (proto.name, proto.domain, *proto.input, *proto.output, *proto.attribute):
            utf8(name, self.title)
        self.opsets = read_opsets(proto.opset_import, self.title, reading.note)
        """The opset versions that it is written for."""
        self._defaults = {item.name: item for item in proto.attribute_proto}
        self._bodies: dict[Any, tuple[Graph, tuple[Array, ...]]] = {}
        self._open = False

    def call(self, level: Level, proto: Any) -> None:
        """Adds the call in a NodeProto to the level."""
        where = self.reading.where(proto)
        if len(proto.input) > len(self.proto.input) or len(proto.output) > len(self.proto.output):
            raise ReadError(
                f"the call has {len(proto.input)} inputs and {len(proto.output)} outputs, and its function "
                f"{len(self.proto.input)} and {len(self.proto.output)}",
                where=where,
            )
        metadata, own = level.metadata(proto)
        record = self._record(proto, own, where)
        count = record.body.inputs
        entries = level.inputs(proto, proto.input[:count])
        hoisted = tuple([level.array(name, proto) for name in proto.input[count:]])
        body = self._body(record.body, hoisted, self._params(level, proto), where)
        attrs = read_attributes(self.reading, proto, None, level.params, level.no_body)
        names = tuple([name for name, _ in record.outputs])
        types = [level.types.get(file) or entry.type for (_, file), entry in zip(record.outputs, body.outputs, strict=True)]
        node = Node(
            level.name(proto, names), record.op, entries + (None,) * (count - len(entries)), frozen_attrs(attrs), names,
            tuple(types), record.domain, subgraph=body, metadata=metadata, affinity=own.get(roundtrip.AFFINITY),
        )
        level.nodes.append(node)
        for i, (name, file) in enumerate(record.outputs):
            level.renamed |= name != file
            if file:
                level.define(file, NodeEntry(node, i), proto)

    def _record(self, proto: Any, own: Mapping[str, str], where: str) -> CallRecord:
        """The record that our writer left for the call; for a function of another writer, one that follows from the function
        alone."""
        function = self.proto
        if roundtrip.CALL not in own:
            names = [*proto.output] + [""] * (len(function.output) - len(proto.output))
            outputs = tuple([(name, "output", i) for i, name in enumerate(function.output)])
            body = BodyRecord(function.name, len(function.input), outputs=outputs)
            return CallRecord(function.name, plain_domain(function.domain), tuple([(name, name) for name in names]), body)
        record = record_from_json(roundtrip.load_json(own[roundtrip.CALL], roundtrip.CALL, where))
        if record is None or record.body.inputs + len(record.body.constants) != len(function.input):
            raise roundtrip.damaged(roundtrip.CALL, where)
        return record

    def _params(self, level: Level, proto: Any) -> dict[str, Any]:
        """The values of the function's attributes: from the call, or its defaults."""
        params = dict.fromkeys(self.proto.attribute)
        params.update(self._defaults)
        for attribute in proto.attribute:
            if attribute.name in params:
                reference = attribute.ref_attr_name
                given = (level.params or {}).get(reference) if reference else attribute
                if given is not None:
                    params[attribute.name] = given
        return params

    def _body(self, record: BodyRecord, hoisted: tuple[Array, ...], params: dict[str, Any], where: str) -> Graph:
        """The body for these parameters and constants; equal calls share it."""
        given = tuple([None if item is None else (item.type, item.SerializeToString()) for item in params.values()])
        key = (record, tuple(map(id, hoisted)), given)
        if key not in self._bodies:
            if self._open or self.reading.depth >= DEEPEST:
                cause = "the function calls itself" if self._open else f"functions call each other more than {DEEPEST} deep"
                raise ReadError(cause, where=self.title, remedy="ONNX allows no recursion")
            if not self._bodies:
                self._check_versions()
            self._open = True
            self.reading.depth += 1
            self._bodies[key] = self._make(record, hoisted, params, where), hoisted
            self.reading.depth -= 1
            self._open = False
        return self._bodies[key][0]

    def _make(self, record: BodyRecord, hoisted: tuple[Array, ...], params: dict[str, Any], where: str) -> Graph:
        proto = self.proto if record.names is None else with_names(self.proto, record.names)
        if proto is None or len(hoisted) != len(record.constants):
            raise roundtrip.damaged(roundtrip.CALL, where)
        level = Level(self.reading, params)
        level.read_value_info(proto.value_info)
        count = record.inputs
        known = {item.name: item for item in proto.value_info}
        inputs = [level.add_variable(name, known.get(name), self.title) for name in proto.input[:count]]
        level.arrays = dict(zip(proto.input[count:], hoisted, strict=True))
        for noted, file in zip(record.constants, proto.input[count:], strict=True):
            if noted is not None:
                level.add_constant(file, level.arrays.pop(file), self.title, noted[1], noted[0])
        level.read_nodes(proto.node)
        outputs = [self._output(level, proto, kind, which, count, where) for _, kind, which in record.outputs]
        names = [name for name, _, _ in record.outputs]
        return level.finish(outputs, inputs, record.name, names, dict(record.metadata), record.order)

    def _output(self, level: Level, proto: Any, kind: str, which: int, count: int, where: str) -> NodeEntry:
        names = {
            "output": list(proto.output),
            "input": list(proto.input),
            "constant": list(proto.input[count:]),
        }.get(kind, [])
        if which >= len(names):
            raise roundtrip.damaged(roundtrip.CALL, where)
        return level.outputs([names[which]], self.title)[0]

    def _check_versions(self) -> None:
        """Raises if an op of the function differs between the function's opsets and the model's."""
        model = self.reading.opsets
        for domain, op in _ops(self.proto.node):
            here, there = model.get(domain), self.opsets.get(domain)
            if here == there or here is None or there is None or domain not in ONNX_DOMAINS:
                continue
            mine, theirs = spec_of(op, domain, here), spec_of(op, domain, there)
            if mine is None or theirs is None or mine.since != theirs.since:
                raise ReadError(
                    f"the function is written for version {there} of opset {domain or 'ai.onnx'!r} and the model for "
                    f"{here}, and {op} differs between them",
                    where=self.title,
                    remedy="Bring the model to one version with onnx.version_converter, or the pass ConvertOpset, first",
                )


def _ops(protos: Any) -> set[tuple[str, str]]:
    ops = set()
    for proto in protos:
        ops.add((plain_domain(proto.domain), proto.op_type))
        for attribute in proto.attribute:
            if attribute.type == GRAPH_KIND:
                ops |= _ops(attribute.g.node)
    return ops
