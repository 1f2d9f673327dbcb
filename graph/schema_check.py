"""One op's schema, prepared for checking many nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from partita.graph.errors import GraphError, TypeMismatch, did_you_mean
from partita.graph.node import Body, Node
from partita.graph.ops.onnx_crashes import require_sound
from partita.graph.ops.schemas import ONNX_DOMAINS, OpSpec, ParamSpec, require_spec, spec_of
from partita.graph.sparse import SparseTensor
from partita.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type

_KINDS: Mapping[str, tuple[type, ...]] = {
    "INT": (int,),
    "FLOAT": (float, int),
    "STRING": (str, bytes),
    "TENSOR": (np.ndarray,),
    "GRAPH": (Body,),
    "SPARSE_TENSOR": (SparseTensor,),
}


@attrs.frozen(slots=True)
class Signature:
    """The constraints on nodes of one op."""

    spec: OpSpec
    """The op's schema."""
    required: tuple[str, ...]
    """The required attributes."""
    untyped: bool
    """True without constraints on types: an op of the user's."""
    seen: set[Any] = attrs.field(factory=set)
    """Valid combinations of types found so far."""

    @classmethod
    def of(cls, node: Node, opsets: Mapping[str, int]) -> Signature | None:
        """The signature of the node's op; None for an engine's own op."""
        where = f"node {node.name!r} ({node.op})"
        assert node.op is not None
        if node.domain not in ONNX_DOMAINS:
            spec = spec_of(node.op, node.domain, opsets.get(node.domain, 1))
        elif node.domain not in opsets:
            cause = f"the graph has no version of opset {node.domain or 'ai.onnx'!r}"
            raise GraphError(cause, where=where, remedy="Give it with opsets= when the graph is made")
        else:
            spec = require_spec(node.op, node.domain, opsets[node.domain], where)
        if spec is None:
            return None
        required = tuple(a.name for a in spec.attributes.values() if a.required)
        return cls(spec, required, not any(p.types for p in spec.inputs))

    def check(self, node: Node) -> None:
        """Checks the node's numbers of inputs and outputs, its attributes and its types."""
        spec = self.spec
        if not spec.min_inputs <= len(node.inputs) <= spec.max_inputs:
            raise self._count(node, "inputs", len(node.inputs), spec.min_inputs, spec.max_inputs)
        if not spec.min_outputs <= len(node.output_names) <= spec.max_outputs:
            raise self._count(node, "outputs", len(node.output_names), spec.min_outputs, spec.max_outputs)
        for name in self.required:
            if name not in node.attrs:
                raise TypeMismatch(f"{spec.title} needs the attribute {name!r}", where=_where(node))
        for name, value in node.attrs.items():
            self._attribute(node, name, value)
        require_sound(node)
        if not self.untyped:
            self._types(node)

    def _count(self, node: Node, what: str, count: int, low: int, high: int) -> GraphError:
        wanted = str(low) if low == high else f"{low} or more" if high > 10_000 else f"{low} to {high}"
        return GraphError(f"{self.spec.title} has {wanted} {what}, not {count}", where=_where(node))

    def _attribute(self, node: Node, name: str, value: Any) -> None:
        wanted = self.spec.attributes.get(name)
        if wanted is None:
            hint = did_you_mean(name, self.spec.attributes)
            raise TypeMismatch(f"{self.spec.title} has no attribute {name!r}", where=_where(node), remedy=hint)
        one = _KINDS.get(wanted.kind)
        many = _KINDS.get(wanted.kind[:-1])
        fits = isinstance(value, one) if one else True
        if many:
            fits = isinstance(value, (list, tuple)) and all(isinstance(item, many) for item in value)
        if not fits:
            raise TypeMismatch(f"the attribute {name!r} is to be {wanted.kind}, not {value!r:.80}", where=_where(node))

    def _types(self, node: Node) -> None:
        """Checks that element types are allowed, and equal for parameters with the same letter."""
        given = tuple([None if entry is None else entry.node.output_types[entry.index] for entry in node.inputs])
        key = (tuple(map(_element, given)), tuple(map(_element, node.output_types)))
        if key in self.seen:
            return
        letters: dict[str, tuple[str, str]] = {}
        for what, texts, params in (("input", key[0], self.spec.inputs), ("output", key[1], self.spec.outputs)):
            for i, text in enumerate(texts):
                param = params[min(i, len(params) - 1)] if params else None
                if text is not None and param is not None:
                    self._type(node, f"{what} {i} ({param.name})", text, param, letters)
        self.seen.add(key)

    def _type(self, node: Node, what: str, text: str, param: ParamSpec, letters: dict[str, tuple[str, str]]) -> None:
        if param.types and text not in param.types:
            raise TypeMismatch(
                f"{what} of {self.spec.title} is {text}", where=_where(node),
                remedy=f"It may be {', '.join(sorted(param.types))}",
            )
        if param.option == "variadic" and not param.homogeneous:
            return
        first, known = letters.setdefault(param.symbol, (what, text))
        if known != text:
            raise TypeMismatch(
                f"{what} of {self.spec.title} is {text} and {first} is {known}; they are to be the same", where=_where(node)
            )


def _element(value_type: Type | None) -> str | None:
    """The type without its shape, as schemas write it; None if something is unknown."""
    if isinstance(value_type, TensorType):
        return value_type.dtype
    if isinstance(value_type, SparseTensorType):
        return f"sparse({value_type.dtype})"
    if isinstance(value_type, (SequenceType, OptionalType)):
        inner = _element(value_type.element)
        word = "sequence" if isinstance(value_type, SequenceType) else "optional"
        return None if inner is None else f"{word}({inner})"
    return None if value_type is None else str(value_type)


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"
