"""Op schemas as plain records: ONNX's, looked up once for each op and version, and those of ops that users declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from partita.graph.errors import GraphError, UnknownOp, did_you_mean
from partita.graph.node import Node
from partita.graph.ops.traits import ONNX_DOMAINS as ONNX_DOMAINS
from partita.graph.ops.traits import ops
from partita.graph.types import Type

OTHER_VERSION = "Convert the model with the pass ConvertOpset, or declare the version it was made for"
"""Remedy for an op that a domain lacks at some version."""


@attrs.frozen(slots=True)
class AttrSpec:
    """An attribute as declared in the schema."""

    name: str
    """The attribute's name."""
    kind: str
    """FLOAT, INT, STRING, TENSOR, GRAPH, SPARSE_TENSOR, TYPE_PROTO, or one of these with S at the end."""
    required: bool
    """True if it has no default."""
    default: Any
    """The default value, or None."""


@attrs.frozen(slots=True)
class ParamSpec:
    """An input or output as declared in the schema."""

    name: str
    """The formal name."""
    option: str
    """"single", "optional" or "variadic"."""
    types: frozenset[str]
    """The allowed types, in our spelling: "float32", "sequence(int64)"."""
    symbol: str
    """The type's letter in the schema: parameters with the same letter have the same type."""
    homogeneous: bool
    """True if all values of a variadic parameter must have one type."""


@attrs.frozen(slots=True)
class OpSpec:
    """The signature of an op at one version of its domain."""

    op: str
    """The op type."""
    domain: str
    """Its domain; empty for ONNX's own."""
    since: int
    """The first version of the domain with this signature."""
    inputs: tuple[ParamSpec, ...]
    """Its formal inputs."""
    outputs: tuple[ParamSpec, ...]
    """Its formal outputs."""
    attributes: Mapping[str, AttrSpec]
    """Its attributes by name."""
    min_inputs: int
    """Minimum number of inputs."""
    max_inputs: int
    """Maximum number of inputs."""
    min_outputs: int
    """Minimum number of outputs."""
    max_outputs: int
    """Maximum number of outputs."""
    random: bool
    """True if the results differ between runs on the same inputs."""
    deprecated: bool
    """True if this version of the domain has withdrawn it."""
    has_function: bool
    """True if ONNX defines it by a body of simpler ops."""

    @property
    def title(self) -> str:
        """The op with its domain and version, for messages."""
        return f"{self.domain or 'ai.onnx'}.{self.op}-{self.since}"


ShapeRule = Callable[..., Any]
"""(input types, attributes) -> the output's type, or a sequence of types if there are several outputs."""

Meaning = Callable[..., Any]
"""(*arrays, **attributes) -> the output array, or a tuple of arrays if there are several outputs."""


@attrs.frozen(slots=True)
class CustomOp:
    """An op that the user declared."""

    spec: OpSpec
    """Its signature."""
    shape: ShapeRule | None
    """Rule for the output types; None if unknown."""
    numpy: Meaning | None
    """Implementation in numpy; None if only devices have one."""

    def infer(self, inputs: Sequence[Type | None], attributes: Mapping[str, Any], n_outputs: int) -> tuple[Type | None, ...]:
        """The output types by the user's rule (all None without one)."""
        if self.shape is None or any(t is None for t in inputs[: self.spec.min_inputs]):
            return (None,) * n_outputs
        inferred = self.shape(tuple(inputs), attributes)
        types = tuple(inferred) if isinstance(inferred, (list, tuple)) else (inferred,)
        for inferred in types:
            if not (inferred is None or isinstance(inferred, Type)):
                raise GraphError(
                    f"the shape rule gave {inferred!r:.60}, which is not a type",
                    where=f"op {self.spec.title}",
                    remedy="It returns a TensorType, or None where it cannot tell; one for each output",
                )
        if len(types) < n_outputs:
            raise GraphError(
                f"the shape rule gave {len(types)} types for {n_outputs} outputs", where=f"op {self.spec.title}"
            )
        return types[:n_outputs]


custom_ops: dict[tuple[str, str], CustomOp] = {}
"""The user's ops by domain and name; `register_op` adds to them."""


def custom_names(domain: str) -> frozenset[str]:
    """The names of the user's ops in a domain."""
    return frozenset(op for op, theirs in custom_ops if theirs == domain)


def custom_op(op: str | None, domain: str) -> CustomOp | None:
    """The user's op of that name, or None."""
    return custom_ops.get((domain, op)) if op and domain else None


def newest_versions() -> dict[str, int]:
    """The newest version of each domain in the onnx package."""
    import onnx.defs

    return {domain: last for domain, (_, last) in onnx.defs.C.schema_version_map().items()}


@cache
def _onnx_names() -> dict[str, frozenset[str]]:
    import onnx.defs

    of_domain: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        of_domain.setdefault(schema.domain, set()).add(schema.name)
    return {domain: frozenset(names) for domain, names in of_domain.items()}


