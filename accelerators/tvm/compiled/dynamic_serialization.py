"""Serialization of launches for any size as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.tvm.code.launch_sizes import ARITHMETIC, Formula, Joined
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.joining import Inside
from partita.accelerators.tvm.compiled.open_steps import OpenSlot, OpenStep, OpenSteps
from partita.accelerators.tvm.sizes.extent import Extent, Size


def written_open(steps: OpenSteps) -> dict[str, Any]:
    """Description of the launches for an export."""
    return {
        "sizes": [_written(size) for size in steps.sizes],
        "calls": steps.calls,
        "values": [
            [[slot.value, [_written(size) for size in slot.shape], slot.dtype] for slot in slots]
            for slots in (steps.inputs, steps.outputs)
        ],
        "steps": [
            [
                step.number, step.kernel,
                [[a.dtype, _written(a.value)] if isinstance(a, Number) else a for a in step.arguments],
                [_written(count) for count in step.groups], step.local, step.shared,
            ]
            for step in steps.steps
        ],
        "inside": [[part.value, part.whole, part.first] for part in steps.inside],
    }


def read_open(words: Mapping[str, Any]) -> OpenSteps:
    """The launches of a description; ValueError, TypeError, KeyError or IndexError if it is malformed."""
    inputs, outputs = (
        tuple([OpenSlot(int(value), tuple(map(_size, shape)), str(dtype)) for value, shape, dtype in slots])
        for slots in words["values"]
    )
    steps = [
        OpenStep(int(number), str(kernel), tuple(map(_argument, arguments)), _three(map(_formula, groups)),
                 _three(map(int, local)), int(shared))
        for number, kernel, arguments, groups, local, shared in words["steps"]
    ]
    calls = tuple([tuple(map(int, call)) for call in words["calls"]])
    inside = tuple([Inside(*map(int, part)) for part in words.get("inside", ())])
    return OpenSteps((str(words["source"]),), tuple(map(_size, words["sizes"])), calls, inputs, outputs, tuple(steps), inside)


def _written(formula: Formula) -> Any:
    if isinstance(formula, Extent):
        return {"terms": [[count, *monomial] for monomial, count in formula.terms.items()]}
    if isinstance(formula, Joined):
        return {"join": formula.operator, "of": [_written(formula.left), _written(formula.right)]}
    return formula


def _formula(written: Any) -> Formula:
    if not isinstance(written, dict):
        return _number(written)
    if "terms" in written:
        return Extent({tuple(map(str, names)): int(count) for count, *names in written["terms"]})
    left, right = map(_formula, written["of"])
    if written["join"] not in ARITHMETIC:
        raise ValueError(f"nothing joins numbers by {written['join']}")
    return Joined(written["join"], left, right)


def _number(written: Any) -> int | float:
    if not isinstance(written, (int, float)):
        raise TypeError(f"{written!r} is no number")
    return written


def _size(written: Any) -> Size:
    size = _formula(written)
    if not isinstance(size, (int, Extent)):
        raise TypeError(f"{written!r} is no size")
    return size


def _argument(written: Any) -> int | Number:
    return Number(str(written[0]), _formula(written[1])) if isinstance(written, list) else int(written)


def _three(counts: Any) -> Any:
    x, y, z = counts
    return x, y, z
