"""What TVM compiles without complaint and gets wrong: checked in, with the reason, and refused.

Found by running ONNX's own node tests; `tests/accelerators/tvm/node_cases.py` finds new ones."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from graph.node import Node
from graph.types import TensorType


@attrs.frozen(slots=True)
class Rule:
    """One thing not to ask of TVM."""

    op: str
    """The op."""
    when: Callable[[Node], bool]
    """Is the node such a case?"""
    reason: str
    """What would go wrong."""


def _set(name: str, *values: object) -> Callable[[Node], bool]:
    """Has the attribute one of these values?"""
    return lambda node: node.attrs.get(name) in values


def _dtype(node: Node, which: int = 0) -> str:
    entry = node.inputs[which] if len(node.inputs) > which else None
    return entry.type.dtype if entry is not None and isinstance(entry.type, TensorType) else ""


def _is_float(node: Node) -> bool:
    return "float" in _dtype(node)


RULES = (
    Rule("BatchNormalization", _set("training_mode", 1),
         "TVM's importer computes training-mode batch norm as if it were inference"),
    Rule("BitShift", lambda n: _dtype(n).startswith("int"), "TVM shifts by negative or too large counts as the processor does"),
    Rule("IsInf", lambda n: n.attrs.get("detect_negative", 1) != 1 or n.attrs.get("detect_positive", 1) != 1,
         "TVM's importer ignores detect_negative and detect_positive"),
    Rule("Mod", lambda n: _is_float(n) and n.attrs.get("fmod", 0) == 0,
         "TVM's floor_mod of floats is not a number where an operand is infinite"),
    Rule("Resize", _set("antialias", 1), "TVM's importer ignores antialias"),
    Rule("RoiAlign", _set("mode", "max"), "TVM takes the maximum after interpolation, ONNX before"),
    Rule("SpaceToDepth", _set("mode", "CRD"), "TVM's importer ignores the mode"),
)  # fmt: skip

_by_op: dict[str, list[Rule]] = {}
for _rule in RULES:
    _by_op.setdefault(_rule.op, []).append(_rule)


def known_wrong(node: Node) -> str | None:
    """Why TVM's answer would be wrong; None if nothing is known against it."""
    return next((rule.reason for rule in _by_op.get(str(node.op), ()) if rule.when(node)), None)
