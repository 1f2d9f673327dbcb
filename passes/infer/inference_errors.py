"""Errors of inference."""

from __future__ import annotations

from partita.graph.errors import TypeMismatch

REMEDY = "Correct the declared types or the given shapes, or pass strict=False to leave unknown what does not follow"

DECLARED = "Correct the declared type, or remove it. InferShape with strict=False replaces it by the inferred one"


class DeclaredMismatch(TypeMismatch):
    """A declared type differs from the inferred one."""
