"""The table of our own implementations of ops: the function for each op and range of opsets, and the reason for it.

ONNX's reference evaluator runs every op without one. A test checks for each of ours that ONNX's evaluator really behaves as
described; one for which it does not is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class NoNumerics(NotImplementedError):
    """The op has no numpy implementation at this opset."""

    def __init__(self, op: str, domain: str, version: int) -> None:
        self.op, self.domain, self.version = op, domain, version
        super().__init__(
            f"no numpy meaning is known for {domain or 'ai.onnx'}::{op} at opset {version}; "
            f"give the op one when you register it, or run the node on a device that supports it"
        )


@dataclass(frozen=True, slots=True)
class Why:
    """The reason for an implementation of our own beside ONNX's reference evaluator."""

    kind: Literal["absent", "fails", "differs", "slow"]
    """The flaw of ONNX's evaluator: no such op, an error, another result, or many more steps in Python."""
    case: str
    """The case in which this happens, in words; empty if always."""


def absent(case: str = "") -> Why:
    """ONNX has no reference evaluator for the op."""
    return Why("absent", case)


def fails(case: str) -> Why:
    """ONNX's reference evaluator raises an error in this case."""
    return Why("fails", case)


def differs(case: str) -> Why:
    """ONNX's reference evaluator returns other values, another shape or another element type in this case."""
    return Why("differs", case)


def slow(case: str) -> Why:
    """ONNX's reference evaluator takes at least one and a half times as many steps in Python."""
    return Why("slow", case)


HALVES = "in float16 and bfloat16, which it adds up without a wider type"
BODIES = "because it takes a body as a GraphProto alone, and ours is a function"
EVERYWHERE = "because it makes a node and an object for each call; networks and shape arithmetic run this op again and again"


@dataclass(frozen=True, slots=True)
class Implementation:
    """One function and how to call it: inputs by position, attributes by keyword, schema defaults filled in."""

    function: Callable[..., Any]
    since: int
    """The first opset that it implements."""
    until: int
    """The last one."""
    widen: bool
    """Compute float16 and bfloat16 in float32 and round at the end."""
    wants: tuple[str, ...]
    """Further arguments besides inputs and attributes: "n_outputs", "op", "version" (the opset)."""
    why: Why
    """The reason why ONNX's reference evaluator is not used."""


_FOREVER = 1 << 30
NUMERICS: dict[tuple[str, str], list[Implementation]] = {}


def numerics(
    *ops: str, why: Why, since: int = 1, until: int = _FOREVER, domain: str = "", widen: bool = False,
    wants: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Registers the decorated function as the implementation of ``ops`` from opset ``since`` to opset ``until``.

    ``why`` is the flaw of ONNX's reference evaluator there."""

    def register(function: Function) -> Function:
        for op in ops:
            rows = NUMERICS.setdefault((domain, op), [])
            if any(row.since <= until and since <= row.until for row in rows):
                raise ValueError(f"two meanings of {op} overlap in opsets {since} to {until}: narrow one of them")
            rows.append(Implementation(function, since, until, widen, wants, why))
        return function

    return register


def meanings() -> Iterator[tuple[str, str, Implementation]]:
    """All implementations, each with the domain and name of its op."""
    for (domain, op), rows in NUMERICS.items():
        for row in rows:
            yield domain, op, row


@cache
def find(op: str, domain: str, version: int) -> Implementation | None:
    """Our own implementation of an op at an opset, or None."""
    return next((row for row in NUMERICS.get((domain, op), ()) if row.since <= version <= row.until), None)
