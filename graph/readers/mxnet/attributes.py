"""The parameters of an MXNet op: a JSON file holds each as text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from partita.graph.errors import ReadError
from partita.graph.types import BY_MXNET_NUMBER

__all__ = ["Attributes"]

_TRUE, _FALSE = frozenset({"True", "true", "1"}), frozenset({"False", "false", "0"})
_NONE = frozenset({"None", ""})
_INTEGER = re.compile(r"[+-]?\d{1,19}L?")


class Attributes:
    """Reads the parameters of one node by name; errors name the node and the parameter."""

    __slots__ = ("_texts", "where")

    def __init__(self, texts: Mapping[str, str], where: str) -> None:
        self._texts = texts
        self.where = where
        """The node, for messages."""

    def __contains__(self, name: str) -> bool:
        return self._texts.get(name, "None") not in _NONE

    @property
    def names(self) -> frozenset[str]:
        """The parameters in the file, including those that are None."""
        return frozenset(self._texts)

    def fail(self, name: str, wanted: str) -> NoReturn:
        """Raises for the parameter's value."""
        given = f"{self._texts[name]!r:.80}" if name in self._texts else "missing"
        raise ReadError(f"the parameter {name!r} must be {wanted}, but is {given}", where=self.where)

    def string(self, name: str, default: str | None = None) -> str:
        """A string."""
        if name in self:
            return self._texts[name]
        return self.fail(name, "given") if default is None else default

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of these strings."""
        value = self.string(name, default)
        return value if value in choices else self.fail(name, f"one of {', '.join(choices)}")

    def boolean(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        if name not in self:
            return default
        text = self._texts[name]
        return text in _TRUE or (text not in _FALSE and self.fail(name, "True or False"))

    def integer(self, name: str, default: int | None = None, least: int | None = None) -> int:
        """An integer."""
        value = self.optional_integer(name)
        if value is None:
            value = self.fail(name, "a whole number") if default is None else default
        if least is not None and value < least:
            self.fail(name, f"{least} or more")
        return value

    def optional_integer(self, name: str) -> int | None:
        """An integer, or None."""
        return self._integer(name, self._texts[name]) if name in self else None

    def number(self, name: str, default: float | None = None) -> float:
        """A float."""
        if name not in self:
            return self.fail(name, "a number") if default is None else default
        try:
            return float(self._texts[name])
        except ValueError:
            self.fail(name, "a number")

    def scalar(self, name: str, default: float | None = None) -> float:
        """A finite float."""
        value = self.number(name, default)
        return value if math.isfinite(value) else self.fail(name, "a finite number")

    def optional_integers(self, name: str) -> tuple[int | None, ...]:
        """A tuple, as "(2, 2)", "[2,2]" or a single integer, that may contain None; empty if it is missing."""
        if name not in self:
            return ()
        text = self._texts[name].strip()
        inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
        items = [item.strip() for item in inner.split(",")]
        if items[-1] == "":
            items.pop()
        return tuple(None if item == "None" else self._integer(name, item) for item in items)

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A tuple of integers."""
        values = self.optional_integers(name)
        if None in values:
            self.fail(name, "a tuple of whole numbers")
        return tuple(i for i in values if i is not None) or default

    def sizes(self, name: str, rank: int, default: int | None, least: int = 1) -> list[int]:
        """One size per dimension, `rank` in all."""
        values = self.integers(name, () if default is None else (default,) * rank)
        if len(values) != rank or any(value < least for value in values):
            self.fail(name, f"{rank} numbers, each {least} or more")
        return list(values)

    def dtype(self, name: str, default: str | None = None) -> str:
        """An element type, by name or by MXNet's number."""
        text = self.string(name, default)
        known = {str(number): dtype for number, dtype in BY_MXNET_NUMBER.items()}
        value = known.get(text, text)
        return value if value in known.values() else self.fail(name, "an element type")

    def _integer(self, name: str, text: str) -> int:
        if not _INTEGER.fullmatch(text.strip()):
            self.fail(name, "a whole number")
        value = int(text.strip().rstrip("L"))
        return value if -(2**63) <= value < 2**63 else self.fail(name, "a number of 64 bits")
