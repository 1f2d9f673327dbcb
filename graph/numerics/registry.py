"""The table of our own meanings of ops: which function serves which op in which range of opsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class NoNumerics(NotImplementedError):
    """There is no numpy meaning of this op at this opset."""

    def __init__(self, op: str, domain: str, version: int) -> None:
        self.op, self.domain, self.version = op, domain, version
        super().__init__(
            f"no numpy meaning is known for {domain or 'ai.onnx'}::{op} at opset {version}; "
            f"give the op one when you register it, or run the node on a device that supports it"
        )


@dataclass(frozen=True, slots=True)
class Meaning:
    """One function and how to call it: inputs by position, attributes by keyword, schema defaults filled in."""

    function: Callable[..., Any]
    since: int
    """The first opset it is right for."""
    until: int
    """The last one."""
    widen: bool
    """Compute float16 and bfloat16 in float32 and round at the end."""
    wants: tuple[str, ...]
    """What it needs beside inputs and attributes: "n_outputs", "op"."""


_FOREVER = 1 << 30
_TABLE: dict[tuple[str, str], list[Meaning]] = {}


def numerics(
    *ops: str,
    since: int = 1,
    until: int = _FOREVER,
    domain: str = "",
    widen: bool = False,
    wants: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Make the decorated function the meaning of ``ops`` from opset ``since`` to opset ``until``."""

    def register(function: Function) -> Function:
        for op in ops:
            rows = _TABLE.setdefault((domain, op), [])
            if any(row.since <= until and since <= row.until for row in rows):
                raise ValueError(
                    f"two meanings of {op} overlap in opsets {since} to {until}: narrow one of them"
                )
            rows.append(Meaning(function, since, until, widen, wants))
        return function

    return register


@cache
def find(op: str, domain: str, version: int) -> Meaning | None:
    """Our own meaning of an op at an opset, if we carry one."""
    return next((row for row in _TABLE.get((domain, op), ()) if row.since <= version <= row.until), None)
