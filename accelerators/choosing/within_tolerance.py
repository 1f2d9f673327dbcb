"""Chooses the ops to lower: those with the best ratio of gain to error, while the whole stays within the tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from partita.accelerators.choosing.op_costs import Measuring
from partita.accelerators.choosing.options import UNITS
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.precision.lowered_ops import KEPT
from partita.accelerators.precision.precision_plan import amount


@attrs.frozen(slots=True)
class Option:
    """An op in one lower precision."""

    node: str
    precision: str
    error: float
    """The error of the output if the op alone is lowered."""
    gain: float


def choose(
    measuring: Measuring, options: Sequence[Option], locked: Mapping[str, str], tolerance: float, most: int
) -> tuple[dict[str, str], dict[str, str], float]:
    """The precisions of lowered ops, the reason of every op, and the error of the whole."""
    chosen = dict(locked)
    error = measuring.measured(chosen)
    if error > tolerance:
        raise AcceleratorError(
            f"what is locked moves the answer by {error:.2g} already, and {tolerance:g} is allowed",
            where=f"graph {measuring.graph.name!r}", remedy="Lock fewer ops, or allow more",
        )
    reasons = {node.name: _refusal(node.name, options, measuring.refused, tolerance) for node in measuring.ops}
    reasons |= dict.fromkeys(locked, "said from outside")
    later: dict[str, list[Option]] = {}
    for option in sorted((option for option in options if _is_worth_it(option, tolerance)), key=_gain, reverse=True):
        later.setdefault(option.node, []).append(option)
    queue, left = sorted([choices.pop(0) for choices in later.values()], key=_benefit, reverse=True), most
    while queue:
        good, bad, size, off = 0, len(queue) + 1, len(queue), np.inf
        while bad - good > 1 and left:
            measured, left = measuring.measured(chosen | _precisions(queue[:size])), left - 1
            if measured <= tolerance:
                good, error = size, measured
            else:
                bad, off = size, measured
            size = (good + bad) // 2
        chosen |= _precisions(queue[:good])
        reasons |= {
            option.node: f"it wins {amount(option.gain, UNITS[measuring.win])}, and alone moves the answer by {option.error:.2g}"
            for option in queue[:good]
        }
        rejected, queue = queue[good:bad], queue[bad:]
        if bad - good > 1:
            reasons |= {option.node: f"not tried: {most} models were measured" for option in (*rejected, *queue)}
            break
        for option in rejected:
            reasons[option.node] = f"with it in {option.precision} the whole answer is off by {off:.2g}"
            queue += later[option.node][:1]
            del later[option.node][:1]
    return {name: precision for name, precision in chosen.items() if precision != KEPT}, reasons, error


def _is_worth_it(option: Option, tolerance: float) -> bool:
    return option.gain > 0 and option.error <= tolerance


def _refusal(name: str, options: Sequence[Option], refusals: Mapping[tuple[str, str], str], tolerance: float) -> str:
    """The reasons why an op is not lowered at all, from each of its options."""
    own = [option for option in options if option.node == name]
    refused = [f"{precision}: {why}" for (node, precision), why in refusals.items() if node == name]
    costly = [f"{o.precision} alone moves the answer by {o.error:.2g}" for o in own if o.error > tolerance]
    useless = [f"{o.precision} wins nothing" for o in own if o.error <= tolerance and o.gain <= 0]
    return "; ".join([*refused, *costly, *useless]) or "no lower precision was asked for"


def _gain(option: Option) -> float:
    return option.gain


def _benefit(option: Option) -> float:
    """The gain per error."""
    return option.gain / max(option.error, 1e-9)


def _precisions(options: Iterable[Option]) -> dict[str, str]:
    return {option.node: option.precision for option in options}
