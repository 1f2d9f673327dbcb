"""The table of onnxruntime's own ops that are supported: the body of each in ONNX's ops, and the opset that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet, Values
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Type

DOMAIN = "com.microsoft"
"""onnxruntime's own domain."""

Body = Callable[[BodyBuilder], Graph]
"""Writes the body of a node."""

TypeRule = Callable[[BodyBuilder], Sequence[Type]]
"""Returns the types of a node's results."""

Result = TypeVar("Result")


@attrs.frozen(slots=True)
class Meaning:
    """The decomposition of one op."""

    body: Body
    since: int
    """The lowest opset that has the ops of the body."""
    attributes: frozenset[str]
    """The supported attributes."""
    types: TypeRule | None
    """Rule for the types of the results, if the body is too large to be written for them alone."""


MEANINGS: dict[str, Meaning] = {}


def meaning(ops: str, since: int, attributes: str = "", types: TypeRule | None = None) -> Callable[[Body], Body]:
    """Adds a row per op, of which the decorated function writes the body. Names are separated by blanks."""

    def add(body: Body) -> Body:
        MEANINGS.update(dict.fromkeys(ops.split(), Meaning(body, since, frozenset(attributes.split()), types)))
        return body

    return add


def is_known(node: Node) -> bool:
    """True for an op of onnxruntime's that is in the table."""
    return node.domain == DOMAIN and node.subgraph is None and node.op in MEANINGS


def needed_opset(node: Node) -> int:
    """The lowest opset that has the ops of the node's body."""
    return MEANINGS[str(node.op)].since


def why_unknown(node: Node) -> str | None:
    """The reason for which an op of onnxruntime's is not supported; None if it is, or for any other op."""
    if node.domain != DOMAIN:
        return None
    if node.op not in MEANINGS:
        hint = did_you_mean(str(node.op), MEANINGS)
        return f"{DOMAIN}.{node.op} is an op of onnxruntime that is not supported" + (f": {hint}" if hint else "")
    unknown = sorted(set(node.attrs) - MEANINGS[node.op].attributes)
    return f"the attribute {unknown[0]!r} of {DOMAIN}.{node.op} is not supported" if unknown else None


def body_of(node: Node, types: Sequence[Type | None], values: Values, opset: int = 0) -> Graph:
    """The op's body for inputs of these types and of these values where constant; `NoBody` with the reason if there is none.

    It is written in this opset, or in the lowest that has all ops that it needs if that is higher."""
    reason = why_unknown(node)
    if reason is not None:
        raise NoBody(reason, where=f"node {node.name!r} ({node.op})")
    row = MEANINGS[str(node.op)]
    return _applied(row.body, BodyBuilder(node, {"": max(opset, row.since)}, types, values))


def why_none(node: Node) -> str | None:
    """The reason for which an op of onnxruntime's with these attributes and inputs has no body; None if it has one, or if that
    depends on unknown types or values of its inputs."""
    types = [None if entry is None else entry.type for entry in node.inputs]
    try:
        body_of(node, types, [None] * len(types))
    except NotYet:
        return None
    except NoBody as error:
        return error.cause
    return None


def result_types(node: Node, types: Sequence[Type | None], values: Values) -> Sequence[Type] | None:
    """The types of the op's results for inputs of these types, if the table has a rule for them."""
    rule = MEANINGS[str(node.op)].types
    return None if rule is None else _applied(rule, BodyBuilder(node, {"": needed_opset(node)}, types, values))


def _applied(rule: Callable[[BodyBuilder], Result], b: BodyBuilder) -> Result:
    """The result of the rule for a node; `NoBody` if numpy or Python cannot combine its attributes, types and constants."""
    try:
        return rule(b)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NoBody(f"its attributes and inputs do not go together: {error}", where=b.where) from error
