"""Ops that users declare: signature, shape rule and numpy implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from partita.graph.errors import GraphError
from partita.graph.ops.schemas import AttrSpec, OpSpec, ParamSpec
from partita.graph.ops.traits import declare
from partita.graph.types import Type

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
                    f"the shape rule gave {inferred!r:.60}, which is no type",
                    where=f"op {self.spec.title}",
                    remedy="It returns a TensorType, or None where it cannot tell; one for each output",
                )
        if len(types) < n_outputs:
            raise GraphError(
                f"the shape rule gave {len(types)} types for {n_outputs} outputs", where=f"op {self.spec.title}"
            )
        return types[:n_outputs]


_registered: dict[tuple[str, str], CustomOp] = {}


def register_op(
    op: str,
    domain: str,
    *,
    inputs: int | tuple[int, int] = 1,
    outputs: int | tuple[int, int] = 1,
    attributes: Mapping[str, Any] | None = None,
    shape: ShapeRule | None = None,
    numpy: Meaning | None = None,
    random: bool = False,
    traits: Iterable[str] = (),
) -> CustomOp:
    """Declare an op: how many inputs and outputs it has (a number, or the least and the most), its attributes with their
    defaults (a type such as `int` makes one required), its shape rule and its meaning in numpy. A `random` op is never
    folded or merged.

    `traits` are names of the traits that ONNX's ops have (`graph/ops/traits.py`). Of a user's op the product reads `commutative`
    (patterns match its operands in any order), `unary`, `broadcast`, `moving` and those of reductions (FLOPs), `endless` (never
    computed while compiling) and `random`.

    >>> _ = register_op("Swish", "my", attributes={"beta": 1.0}, shape=lambda types, attrs: types[0],
    ...                 numpy=lambda x, beta: x / (1 + np.exp(-beta * x)), traits=["unary"])
    """
    if domain in ("", "ai.onnx"):
        raise GraphError(f"{op!r} cannot be declared in ONNX's own domain", remedy='Choose a domain of your own: domain="my"')
    low_in, high_in = (inputs, inputs) if isinstance(inputs, int) else inputs
    low_out, high_out = (outputs, outputs) if isinstance(outputs, int) else outputs
    traits = frozenset((traits,) if isinstance(traits, str) else traits)
    spec = OpSpec(
        op=op,
        domain=domain,
        since=1,
        inputs=_params("X", low_in, high_in),
        outputs=_params("Y", low_out, high_out),
        attributes={name: _attribute(name, value) for name, value in (attributes or {}).items()},
        min_inputs=low_in,
        max_inputs=high_in,
        min_outputs=low_out,
        max_outputs=high_out,
        random=random or "random" in traits,
        deprecated=False,
        has_function=False,
    )
    declare(op, domain, traits)
    custom = _registered[(domain, op)] = CustomOp(spec, shape, numpy)
    return custom


def unregister_op(op: str, domain: str) -> None:
    """Removes a declared op."""
    if _registered.pop((domain, op), None) is None:
        raise GraphError(f"no op {op!r} is declared in domain {domain!r}")
    declare(op, domain, frozenset())


def custom_names(domain: str) -> frozenset[str]:
    """The names of the user's ops in a domain."""
    return frozenset(op for op, theirs in _registered if theirs == domain)


def custom_op(op: str | None, domain: str) -> CustomOp | None:
    """The user's op of that name, or None."""
    return _registered.get((domain, op)) if op and domain else None


def _params(letter: str, low: int, high: int) -> tuple[ParamSpec, ...]:
    options = ["single"] * low + ["optional"] * (high - low)
    return tuple(ParamSpec(f"{letter}{i}", o, frozenset(), f"{letter}{i}", False) for i, o in enumerate(options))


_KINDS: dict[type, str] = {int: "INT", bool: "INT", float: "FLOAT", str: "STRING"}


def _attribute(name: str, value: Any) -> AttrSpec:
    required = isinstance(value, type)
    if isinstance(value, (list, tuple)):
        kind = _KINDS[type(value[0]) if value else int] + "S"
    else:
        kind = _KINDS.get(value if isinstance(value, type) else type(value), "TENSOR")
    return AttrSpec(name, kind, required, None if required else value)
