"""Ops that crash the process in the onnx package: its inference assumes that their inputs have types, or that their
attributes are valid. Found by random nodes of every op and version (`tests/onnx/inference_crashes.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from partita.graph.errors import TypeMismatch
from partita.graph.formatting import counted
from partita.graph.node import Node

_FRAGILE = frozenset(
    {
        ("", "EyeLike"),
        ("", "RegexFullMatch"),
        ("ai.onnx.ml", "DictVectorizer"),
        ("ai.onnx.ml", "LabelEncoder"),
        ("ai.onnx.ml", "TreeEnsemble"),
    }
)

MOST = 1 << 15
"""More than the dimensions of any tensor and the outputs of any op: a larger axis is invalid."""

_AXES = ("axis", "batch_dims")


def is_fragile(node: Node) -> bool:
    """True if ONNX's checker and version converter must not get the node unless its input types are known."""
    return (node.domain, node.op) in _FRAGILE


def require_sound(node: Node) -> None:
    """Raises an error if an attribute of the node would crash ONNX's tools, or is out of all bounds."""
    reason = unsound(node)
    if reason is not None:
        raise TypeMismatch(reason, where=f"node {node.name!r} ({node.op})")


def unsound(node: Node) -> str | None:
    """Description of an invalid attribute that ONNX's own code does not check, or None."""
    if not node.attrs or node.domain:
        return None
    reason = next((f"{name} is {value}" for name in _AXES if _is_no_axis(value := node.attrs.get(name, 0))), None)
    rule = RULES.get(node.op or "")
    return reason or (rule(node) if rule is not None else None)


def _is_no_axis(value: object) -> bool:
    return isinstance(value, int) and not -MOST <= value < MOST


def _equation(node: Node) -> str | None:
    given = node.attrs.get("equation", "")
    text = given.decode("latin-1") if isinstance(given, bytes) else str(given)
    left, _, result = "".join(text.split()).partition("->")
    terms, shown = left.split(","), f"the equation {text!r:.80}"
    if not all(map(_TERM.fullmatch, (*terms, result))):
        return f"{shown} is not made of letters, commas, at most one '...' for each input, and an arrow"
    if len(terms) != len(node.inputs):
        return f"{shown} is of {counted(len(terms), 'input')}, and the op has {len(node.inputs)}"
    letters = result.replace(".", "")
    wrong = [letter for letter in letters if letter not in left]
    if wrong:
        return f"{shown} has {wrong[0]!r} in its result, which no input has"
    if "." in result and "." not in left:
        return f"{shown} has '...' in its result, which no input has"
    twice = [letter for letter in letters if letters.count(letter) > 1]
    return f"{shown} has {twice[0]!r} in its result twice" if twice else None


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", re.ASCII)


def _batch(node: Node) -> str | None:
    count = node.attrs.get("batch_dims", 0)
    return f"batch_dims is {count}, and cannot be negative" if isinstance(count, int) and count < 0 else None


def _parts(node: Node) -> str | None:
    count = node.attrs.get("num_outputs")
    if not isinstance(count, int) or len(node.output_names) <= count < MOST:
        return None
    if count >= MOST:
        return f"num_outputs is {count}, and no op has so many outputs"
    outputs = len(node.output_names)
    return f"num_outputs is {count}, and it has {outputs} output{'s' * (outputs > 1)}"


def _reduction(node: Node) -> str | None:
    given = node.attrs.get("reduction", "none")
    text = given.decode("latin-1") if isinstance(given, bytes) else str(given)
    return None if text in _UPDATES else f"its reduction is {text!r:.40}: {', '.join(_UPDATES)} are known"


_UPDATES = ("none", "add", "mul", "max", "min")

RULES: Mapping[str, Callable[[Node], str | None]] = {
    "Einsum": _equation, "GatherND": _batch, "Split": _parts, "ScatterElements": _reduction, "ScatterND": _reduction,
}
