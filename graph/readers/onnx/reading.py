"""State shared by all graphs and functions of one model while it is read: names, op signatures, types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from partita.graph.cached_property import lazy
from partita.graph.errors import ReadError
from partita.graph.ops.schemas import ONNX_DOMAINS, OpSpec, newest_versions, require_spec, spec_of
from partita.graph.protos import TypeReader
from partita.graph.protos.captures import GRAPH_KIND
from partita.graph.readers.onnx.source import utf8

if TYPE_CHECKING:
    from partita.graph.readers.onnx.functions import Function

WITHDRAWN = "Declare the version that the model was made for"
"""Remedy for an op that a domain has withdrawn."""

PLAIN_KINDS = frozenset((1, 2, 3, 6, 7, 8))
"""The attribute kinds that are numbers, strings, and lists of these."""


class OpNames:
    """Assigns unique names to op nodes, across the graph, its bodies and its functions."""

    def __init__(self, protos: Sequence[Any]) -> None:
        self._protos = protos
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    @lazy
    def _given(self) -> set[str]:
        """All names in the file, which generated names avoid."""
        return {name for nodes in self._protos for name in given_names(nodes)}

    def name(self, given: str, output: str, local: dict[str, Any]) -> str:
        """The given name if it is free, else one made from the first output's."""
        if given and given not in self._taken and given not in local:
            self._taken.add(given)
            return given
        name = output
        while name in self._taken or name in self._given or name in local:
            count = self._counts[output] = self._counts.get(output, 0) + 1
            name = f"{output}_{count}"
        self._taken.add(name)
        return name


def given_names(nodes: Any) -> Iterator[str]:
    """The names of the nodes and of those in their bodies."""
    for node in nodes:
        yield node.name
        for attribute in node.attribute:
            if attribute.type == GRAPH_KIND:
                yield from given_names(attribute.g.node)


class Reading:
    """One model while it is read."""

    def __init__(
        self, title: str, folder: str | None, opsets: dict[str, int], names: OpNames, types: TypeReader, strict: bool = False
    ) -> None:
        self.title = title
        """The model's name in messages."""
        self.folder = folder
        """Location of external data; None if unknown."""
        self.opsets = opsets
        """The version of each domain, for the whole model."""
        self.names = names
        """The names of op nodes."""
        self.types = types
        """Reads TypeProtos."""
        self.strict = strict
        """True if recoverable deviations from ONNX are errors instead of notes."""
        self.notes: dict[str, None] = {}
        """The deviations from ONNX so far, in order."""
        self.sorts = False
        """True if nodes are sorted before they are read."""
        self.functions: dict[tuple[str, str, str], Function] = {}
        """The model-local functions by domain, name and overload."""
        self.attributes: dict[Any, Mapping[str, Any]] = {}
        """Attributes read before, by op and serialized attributes."""
        self.depth = 0
        """Current depth of function calls."""
        self._specs: dict[tuple[str, str], OpSpec | None] = {}

    def where(self, node: Any) -> str:
        """The place of a node, for messages."""
        name = node.name or next(iter(node.output), "")
        return f"{self.title}, node {name!r} ({node.op_type})"

    def note(self, cause: str, where: str, remedy: str) -> None:
        """Notes a deviation from ONNX, or raises with `strict`."""
        if self.strict:
            raise ReadError(cause, where=where, remedy=remedy)
        self.notes[f"{where}: {cause}"] = None

    def spec(self, op: str, domain: str, node: Any) -> OpSpec | None:
        """The op's signature; None for an unknown domain."""
        key = (op, domain)
        if key not in self._specs:
            self._specs[key] = self._find(op, domain, node)
        return self._specs[key]

    def _version_not_imported(self, domain: str, node: Any) -> int:
        """The version of a domain that the model does not import: the newest, as in onnxruntime."""
        cause = f"the model uses domain {domain or 'ai.onnx'!r} and does not import its opset"
        if domain not in ("", "ai.onnx.ml"):
            raise ReadError(cause, where=self.where(node), remedy="Set opset_import")
        version = self.opsets[domain] = newest_versions()[domain]
        self.note(f"{cause}; version {version} is taken", self.where(node), "Set opset_import")
        return version

    def _find(self, op: str, domain: str, node: Any) -> OpSpec | None:
        utf8(op, self.title)
        version = self.opsets.get(utf8(domain, self.title))
        if domain not in ONNX_DOMAINS:
            return spec_of(op, domain, version or 1)
        if not op:
            raise ReadError("a node has no op type", where=self.where(node))
        if version is None:
            version = self._version_not_imported(domain, node)
        spec = require_spec(op, domain, version, self.where(node))
        if spec.deprecated:
            cause = f"{op} is withdrawn since version {spec.since} of its domain, and the model imports version {version}"
            if not spec.has_function:
                raise ReadError(cause, where=self.where(node), remedy=WITHDRAWN)
            self.note(cause, self.where(node), WITHDRAWN)
        return spec
