"""The errors that Partita raises: each states the cause, the place and the remedy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np


class PartitaError(Exception):
    """Base of all errors that a user may see; the text is one message that can be printed without a traceback."""

    def __init__(self, cause: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.cause = cause
        """The cause."""
        self.where = where
        """The node, file, pass or hook at which the error occurred."""
        self.remedy = remedy
        """A suggestion for the user."""
        parts = [f"{where}: {cause}" if where else cause]
        if remedy:
            parts.append(remedy if remedy.endswith((".", "?", "!")) else f"{remedy}.")
        super().__init__("\n  ".join(parts))

    def within(self, where: str) -> Self:
        """The same error with `where` put before its own place, unless that contains it already."""
        if self.where is None or where not in str(self.where):
            PartitaError.__init__(self, self.cause, where=f"{where}, {self.where}" if self.where else where, remedy=self.remedy)
        return self


class GraphError(PartitaError):
    """A graph is malformed, or lacks what was looked up in it."""


class TypeMismatch(GraphError):
    """Types or shapes in a graph contradict each other or an op's schema."""


class DeclaredMismatch(TypeMismatch):
    """A declared type differs from the inferred one."""


class UnknownOp(GraphError):
    """An op that neither ONNX nor the user has declared."""


class ReadError(PartitaError):
    """A file or text is not in the expected format."""


class WriteError(PartitaError):
    """A graph cannot be written in the requested format."""


class PassError(PartitaError):
    """A pass failed, is unknown, or lacks a prerequisite."""


def check_flag(value: object, where: str, error: type[PartitaError]) -> None:
    """Raise the error unless the value is True or False: a word such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise error(f"{value!r:.80} is neither True nor False", where=where, remedy="Write True or False")


def check_count(where: str, value: object, error: type[PartitaError], least: int = 0) -> None:
    """Raise the error unless the value is an integer of `least` or more, or None."""
    if value is not None and (not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least):
        raise error(f"{value!r:.80} is not a count", where=where, remedy=f"Give an integer of {least} or more")


def check_path(where: str, value: object, error: type[PartitaError]) -> str:
    """The path as text; raise the error if it is none."""
    try:
        return os.fsdecode(value)  # type: ignore[arg-type]
    except TypeError:
        raise error(f"{value!r:.80} is not a path", where=where, remedy="Give the path of a file") from None


class MissingDependency(PartitaError):
    """An optional package is needed and is not installed."""

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed",
            remedy="Install it with: pip install " + (package if extra is None else f"'partita[{extra}]'"),
        )
        self.package = package
        """The name to install from PyPI."""


def unexpected(function: str, given: Iterable[str], hints: Mapping[str, str]) -> TypeError:
    """The error for keyword arguments that a function does not have, with the hint for the first of them."""
    name = min(given)
    hint = hints.get(name)
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{f'. {hint}' if hint else ''}")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A remedy that suggests the most similar known names, or None."""
    import difflib  # only here: most programs need no remedy

    names = list(known)
    near = [one for one in names if one.lower() == name.lower()] or difflib.get_close_matches(name, names, 3)
    return f"Did you mean {', '.join(map(repr, near))}?" if near else None
