"""Declares ops of the user's own: signature, shape rule and numpy implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from partita.graph.errors import GraphError, check_flag
from partita.graph.ops.schemas import AttrSpec, CustomOp, Meaning, OpSpec, ParamSpec, ShapeRule, custom_ops
from partita.graph.ops.traits import declare


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
    if not (isinstance(op, str) and op and isinstance(domain, str)):
        raise GraphError(f"{domain!r:.80} and {op!r:.80} do not name an op", remedy='Write register_op("Swish", "my")')
    if domain in ("", "ai.onnx"):
        raise GraphError(f"{op!r} cannot be declared in ONNX's own domain", remedy='Choose a domain of your own: domain="my"')
    where = f"op {domain}.{op}"
    low_in, high_in = _bounds(inputs, f"{where}, inputs", 0)
    low_out, high_out = _bounds(outputs, f"{where}, outputs", 1)
    for rule in (shape, numpy):
        if not (rule is None or callable(rule)):
            raise GraphError(f"{rule!r:.80} is not a function", where=where)
    check_flag(random, f"{where}, option random", GraphError)
    traits = [traits] if isinstance(traits, str) else list(traits) if isinstance(traits, Iterable) else traits
    if not (isinstance(traits, list) and all(isinstance(trait, str) for trait in traits)):
        raise GraphError(f"{traits!r:.80} are not traits", where=where, remedy='Give a list of names: traits=["unary"]')
    spec = OpSpec(
        op=op,
        domain=domain,
        since=1,
        inputs=_params("X", low_in, high_in),
        outputs=_params("Y", low_out, high_out),
        attributes=_attributes({} if attributes is None else attributes, where),
        min_inputs=low_in,
        max_inputs=high_in,
        min_outputs=low_out,
        max_outputs=high_out,
        random=random or "random" in traits,
        deprecated=False,
        has_function=False,
    )
    declare(op, domain, frozenset(traits))
    custom = custom_ops[(domain, op)] = CustomOp(spec, shape, numpy)
    return custom


def unregister_op(op: str, domain: str) -> None:
    """Removes a declared op."""
    if not (isinstance(op, str) and isinstance(domain, str)) or custom_ops.pop((domain, op), None) is None:
        raise GraphError(f"no op {op!r} is declared in domain {domain!r}")
    declare(op, domain, frozenset())


def _params(letter: str, low: int, high: int) -> tuple[ParamSpec, ...]:
    options = ["single"] * low + ["optional"] * (high - low)
    return tuple(ParamSpec(f"{letter}{i}", o, frozenset(), f"{letter}{i}", False) for i, o in enumerate(options))


def _bounds(count: Any, where: str, least: int) -> tuple[int, int]:
    """The least and the greatest number, given as both or as one."""
    bounds = (count, count) if isinstance(count, int) else count
    is_pair = isinstance(bounds, (tuple, list)) and [type(one) for one in bounds] == [int, int]
    if not is_pair or not least <= bounds[0] <= bounds[1]:
        raise GraphError(f"{count!r:.80} is not a number", where=where, remedy=f"Write a number from {least} on, or two: (1, 3)")
    return bounds[0], bounds[1]


_KINDS: dict[type, str] = {int: "INT", bool: "INT", float: "FLOAT", str: "STRING"}


def _attributes(given: Mapping[str, Any], where: str) -> dict[str, AttrSpec]:
    """The attributes with these defaults, or types if they are required."""
    if not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise GraphError(f"{given!r:.80} are not attributes", where=where, remedy='Write attributes={"beta": 1.0}')
    specs = {}
    for name, value in given.items():
        required = isinstance(value, type)
        is_list = isinstance(value, (list, tuple))
        one = value if required else type(value[0]) if is_list and value else int if is_list else type(value)
        kind = _KINDS.get(one, "TENSOR")
        if is_list and kind == "TENSOR":
            remedy = "Give a list of numbers or texts"
            raise GraphError(f"{value!r:.80} is not a value", where=f"{where}, attribute {name!r}", remedy=remedy)
        specs[name] = AttrSpec(name, kind + "S" * is_list, required, None if required else value)
    return specs