def op_names(domain: str) -> frozenset[str]:
    """The names of all ops of a domain, in any version, that ONNX or the user declares."""
    return _onnx_names().get(domain, frozenset()) | custom_names(domain)


def spec_of(op: str, domain: str, version: int) -> OpSpec | None:
    """The op at this version of its domain, or None if neither ONNX nor the user declares it."""
    mine = custom_op(op, domain)
    return mine.spec if mine is not None else _onnx_spec(op, domain, version)


def require_spec(op: str, domain: str, version: int, where: str | None) -> OpSpec:
    """Like `spec_of`, but raises for an unknown op and suggests similar names."""
    spec = spec_of(op, domain, version)
    if spec is not None:
        return spec
    names = _onnx_names().get(domain, frozenset())
    if op in names:
        cause = f"{domain or 'ai.onnx'} version {version} has no op {op!r}; other versions have"
        remedy: str | None = OTHER_VERSION
    else:
        cause = f"{domain or 'ai.onnx'} has no op {op!r}"
        plain = op.rpartition("::")[2].rpartition(".")[2]  # nn.relu, aten::relu
        hint = did_you_mean(plain, names) or ("" if domain else f"pt.mxnet_ops({op!r}) gives ONNX's names for an op of MXNet's.")
        remedy = f"{hint} Declare an op of your own with register_op(...)".strip()
    raise UnknownOp(cause, where=where, remedy=remedy)


def is_random(node: Node) -> bool:
    """True if the node, or one in its bodies, draws random numbers. Such nodes are never folded, merged or removed as

    duplicates."""
    if node.op in ops("random") and node.domain in _RANDOM_DOMAINS:
        return node.op != "Dropout" or _may_train(node)
    if node.domain not in _RANDOM_DOMAINS:
        mine = custom_op(node.op, node.domain)
        if mine is not None and mine.spec.random:
            return True
    return any(is_random(inner) for _, body in node.bodies for inner in body.nodes)


_RANDOM_DOMAINS = ("", "ai.onnx.ml")


def _may_train(node: Node) -> bool:
    """False if a Dropout is in inference mode for sure."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None:
        return node.attrs.get("is_test", 1) == 0 and "is_test" in node.attrs
    return not (mode.node.value is not None and not mode.node.value.any())


@cache
def _onnx_spec(op: str, domain: str, version: int) -> OpSpec | None:
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    return spec_from_schema(schema)


def spec_from_schema(schema: Any) -> OpSpec:
    """The record of an ONNX schema."""
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return OpSpec(
        op=schema.name,
        domain="" if schema.domain == "ai.onnx" else schema.domain,
        since=schema.since_version,
        inputs=tuple(_param(p, constraints) for p in schema.inputs),
        outputs=tuple(_param(p, constraints) for p in schema.outputs),
        attributes={name: _attribute(a) for name, a in schema.attributes.items()},
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
        random=schema.name in ops("random"),
        deprecated=schema.deprecated,
        has_function=schema.has_function or schema.has_context_dependent_function,
    )


def _param(param: Any, constraints: Mapping[str, Any]) -> ParamSpec:
    allowed = constraints.get(param.type_str, [param.type_str])
    return ParamSpec(
        name=param.name,
        option=param.option.name.lower(),
        types=frozenset(_type_text(text) for text in allowed),
        symbol=param.type_str,
        homogeneous=param.is_homogeneous,
    )


def _attribute(attribute: Any) -> AttrSpec:
    import onnx.helper

    default = attribute.default_value
    value = onnx.helper.get_attribute_value(default) if default.ByteSize() else None
    if isinstance(value, bytes):
        value = value.decode()
    return AttrSpec(attribute.name, attribute.type.name, attribute.required, value)


_ELEMENTS = {
    "float": "float32", "double": "float64", "float4e2m1": "float4_e2m1fn",
    "float6e2m3": "float6_e2m3fn", "float6e3m2": "float6_e3m2fn",
    "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu",
}
"""ONNX's names of element types that differ from numpy's."""


def element_type(name: str) -> str:
    """The element type that ONNX gives this name in lower case."""
    return _ELEMENTS.get(name, name)


def _type_text(text: str) -> str:
    """"tensor(float)" in our spelling: "float32"."""
    head, _, rest = text.partition("(")
    inner = rest[:-1]
    if head == "tensor":
        return _ELEMENTS.get(inner, inner)
    if head == "sparse_tensor":
        return f"sparse({_ELEMENTS.get(inner, inner)})"
    if head == "seq":
        return f"sequence({_type_text(inner)})"
    if head == "optional":
        return f"optional({_type_text(inner)})"
    if head == "map":
        key, _, value = inner.partition(",")
        value = value.strip()
        return f"map({_ELEMENTS.get(key, key)}, {_type_text(value) if '(' in value else _ELEMENTS.get(value, value)})"
    return text
